"""Strata whose sources differ in their covariates, weighted to one law."""

import jax
import numpy as np
import pns_infer as pi
import pytest
from pns_infer.averages.source_model import source_probability
from scipy import special

KEY = jax.random.key(0)


def make_cells(seed=0, num_cells=12):
    """Draws counts of cells; the sources' shares of a cell differ."""
    rng = np.random.default_rng(seed)
    observational = rng.integers(1, 40, (num_cells, 2, 2)).astype(float)
    experimental = rng.integers(1, 40, (num_cells, 2, 2)).astype(float)
    return observational, experimental, np.arange(num_cells) % 3


def test_frequencies_are_those_of_cells_averaged_with_equal_weights_for_both_sources():
    """With a cell's own share as chance it weighs n m / (n + m), as Mantel-Haenszel's."""
    observational, experimental, stratum = make_cells()
    # Arms of equal size in all cells, so that an arm's mean over cells is the source's.
    experimental *= 20 / experimental.sum(axis=2, keepdims=True)
    n, m = (part.sum((1, 2)) for part in (observational, experimental))
    found = pi.balanced_counts(stratum, m / (n + m), observational, experimental)
    for s in range(3):
        here = stratum == s
        weight = (n * m / (n + m))[here]
        joint = observational[here] / n[here][:, None, None]
        wanted = np.average(joint, axis=0, weights=weight)
        np.testing.assert_allclose(found[0][s] / found[0][s].sum(), wanted)
        mu = experimental[here, :, 1] / experimental[here].sum(axis=2)
        shares = found[1][s, :, 1] / found[1][s].sum(axis=1)
        np.testing.assert_allclose(shares, np.average(mu, axis=0, weights=weight))


@pytest.mark.parametrize("sampled", [False, True])
def test_totals_are_effective_sample_sizes_counted_row_by_row(sampled):
    rng = np.random.default_rng(1)
    size = 300
    stratum, chance = rng.integers(0, 2, size), rng.uniform(0.2, 0.8, size)
    source, x, y = rng.integers(0, 2, (3, size))
    weights = rng.uniform(1, 9, size) if sampled else rng.integers(1, 4, size)
    cells = np.zeros((2, 2, size, 2, 2))  # weights and squares, of both sources
    for power in (1, 2):
        cells[power - 1, source, np.arange(size), x, y] = weights**power
    squares = (cells[1, 0], cells[1, 1]) if sampled else None
    found = pi.balanced_counts(stratum, chance, cells[0, 0], cells[0, 1], squares)
    own = np.where(source == 1, 1 - chance, chance)
    parts = [
        (source == 0, 0),
        ((source == 1) & (x == 0), 1),
        ((source == 1) & (x == 1), 2),
    ]
    for s in range(2):
        sizes = (found[0][s].sum(), *found[1][s].sum(axis=1))
        for rows, place in parts:
            rows = rows & (stratum == s)
            # A row of frequency 3 is three units.
            every = np.repeat(own[rows], 1 if sampled else weights[rows])
            every = every * weights[rows] if sampled else every
            kish = every.sum() ** 2 / np.sum(every**2)
            np.testing.assert_allclose(sizes[place], kish)


def test_equal_chances_leave_counts_as_they_are():
    observational, experimental, stratum = make_cells()
    found = pi.balanced_counts(stratum, np.full(12, 0.4), observational, experimental)
    for part, table in zip(found, (observational, experimental), strict=True):
        wanted = [table[stratum == s].sum(axis=0) for s in range(3)]
        np.testing.assert_allclose(part, wanted)


def test_the_chance_is_that_of_two_normal_laws():
    """Their log ratio is quadratic; 40,000 rows err by about 0.01."""
    rng = np.random.default_rng(0)
    z = np.concatenate(
        [rng.normal(0, 1, (20_000, 2)), rng.normal([0.5, 0], [1, 1.3], (20_000, 2))]
    )
    is_experimental = np.arange(40_000) >= 20_000
    ratio = 0.5 * z[:, 0] - 0.125 + z[:, 1] ** 2 / 2 * (1 - 1 / 1.69) - np.log(1.3)
    found = source_probability(z, is_experimental, np.arange(40_000) % 5)
    assert np.abs(found - special.expit(ratio))[np.abs(z).max(axis=1) < 2].max() < 0.03


def draw_rows(rng, size, is_experimental, fall):
    """Draws units at the boundary p11 = mu1, unless mu1 falls; z is shifted by 0.5."""
    z = rng.normal(0.5 * (not is_experimental), 1, (size, 1))
    treated = special.expit(0.5 * z[:, 0])
    p11 = treated * special.expit(1.2 * z[:, 0])
    p01 = (1 - treated) * 0.5
    if is_experimental:
        x = rng.integers(0, 2, size)
        y = rng.random(size) < np.where(x == 1, p11 - fall, p01 + treated / 2)
    else:
        x = (rng.random(size) < treated).astype(int)
        y = rng.random(size) < np.where(x == 1, p11 / treated, 0.5)
    cells = np.zeros((size, 2, 2))
    cells[np.arange(size), x, y.astype(int)] = 1
    return z, cells


def run_test(rng, balanced, fall=0.0, size=10_000):
    (z0, observational), (z1, experimental) = (
        draw_rows(rng, size, source, fall) for source in (False, True)
    )
    z, empty = np.concatenate([z0, z1]), np.zeros((size, 2, 2))
    tables = (
        np.concatenate([observational, empty]),
        np.concatenate([empty, experimental]),
    )
    chance = np.full(2 * size, 0.5)
    if balanced:
        fold = np.arange(2 * size) % 5
        chance = source_probability(z, np.arange(2 * size) >= size, fold)
    stratum = pi.neighborhoods(z, size)  # two, below and above the median
    strata = pi.balanced_counts(stratum, chance, *tables)
    return pi.compatibility_test(KEY, *strata, num_draws=1000)


@pytest.mark.slow
def test_the_test_holds_its_size_where_covariates_are_shifted_and_keeps_its_power():
    """200 data sets at 5%: Monte Carlo error 0.015. Without weights it rejects."""
    rng = np.random.default_rng(0)
    results = [run_test(rng, True) for _ in range(200)]
    assert np.mean([r.p_value <= 0.05 for r in results]) < 0.05 + 3 * 0.015
    # At the boundary, the slack of p11 <= mu1 is noise of the standard error claimed.
    noise = np.array([(r.slack / r.standard_error)[:, 0] for r in results])
    assert np.abs(noise.mean(axis=0)).max() < 4 / np.sqrt(200)
    np.testing.assert_allclose(noise.std(axis=0), 1, atol=4 / np.sqrt(400))
    plain = [run_test(rng, False).p_value <= 0.05 for _ in range(40)]
    power = [run_test(rng, True, fall=0.08).p_value <= 0.05 for _ in range(40)]
    assert np.mean(plain) > 0.5 and np.mean(power) > 0.9
