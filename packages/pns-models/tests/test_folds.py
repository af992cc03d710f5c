"""Folds: a partition of the rows, at random, with what belongs together in one fold."""

import numpy as np
import pns_models as pm
import pytest
from pns_models._data import flat_weights


def make_rows(num_rows=60, seed=0, num_vectors=12):
    """Draws rows of one unit each, of weight 1 to 4; several share covariates."""
    rng = np.random.default_rng(seed)
    cells = np.zeros((num_rows, 8), np.float32)
    cells[np.arange(num_rows), rng.integers(0, 8, num_rows)] = rng.integers(
        1, 5, num_rows
    )
    cells = cells.reshape(-1, 2, 2, 2)
    z = np.stack([np.arange(num_rows) % num_vectors, np.ones(num_rows)], axis=1)
    return pm.Counts(z.astype(np.float32), cells[:, 0], cells[:, 1])


def assign(counts, num_folds, groups=None, seed=0):
    return pm.assign_folds(np.random.default_rng(seed), counts, num_folds, groups)


def part_of_rows(counts):
    """Names the part of each row, by a loop."""
    parts = []
    for observational, experimental in zip(*counts[1:], strict=True):
        if observational.sum() > 0:
            parts.append("observational")
        else:
            parts.append("treatment" if experimental[1].sum() > 0 else "control")
    return np.array(parts)


def by_covariates_and_fold(counts, fold):
    """Sums the eight counts of each covariate vector and fold, row by row."""
    sums = {}
    for z, f, row in zip(counts.z.tolist(), fold, flat_weights(counts), strict=True):
        name = (*z, int(f))
        sums[name] = sums.get(name, 0) + row.astype(float)
    return sums


@pytest.mark.parametrize("grouped", [False, True])
def test_rows_that_share_covariates_and_fold_merge_and_keep_their_place(grouped):
    counts = make_rows()
    fold = assign(counts, 4, np.arange(60) // 3 if grouped else None)
    folded, place = pm.fold_counts(counts, fold)
    assert folded.num_folds == 4
    wanted = by_covariates_and_fold(counts, fold)
    found = by_covariates_and_fold(folded.counts, folded.fold)
    assert len(found) == len(folded.fold) and found.keys() == wanted.keys()
    for name, row in wanted.items():
        np.testing.assert_array_equal(found[name], row)
    np.testing.assert_array_equal(folded.counts.z[place], counts.z)
    np.testing.assert_array_equal(folded.fold[place], fold)


def test_cells_join_the_folds_of_a_covariate_vector():
    counts = make_rows()
    folded, _ = pm.fold_counts(counts, assign(counts, 4))
    totals = folded.cell_totals()
    assert totals.shape == (12, 8)
    for cell in range(12):
        vectors = np.unique(folded.counts.z[folded.cell == cell], axis=0)
        assert len(vectors) == 1
        same = np.all(counts.z == vectors[0], axis=1)
        np.testing.assert_array_equal(totals[cell], flat_weights(counts)[same].sum(0))


def test_folds_are_equal_in_rows_of_each_source_and_arm():
    counts = make_rows(203, seed=1)
    fold, part = assign(counts, 5), part_of_rows(counts)
    assert np.ptp(np.bincount(fold)) <= 1
    for name in ("observational", "control", "treatment"):
        assert np.ptp(np.bincount(fold[part == name], minlength=5)) <= 1


def test_the_fold_of_a_row_is_uniform():
    """Over 900 repetitions; counts of hits have a standard deviation of 14."""
    counts = make_rows(24, seed=4)
    hits = np.zeros((24, 3))
    for seed in range(900):
        hits[np.arange(24), assign(counts, 3, seed=seed)] += 1
    assert np.abs(hits - 300).max() < 4.5 * np.sqrt(900 * 2 / 9)


@pytest.mark.parametrize("text", [False, True])
def test_groups_stay_in_one_fold_and_spread_evenly(text):
    rng = np.random.default_rng(3)
    counts = make_rows(900)
    groups = np.concatenate([np.repeat(np.arange(40), 15), 40 + np.arange(300)])
    groups = rng.permutation(groups).astype(str if text else int)
    fold, part = assign(counts, 4, groups), part_of_rows(counts)
    for label in np.unique(groups):
        assert len(set(fold[groups == label])) == 1
    assert np.ptp(np.bincount(fold)) <= 4
    for name in ("observational", "control", "treatment"):
        sizes = np.bincount(fold[part == name])
        assert np.ptp(sizes) <= 0.15 * sizes.mean()


def test_one_rng_gives_one_answer():
    counts = make_rows()
    np.testing.assert_array_equal(assign(counts, 3), assign(counts, 3))
    assert not np.array_equal(assign(counts, 3), assign(counts, 3, seed=1))


def test_fewer_rows_than_folds_are_told():
    cells = np.eye(8, dtype=np.float32).reshape(8, 2, 2, 2)
    counts = pm.Counts(np.zeros((8, 1), np.float32), cells[:, 0], cells[:, 1])
    with pytest.raises(pm.TooFewRowsError, match="fewer folds") as raised:
        assign(counts, 9)
    assert raised.value.part == "fold" and raised.value.observational == 0


def test_a_fold_without_an_arm_is_told():
    counts = make_rows(200)
    treated = np.flatnonzero(part_of_rows(counts) == "treatment")
    keep = np.delete(np.arange(200), treated[1:])  # one cannot lie in both folds
    counts = pm.Counts(*(part[keep] for part in counts))
    with pytest.raises(pm.TooFewRowsError, match="in the treatment arm") as raised:
        assign(counts, 2)
    assert raised.value.observational > 0 and raised.value.experimental > 0
    flipped = counts._replace(experimental=counts.experimental[:, ::-1])
    with pytest.raises(pm.TooFewRowsError, match="in the control arm"):
        assign(flipped, 2)


def test_a_group_of_everybody_is_told():
    with pytest.raises(pm.TooFewRowsError, match="fold 2 of 3 .* smaller groups"):
        assign(make_rows(), 3, np.zeros(60))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_folds": 1}, "num_folds must be at least 2, got 1"),
        ({"groups": np.zeros(7)}, "groups must hold 60 labels.*got shape \\[7\\]"),
        ({"counts": make_rows()._replace(z=np.zeros(60))}, "counts must have z"),
        (
            {"counts": make_rows()._replace(observational=-np.ones((60, 2, 2)))},
            "observational counts must be finite and not negative",
        ),
    ],
)
def test_bad_arguments_are_told(change, message):
    arguments = {"counts": make_rows(), "num_folds": 3, **change}
    with pytest.raises(ValueError, match=message):
        assign(**arguments)


def test_folds_by_part_are_those_of_counts():
    counts = make_rows(200)
    names = np.array(["observational", "control", "treatment"])
    part = np.argmax(part_of_rows(counts)[:, None] == names, axis=1).astype(np.int8)
    fold = pm.deal_folds(np.random.default_rng(0), part, 4)
    np.testing.assert_array_equal(fold, assign(counts, 4))
    assert fold.dtype == np.int16

    # A plain deal: shuffled rows, sorted by part, one fold after the other.
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
