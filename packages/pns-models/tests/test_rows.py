"""Rows: what is merged, in which order, that no unit is lost; and who is held out."""

import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest

NAMES = ["observational", "control", "treatment"]


def draw_rows(size=400, seed=0, num_levels=3):
    """Draws rows of few covariate vectors, many of which agree in everything."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (3, size))
    return pm.Rows(
        z=rng.integers(0, num_levels, (size, 2)).astype(np.float32),
        source=bits[0],
        treatment=bits[1],
        outcome=bits[2],
        weights=rng.integers(1, 4, size).astype(float),
        copies=np.ones(size),
        cell=np.zeros(size, int),
        fold=rng.integers(0, 3, size),
    )


def names(rows, *more):
    labels = (rows.source, rows.treatment, rows.outcome, rows.fold, *more)
    return [
        (*z, *label)
        for z, label in zip(rows.z.tolist(), zip(*labels, strict=True), strict=True)
    ]


def test_merged_rows_are_those_of_a_dictionary_in_the_order_of_appearance():
    rows = draw_rows()
    merged, place, first = rows.merged()
    wanted = {}
    for name, weight in zip(names(rows), rows.weights, strict=True):
        size, copies = wanted.get(name, (0, 0))
        wanted[name] = size + weight, copies + 1
    assert names(merged) == list(wanted)
    found = zip(merged.weights, merged.copies, strict=True)
    assert list(found) == list(wanted.values())
    np.testing.assert_array_equal(merged.z[place], rows.z)
    np.testing.assert_array_equal(np.unique(place, return_index=True)[1], first)
    assert len(merged.z) < 200


def test_rows_share_a_cell_exactly_if_they_share_covariates():
    merged, _, _ = draw_rows().merged()
    for one in range(0, len(merged.z), 7):
        same = (merged.z == merged.z[one]).all(axis=1)
        np.testing.assert_array_equal(merged.cell == merged.cell[one], same)


@pytest.mark.parametrize("part", ["assignment", "weights"])
def test_rows_that_differ_in_what_matters_stay_apart(part):
    rows = draw_rows()
    label = np.arange(400) % 5 / 7 + 0.1
    rows = rows._replace(**{part: label.copy()})
    merged, place, _ = rows.merged(keeps_weights=part == "weights")
    assert len(set(names(rows, label))) == len(merged.z)
    assert merged.weights.sum() == pytest.approx(rows.weights.sum())
    if part == "weights":  # of one unit, times the units
        np.testing.assert_allclose((merged.weights / merged.copies)[place], label)


def test_rows_of_groups_stay_apart():
    rows = draw_rows()._replace(group=np.zeros(400, int))
    merged, place, first = rows.merged()
    assert merged.z is rows.z and len(set(merged.cell)) == 9
    np.testing.assert_array_equal(place, first)


def test_counts_and_folded_counts_are_those_of_the_rows_before_they_were_merged():
    rows = draw_rows()
    merged, place, _ = rows.merged()
    counts = merged.counts()
    wanted = np.zeros((len(counts.z), 2, 2, 2))
    folded, where = merged.folded()
    by_fold = np.zeros((len(folded.fold), 2, 2, 2))
    known = {tuple(z): i for i, z in enumerate(counts.z.tolist())}
    assert len(known) == len(counts.z)
    for i in range(400):
        cell = (rows.source[i], rows.treatment[i], rows.outcome[i])
        wanted[(known[tuple(rows.z[i].tolist())], *cell)] += rows.weights[i]
        by_fold[(where[place[i]], *cell)] += rows.weights[i]
    for found, sums in ((counts, wanted), (folded.counts, by_fold)):
        np.testing.assert_array_equal(found.observational, sums[:, 0])
        np.testing.assert_array_equal(found.experimental, sums[:, 1])
    np.testing.assert_array_equal(folded.fold[where], merged.fold)
    np.testing.assert_array_equal(folded.counts.z[where], merged.z)
    each = merged.counts(merge=False)
    assert len(each.z) == 400 and each.experimental.sum() == wanted[:, 1].sum()
    assert len(merged.counts(merge=None).z) == len(counts.z)
    few = draw_rows(num_levels=100)
    assert len(few.merged()[0].counts(merge=None).z) == 400


def test_weights_are_rounded_before_they_are_summed_as_counts_of_single_rows_are():
    """Batches of networks follow from sums to the last bit."""
    rng = np.random.default_rng(0)
    rows = draw_rows()._replace(weights=rng.uniform(0.1, 3, 400), group=np.zeros(400))
    rows, _, _ = rows.merged()
    counts = rows.counts()
    single = rows.counts(merge=False).merged()
    np.testing.assert_array_equal(counts.observational, single.observational)
    np.testing.assert_array_equal(counts.experimental, single.experimental)
    at_once = np.zeros(counts.experimental.shape)
    trial = rows.take(rows.source == 1)
    place = np.unique(rows.cell, return_inverse=True)[1][rows.source == 1]
    np.add.at(at_once, (place, trial.treatment, trial.outcome), trial.weights)
    assert not np.array_equal(counts.experimental, at_once.astype(np.float32))


def test_squares_are_those_of_the_units():
    rows = draw_rows()
    merged, _, _ = rows.merged(keeps_weights=True)
    found, wanted = merged.squares(), 0 * merged.counts().observational
    known = {tuple(z): i for i, z in enumerate(found.z.tolist())}
    for i in np.flatnonzero(rows.source == 0):
        cell = (known[tuple(rows.z[i].tolist())], rows.treatment[i], rows.outcome[i])
        wanted[cell] += rows.weights[i] ** 2
    np.testing.assert_allclose(found.observational, wanted)


def test_what_columns_belong_to_stays_with_the_rows():
    covariate = np.array([0, 0])
    rows = draw_rows()._replace(covariate=covariate)
    dealt = rows.deal(np.random.default_rng(0), 2)
    for some in (dealt, rows.take(np.array([3, 5])), rows.merged()[0]):
        assert some.covariate is covariate
    assert dealt.take(dealt.fold == 1).folded()[0].covariate is covariate
    assert draw_rows().folded()[0].covariate is None


def test_rows_that_all_differ_are_not_copied():
    rows = draw_rows(num_levels=10**6)
    merged, _, _ = rows.merged()
    last = merged.take(np.arange(len(rows.z)) >= 100).z
    for part in (merged.z, merged.folded()[0].counts.z, last):
        assert np.shares_memory(part, rows.z)
    np.testing.assert_array_equal(last, rows.z[100:])


def test_many_labels_do_not_overflow():
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 2**40, 3000) % 2999 for _ in range(8)]
    labels = [np.concatenate([label, label[:10]]) for label in labels]
    first, kind = pm.distinct_rows(*labels)
    assert len(first) == 3000
    np.testing.assert_array_equal(kind[-10:], kind[:10])


def draw_parts(num_rows=60, seed=0):
    """Draws the part of each row: half of them in the log."""
    return np.maximum(np.random.default_rng(seed).integers(-1, 3, num_rows), 0)


def deal(part, num_folds, groups=None, seed=0):
    return pm.deal_folds(np.random.default_rng(seed), part, num_folds, groups)


def test_rows_are_dealt_by_their_source_and_arm():
    rng = np.random.default_rng(0)
    log, trial = ((rng.random((n, 1)), *rng.integers(0, 2, (2, n))) for n in (60, 40))
    rows = pm.rows_from_tables(log, trial).deal(np.random.default_rng(3), 4)
    part = np.concatenate([np.zeros(60, int), 1 + trial[1]])
    np.testing.assert_array_equal(rows.fold, deal(part, 4, seed=3))


def test_folds_are_equal_in_rows_of_each_source_and_arm():
    part = draw_parts(203, seed=1)
    fold = deal(part, 5)
    assert np.ptp(np.bincount(fold)) <= 1
    for number in range(3):
        assert np.ptp(np.bincount(fold[part == number], minlength=5)) <= 1


def test_the_fold_of_a_row_is_uniform():
    """Over 900 repetitions; counts of hits have a standard deviation of 14."""
    part = draw_parts(24, seed=4)
    hits = np.zeros((24, 3))
    for seed in range(900):
        hits[np.arange(24), deal(part, 3, seed=seed)] += 1
    assert np.abs(hits - 300).max() < 4.5 * np.sqrt(900 * 2 / 9)


@pytest.mark.parametrize("text", [False, True])
def test_groups_stay_in_one_fold_and_spread_evenly(text):
    rng = np.random.default_rng(3)
    part = draw_parts(900)
    groups = np.concatenate([np.repeat(np.arange(40), 15), 40 + np.arange(300)])
    groups = rng.permutation(groups).astype(str if text else int)
    fold = deal(part, 4, groups)
    for label in np.unique(groups):
        assert len(set(fold[groups == label])) == 1
    assert np.ptp(np.bincount(fold)) <= 4
    for number in range(3):
        sizes = np.bincount(fold[part == number])
        assert np.ptp(sizes) <= 0.15 * sizes.mean()


def test_one_rng_gives_one_answer():
    part = draw_parts()
    np.testing.assert_array_equal(deal(part, 3), deal(part, 3))
    assert not np.array_equal(deal(part, 3), deal(part, 3, seed=1))


def test_fewer_rows_than_folds_are_told():
    with pytest.raises(pm.TooFewRowsError, match="fewer folds") as raised:
        deal(np.array([0, 0, 0, 0, 1, 1, 2, 2]), 9)
    assert raised.value.part == "fold" and raised.value.observational == 0


@pytest.mark.parametrize("arm", [1, 2])
def test_a_fold_without_an_arm_is_told(arm):
    part = np.concatenate([np.repeat([0, 3 - arm], 50), [arm]])
    message = f"in the {NAMES[arm]} arm"
    with pytest.raises(pm.TooFewRowsError, match=message) as raised:
        deal(part, 2)
    assert raised.value.observational > 0 and raised.value.experimental > 0


def test_a_group_of_everybody_is_told():
    with pytest.raises(pm.TooFewRowsError, match="fold 2 of 3 .* smaller groups"):
        deal(draw_parts(), 3, np.zeros(60))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_folds": 1}, "num_folds must be at least 2, got 1"),
        ({"groups": np.zeros(7)}, "groups must hold 60 labels.*got shape \\[7\\]"),
    ],
)
def test_bad_arguments_are_told(change, message):
    with pytest.raises(pb.InputError, match=message):
        deal(**{"part": draw_parts(), "num_folds": 3, **change})


def test_a_deal_is_that_of_cards():
    """Shuffled rows, sorted by part, one fold after the other."""
    part = draw_parts(200)
    fold = deal(part, 4)
    assert fold.dtype == np.int16
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(part))
    rows = rows[np.argsort(part[rows], kind="stable")]
    order = rng.permutation(4)
    for place, row in enumerate(rows):
        assert fold[row] == order[place % 4]


def test_a_part_that_cannot_be_in_every_fold_is_an_error():
    part = np.repeat([0, 1, 2], [8, 8, 3])
    with pytest.raises(pm.TooFewRowsError, match="in the treatment arm") as caught:
        pm.deal_folds(np.random.default_rng(0), part, 4)
    assert caught.value.part == "fold"


@pytest.mark.parametrize("grouped", [False, True])
def test_rows_or_groups_are_held_out_with_the_given_probability(grouped):
    """500 coins: the standard deviation of the share is 0.018."""
    groups = np.arange(5000) % 500 if grouped else None
    size = 5000 if grouped else 500
    held = pm.deal_held_out(np.random.default_rng(1), size, 0.2, groups)
    assert set(held) == {0, 1} and abs(held.mean() - 0.2) < 0.07
    if grouped:
        assert all(len(set(held[groups == g])) == 1 for g in range(500))
