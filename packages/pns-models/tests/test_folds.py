"""Folds: a partition of the units, at random, with what belongs together in one fold."""

import numpy as np
import pns_models as pm
import pytest
from pns_models._data import flat_weights


def make_counts(num_cells=30, seed=0, fractional=False):
    """Draws counts of a few units up to thirty; some of them 0."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 30, (2, num_cells, 2, 2)).astype(np.float32)
    if fractional:
        cells += rng.random(cells.shape).astype(np.float32)
    z = np.stack([np.arange(num_cells), rng.integers(0, 2, num_cells)], axis=1)
    return pm.Counts(z.astype(np.float32), cells[0], cells[1])


def by_covariates(counts):
    """Sums the eight counts of each covariate vector in a dictionary, row by row."""
    sums = {}
    for z, row in zip(np.asarray(counts.z), flat_weights(counts), strict=True):
        sums[tuple(z.tolist())] = sums.get(tuple(z.tolist()), 0) + row.astype(float)
    return sums


def assert_same_units(left, right):
    left, right = by_covariates(left), by_covariates(right)
    assert left.keys() == right.keys()
    for z, row in left.items():
        np.testing.assert_allclose(row, right[z], rtol=1e-6)  # float32


@pytest.mark.parametrize("fractional", [False, True])
@pytest.mark.parametrize("how", ["units", "rows", "groups"])
def test_folds_partition_the_units(how, fractional):
    counts = make_counts(fractional=fractional)
    options = {
        "units": {},
        "rows": {"whole_rows": True},
        "groups": {"groups": np.arange(30) // 3},
    }[how]
    folded = pm.make_folds(np.random.default_rng(1), counts, 4, **options)
    assert folded.num_folds == 4 and set(folded.fold) == {0, 1, 2, 3}
    assert_same_units(folded.counts, counts)
    totals = pm.Counts(
        counts.z, *np.split(folded.cell_totals().reshape(30, 4, 2), 2, axis=1)
    )
    first = [np.flatnonzero(folded.cell == cell)[0] for cell in range(30)]
    assert_same_units(totals._replace(z=folded.counts.z[first]), counts)
    same = np.all(folded.counts.z == folded.counts.z[first][folded.cell], axis=1)
    assert same.all()
    pairs = np.stack([folded.fold, folded.cell])
    assert len(np.unique(pairs, axis=1).T) == len(folded.fold), "a row for each pair"
    assert np.all(flat_weights(folded.counts).sum(axis=1) > 0)


def test_rows_that_share_covariates_merge_within_a_fold(small):
    counts = pm.counts_from_tables(*small.tables(), merge=False)
    folded = pm.make_folds(np.random.default_rng(0), counts, 3)
    assert len(folded.fold) == 8 * 3  # three binary covariates, three folds
    assert_same_units(folded.counts, counts)
    assert np.all(flat_weights(folded.counts) % 1 == 0)


@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_the_fold_of_a_unit_is_uniform_and_independent_of_the_others(fraction):
    """Over 2,000 repetitions; a multinomial has known moments."""
    c, num_folds, repeats = 6, 3, 2000
    cells = np.zeros((2, 1, 2, 2), np.float32)
    cells[:, 0] = 200.0
    cells[0, 0, 0, 0] = c + fraction
    counts = pm.Counts(np.zeros((1, 1), np.float32), cells[0], cells[1])
    rng = np.random.default_rng(0)
    seen = np.stack(
        [
            pm.make_folds(rng, counts, num_folds).counts.observational[:, 0, 0]
            for _ in range(repeats)
        ]
    )
    np.testing.assert_allclose(seen.sum(axis=1), c + fraction)
    whole = np.floor(seen)
    variance = c * (1 / 3) * (2 / 3)
    error = 4 * np.sqrt(variance / repeats)
    np.testing.assert_allclose(whole.mean(axis=0), c / 3, atol=error)
    # Variance and covariance of independent units; their own errors are about
    # variance * sqrt(2 / repeats).
    covariance = np.cov(whole.T)
    expected = c * (np.eye(3) / 3 - 1 / 9)
    np.testing.assert_allclose(
        covariance, expected, atol=4 * variance * np.sqrt(2 / repeats)
    )
    if fraction:
        hits = ((seen - whole) > 0.25).sum(axis=0)
        assert hits.sum() == repeats, "the fraction lies in one fold"
        chi_square = np.sum((hits - repeats / 3) ** 2) / (repeats / 3)
        assert chi_square < 13.8  # its 0.999 quantile with two degrees of freedom


@pytest.mark.parametrize("how", ["rows", "groups"])
def test_rows_or_groups_stay_in_one_fold(how):
    counts = make_counts(60, fractional=True)
    labels = np.arange(60) if how == "rows" else np.arange(60) % 17
    options = {"whole_rows": True} if how == "rows" else {"groups": labels}
    folded = pm.make_folds(np.random.default_rng(0), counts, 4, **options)
    row = folded.counts.z[:, 0].astype(int)  # the first covariate is the row's number
    assert sorted(row) == list(range(60))
    for label in np.unique(labels):
        assert len(set(folded.fold[labels[row] == label])) == 1
    sizes = np.bincount(folded.fold)
    assert sizes.max() - sizes.min() <= (0 if how == "rows" else 4)


def test_labels_may_be_text_and_equal_rows_of_two_groups_may_part():
    counts = make_counts(20)
    twice = pm.Counts(*(np.concatenate([part, part]) for part in counts))
    groups = np.repeat(["left", "right"], 20)
    folded = pm.make_folds(np.random.default_rng(0), twice, 2, groups)
    assert len(folded.fold) == 40 and folded.cell.max() == 19
    for fold in (0, 1):
        keep = folded.fold == fold
        part = pm.Counts(*(np.asarray(p)[keep] for p in folded.counts))
        assert_same_units(part, counts)


def test_one_rng_gives_one_answer():
    counts = make_counts()
    first, again, other = (
        pm.make_folds(np.random.default_rng(seed), counts, 3) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(
        first.counts.observational, again.counts.observational
    )
    assert not np.array_equal(flat_weights(first.counts), flat_weights(other.counts))


def one_of_each():
    """One unit for each of the eight counts."""
    return pm.Counts(np.zeros((1, 1), np.float32), *np.ones((2, 1, 2, 2), np.float32))


def test_too_few_units_for_the_folds_are_told():
    with pytest.raises(pm.TooFewRowsError, match="fewer folds") as raised:
        pm.make_folds(np.random.default_rng(0), one_of_each(), 9)
    assert raised.value.part == "fold" and raised.value.observational == 0


def test_a_fold_without_an_arm_is_told():
    counts = make_counts()
    counts.experimental[:, 1] = 0
    counts.experimental[0, 1, 1] = 1  # one treated unit cannot lie in both folds
    with pytest.raises(pm.TooFewRowsError, match="in the treatment arm") as raised:
        pm.make_folds(np.random.default_rng(0), counts, 2)
    assert raised.value.observational > 0 and raised.value.experimental > 0
    flipped = counts._replace(experimental=counts.experimental[:, ::-1])
    with pytest.raises(pm.TooFewRowsError, match="in the control arm"):
        pm.make_folds(np.random.default_rng(0), flipped, 2)


def test_a_group_of_everybody_is_told():
    with pytest.raises(pm.TooFewRowsError, match="fold 2 of 3 .* smaller groups"):
        pm.make_folds(np.random.default_rng(0), make_counts(), 3, np.zeros(30))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_folds": 1}, "num_folds must be at least 2, got 1"),
        ({"groups": np.zeros(7)}, "groups must hold 30 labels.*got shape \\[7\\]"),
        ({"counts": make_counts()._replace(z=np.zeros(30))}, "counts must have z"),
        (
            {"counts": make_counts()._replace(observational=-np.ones((30, 2, 2)))},
            "observational counts must be finite and not negative",
        ),
    ],
)
def test_bad_arguments_are_told(change, message):
    arguments = {"counts": make_counts(), "num_folds": 3, **change}
    with pytest.raises(ValueError, match=message):
        pm.make_folds(np.random.default_rng(0), **arguments)
