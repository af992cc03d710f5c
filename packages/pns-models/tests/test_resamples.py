"""Resamples: entries, and weights that are Gamma and do not see a fold."""

import numpy as np
import pns_models as pm
import pytest
from scipy import stats


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
    resamples = pm.Resamples(np.random.default_rng(0), folded, np.array([-1]))
    seen = seen_counts(resamples, folded, -1)
    assert np.all(seen > 0)
    assert seen.sum() == sum(part.sum() for part in folded.counts[1:])
    np.testing.assert_array_equal(resamples.z[folded.cell], folded.counts.z)
    assert len(resamples.cell) < 8 * len(resamples.z), "or no count is 0"


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_weights_are_gamma_of_the_units_outside_the_fold(folded, scale):
    light = folded._replace(
        counts=folded.counts._replace(observational=scale * folded.counts.observational)
    )
    num_members, fold = 2000, 1
    resamples = pm.Resamples(
        np.random.default_rng(0), light, np.full(num_members, fold)
    )
    total = np.stack([resamples.weights(member) for member in range(num_members)])
    counts = seen_counts(resamples, light, fold)
    assert np.all(total[:, counts == 0] == 0) and (counts == 0).any()
    total, counts = total[:, counts > 0], counts[counts > 0]
    error = 4.5 * np.sqrt(counts / num_members) + 1e-5 * counts
    assert np.all(np.abs(total.mean(axis=0) - counts) < error)
    # The variance of a sample variance of Gamma(c): (2 + 6 / c) c^2 / m.
    error = 5.5 * np.sqrt((2 + 6 / counts) / num_members) * counts
    assert np.all(np.abs(total.var(axis=0) - counts) < error)
    law = stats.gamma(counts[0])
    assert stats.kstest(total[:, 0], law.cdf).pvalue > 1e-3
    correlation = np.corrcoef(total.T)[np.triu_indices(len(counts), 1)]
    assert np.abs(correlation).max() < 4.5 / np.sqrt(num_members)


def test_weights_are_the_same_whenever_they_are_asked_for(folded):
    one, other = (
        pm.Resamples(np.random.default_rng(5), folded, np.array([0, 1, 0]))
        for _ in range(2)
    )
    backwards = [other.weights(member) for member in (2, 1, 0)][::-1]
    for member in range(3):
        np.testing.assert_array_equal(one.weights(member), backwards[member])
        np.testing.assert_array_equal(one.weights(member), backwards[member])
