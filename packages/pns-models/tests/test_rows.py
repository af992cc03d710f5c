"""Rows: what is merged, in which order, and that no unit is lost."""

import numpy as np
import pns_models as pm
import pytest


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
    merged, place, first = pm.merge_rows(rows)
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
    merged, _, _ = pm.merge_rows(draw_rows())
    for one in range(0, len(merged.z), 7):
        same = (merged.z == merged.z[one]).all(axis=1)
        np.testing.assert_array_equal(merged.cell == merged.cell[one], same)


@pytest.mark.parametrize("part", ["assignment", "weights"])
def test_rows_that_differ_in_what_matters_stay_apart(part):
    rows = draw_rows()
    label = np.arange(400) % 5 / 7 + 0.1
    rows = rows._replace(**{part: label.copy()})
    merged, place, _ = pm.merge_rows(rows, keeps_weights=part == "weights")
    assert len(set(names(rows, label))) == len(merged.z)
    assert merged.weights.sum() == pytest.approx(rows.weights.sum())
    if part == "weights":  # of one unit, times the units
        np.testing.assert_allclose((merged.weights / merged.copies)[place], label)


def test_rows_of_groups_stay_apart():
    rows = draw_rows()._replace(group=np.zeros(400, int))
    merged, place, first = pm.merge_rows(rows)
    assert merged.z is rows.z and len(set(merged.cell)) == 9
    np.testing.assert_array_equal(place, first)


def test_counts_and_folded_counts_are_those_of_the_rows_before_they_were_merged():
    rows = draw_rows()
    merged, place, _ = pm.merge_rows(rows)
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
    assert len(pm.merge_rows(few)[0].counts(merge=None).z) == 400


def test_weights_are_rounded_before_they_are_summed_as_counts_of_single_rows_are():
    """Batches of networks follow from sums to the last bit."""
    rng = np.random.default_rng(0)
    rows = draw_rows()._replace(weights=rng.uniform(0.1, 3, 400), group=np.zeros(400))
    rows, _, _ = pm.merge_rows(rows)
    counts = rows.counts()
    single = pm.merge_counts(rows.counts(merge=False))
    np.testing.assert_array_equal(counts.observational, single.observational)
    np.testing.assert_array_equal(counts.experimental, single.experimental)
    at_once = np.zeros(counts.experimental.shape)
    trial = rows.take(rows.source == 1)
    place = np.unique(rows.cell, return_inverse=True)[1][rows.source == 1]
    np.add.at(at_once, (place, trial.treatment, trial.outcome), trial.weights)
    assert not np.array_equal(counts.experimental, at_once.astype(np.float32))


def test_squares_are_those_of_the_units():
    rows = draw_rows()
    merged, _, _ = pm.merge_rows(rows, keeps_weights=True)
    found, wanted = merged.squares(), 0 * merged.counts().observational
    known = {tuple(z): i for i, z in enumerate(found.z.tolist())}
    for i in np.flatnonzero(rows.source == 0):
        cell = (known[tuple(rows.z[i].tolist())], rows.treatment[i], rows.outcome[i])
        wanted[cell] += rows.weights[i] ** 2
    np.testing.assert_allclose(found.observational, wanted)


def test_rows_that_all_differ_are_not_copied():
    rows = draw_rows(num_levels=10**6)
    merged, _, _ = pm.merge_rows(rows)
    assert merged.z is rows.z and merged.folded()[0].counts.z is rows.z


def test_many_labels_do_not_overflow():
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 2**40, 3000) % 2999 for _ in range(8)]
    labels = [np.concatenate([label, label[:10]]) for label in labels]
    first, kind = pm._rows.distinct_rows(*labels)
    assert len(first) == 3000
    np.testing.assert_array_equal(kind[-10:], kind[:10])
