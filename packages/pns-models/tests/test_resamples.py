"""Resamples: entries, and what members see of them; never their fold."""

import gc
import weakref

import numpy as np
import pns_models as pm
import pytest


@pytest.fixture(scope="module")
def folded(small):
    rows = pm.rows_from_tables(*small.tables())
    folded, _ = rows.deal(np.random.default_rng(0), 3).folded()
    # One count is 0 everywhere, one only outside fold 1.
    folded.counts.observational[folded.cell == 0, 0, 1] = 0
    folded.counts.experimental[(folded.cell == 1) & (folded.fold != 1), 1, 1] = 0
    return folded


def seen_counts(resamples, folded, fold):
    """Adds up the units of each entry outside a fold, row by row."""
    seen = np.zeros(len(resamples.cell))
    for i, entry in enumerate(
        zip(
            resamples.cell,
            resamples.source,
            resamples.treatment,
            resamples.outcome,
            strict=True,
        )
    ):
        cell, source, treatment, outcome = entry
        rows = (folded.cell == cell) & (folded.fold != fold)
        seen[i] = folded.counts[1 + source][rows, treatment, outcome].sum()
    return seen


def test_entries_are_the_counts_that_are_not_0(folded):
    resamples = pm.Resamples(folded)
    seen = seen_counts(resamples, folded, -1)
    assert np.all(seen > 0)
    assert seen.sum() == sum(part.sum() for part in folded.counts[1:])
    np.testing.assert_array_equal(resamples.z[folded.cell], folded.counts.z)
    assert len(resamples.cell) < 8 * len(resamples.z), "or no count is 0"


def test_each_column_is_a_covariate_unless_it_is_said_to_belong_to_another(folded):
    assert pm.Resamples(folded).covariate.tolist() == [0, 1, 2]
    together = folded._replace(covariate=np.array([0, 0, 1]))
    assert pm.Resamples(together, 2, 0.5).covariate.tolist() == [0, 0, 1]


def test_the_first_members_are_one_for_each_fold(folded):
    assert pm.Resamples(folded, 2).member_fold.tolist() == [0, 1, 2, 0, 1, 2]


def test_without_a_share_members_see_everything_outside_their_fold(folded):
    resamples = pm.Resamples(folded, per_fold=2)
    for member, fold in enumerate(resamples.member_fold):
        seen = seen_counts(resamples, folded, fold)
        np.testing.assert_allclose(resamples.weights(member), seen)
        everything = seen_counts(resamples, folded, -1)
        np.testing.assert_allclose(resamples.held_out(fold), everything - seen)


def test_counts_are_the_weights_in_their_places(folded):
    resamples = pm.Resamples(folded, 2, share=0.5, seed=3)
    entries = zip(
        resamples.cell,
        resamples.source,
        resamples.treatment,
        resamples.outcome,
        strict=True,
    )
    expected = np.zeros((len(resamples.z), 2, 2, 2))
    for entry, weight in zip(entries, resamples.weights(4), strict=True):
        expected[entry] = weight
    np.testing.assert_array_equal(resamples.counts(4), expected)


@pytest.mark.parametrize(("scale", "share"), [(1.0, 0.25), (1.0, 0.6), (0.5, 0.25)])
def test_a_share_is_a_coin_for_each_unit_outside_the_fold(folded, scale, share):
    """Counts that are not whole: the rest is tossed as one unit."""
    light = folded._replace(
        counts=folded.counts._replace(observational=scale * folded.counts.observational)
    )
    per_fold, fold = 1500, 1
    resamples = pm.Resamples(light, per_fold, share, seed=0)
    own = np.flatnonzero(resamples.member_fold == fold)
    total = np.stack([resamples.weights(member) for member in own])
    counts = seen_counts(resamples, light, fold)
    assert np.all(total[:, counts == 0] == 0) and (counts == 0).any()
    total, counts = total[:, counts > 0], counts[counts > 0]
    assert np.all((total >= 0) & (total <= counts))
    rest = counts - np.floor(counts)
    variance = share * (1 - share) * (np.floor(counts) + rest**2)
    error = 4.5 * np.sqrt(variance / per_fold)
    assert np.all(np.abs(total.mean(axis=0) - share * counts) < error)
    # A sample variance has a variance of (kurtosis - 1) variance^2 / m; the kurtosis of
    # a coin of this share is at most 1 / (share (1 - share)) - 3.
    error = 5.5 * np.sqrt((1 / (share * (1 - share)) + 2) / per_fold) * variance
    assert np.all(np.abs(total.var(axis=0) - variance) < error)
    correlation = np.corrcoef(total.T)[np.triu_indices(len(counts), 1)]
    assert np.abs(correlation).max() < 4.5 / np.sqrt(per_fold)


def test_members_of_all_folds_see_the_same_share(folded):
    """A fold that two members see shows each of them the same units."""
    alone = pm.FoldedCounts(folded.counts, folded.fold, np.arange(len(folded.fold)))
    resamples = pm.Resamples(alone, 2, 0.5, seed=5)
    seen = [resamples.counts(member) for member in range(3)]
    third = folded.fold == 2
    np.testing.assert_array_equal(seen[0][third], seen[1][third])
    assert seen[0][third].sum() > 0 and seen[2][third].sum() == 0


def test_weights_are_the_same_whenever_they_are_asked_for(folded):
    one, other = (pm.Resamples(folded, 2, 0.5, seed=5) for _ in range(2))
    backwards = [other.weights(member) for member in (5, 4, 3, 2, 1, 0)][::-1]
    for member in range(6):
        np.testing.assert_array_equal(one.weights(member), backwards[member])
        np.testing.assert_array_equal(one.weights(member), backwards[member])
    assert np.any(backwards[0] != backwards[3]), "members of a fold differ"
    another = pm.Resamples(folded, 2, 0.5, seed=6)
    assert np.any(another.weights(0) != backwards[0])


def test_resamples_end_with_their_last_reference(folded):
    """They hold arrays of the data's size; a cycle would keep them until a collection."""
    gc.disable()
    try:
        resamples = pm.Resamples(folded, 2, 0.5)
        resamples.weights(0), resamples.seen(1)
        alive = weakref.ref(resamples)
        del resamples
        assert alive() is None
    finally:
        gc.enable()
