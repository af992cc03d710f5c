"""Counting: the counts of a cell, their posterior, and no covariates in common."""

import jax
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_experiments.counting import (
    CountingRecipe,
    bound_by_counting,
    count_cells,
    estimate_by_counting,
)
from pns_experiments.methods import METHODS
from pns_experiments.replicates import draw_replicate
from scipy import stats


def test_counts_are_those_of_people_with_the_same_covariates():
    rng = np.random.default_rng(0)
    tables = [
        (rng.integers(0, 2, (n, 3)), rng.integers(0, 2, n), rng.integers(0, 2, n))
        for n in (90, 60)
    ]
    asked = np.array([[0, 1, 1], [1, 1, 0], [5, 0, 0], [0, 1, 1]])
    for merge in (True, False):
        counts = pm.rows_from_tables(*tables).counts(merge)
        found = count_cells(counts, asked)
        for (z, x, y), cells in zip(tables, found, strict=True):
            for row, cell in zip(asked, cells, strict=True):
                same = (z == row).all(axis=1)
                wanted = [
                    [np.sum(same & (x == a) & (y == b)) for b in (0, 1)] for a in (0, 1)
                ]
                np.testing.assert_array_equal(cell, wanted)


def test_the_trial_alone_has_the_quantiles_of_two_betas():
    """With mu1 near 1 and mu0 near 0.5, the upper bound is 1 - mu0."""
    experimental = np.array([[[50.0, 50.0], [2.0, 98.0]]])
    ends = bound_by_counting(
        np.random.default_rng(0),
        *(np.zeros((1, 2, 2)), experimental, 0.1, "trial"),
        CountingRecipe(num_draws=40_000),
    )
    law = stats.beta(50.5, 50.5)
    np.testing.assert_allclose(ends.upper, law.ppf(0.95), atol=0.003)
    # The lower one is mu1 - mu0: its quantile by numerical convolution.
    grid = np.linspace(0, 1, 4001)
    density = stats.beta(98.5, 2.5).pdf(grid)
    gaps = grid[::40]
    chance = [(density * law.sf(grid - gap)).sum() / 4000 for gap in gaps]
    wanted = np.interp(0.05, chance, gaps)
    np.testing.assert_allclose(ends.lower, wanted, atol=0.004)


def test_many_people_give_the_bounds_of_the_frequencies_and_none_give_little():
    law = pb.Atoms(np.array([[[0.3, 0.2], [0.15, 0.35]]]), np.array([[0.4, 0.6]]))
    arms = np.stack([1 - law.mu, law.mu], axis=-1)
    rng, recipe = np.random.default_rng(0), CountingRecipe(num_draws=500)
    many = bound_by_counting(rng, 1e9 * law.joint, 1e9 * arms, 0.05, "both", recipe)
    for found, wanted in zip(many, pb.pns_bounds(law), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-3)
    frequencies = estimate_by_counting(1e9 * law.joint, 1e9 * arms, 0.5)
    for found, wanted in zip(frequencies, law, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    none = np.zeros((1, 2, 2))
    for source in ("both", "trial"):
        ends = bound_by_counting(rng, none, none, 0.05, source, recipe)
        assert ends.lower[0] < 0.01 and ends.upper[0] > 0.75


@pytest.mark.parametrize("source", ["both", "trial"])
def test_blocks_do_not_change_how_cells_are_bounded(source, monkeypatch):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 400, (2, 7, 2, 2)).astype(float)
    recipe = CountingRecipe(num_draws=4000)
    whole = bound_by_counting(rng, *counts, 0.1, source, recipe)
    monkeypatch.setattr("pns_experiments.counting._BLOCK", 3)
    parts = bound_by_counting(rng, *counts, 0.1, source, recipe)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=0.02)


@pytest.mark.parametrize("name", ["frequencies", "trial_alone"])
def test_every_point_has_the_answer_of_its_own_cell(name):
    """In any order, and as often as it is asked."""
    data = draw_replicate("li:7", 1500, 1000, num_test=40, replicate=0, seed=0)
    order = np.random.default_rng(0).permutation(80) % 40
    answer = METHODS[name].answer(
        jax.random.key(0), data.tables, data.z[order], 0.05, "smoke"
    )
    for i, z in enumerate(data.z[order]):
        cells = []
        for table in data.tables.both:
            same = (np.asarray(table.z) == z).all(axis=1)
            x, y = np.asarray(table.x)[same], np.asarray(table.y)[same]
            cells.append(np.histogram2d(x, y, bins=(2, 2), range=[[0, 1]] * 2)[0])
        wanted = estimate_by_counting(*(cell[None] for cell in cells), 0.5)
        np.testing.assert_allclose(answer.atoms.mu[i], wanted.mu[0], rtol=1e-6)
        np.testing.assert_allclose(answer.atoms.joint[i], wanted.joint[0], rtol=1e-6)
        ends = np.array([answer.interval.lower[i], answer.interval.upper[i]])
        bounds = (
            pb.pns_bounds(wanted)
            if name == "frequencies"
            else pb.experimental_only_bounds(wanted.mu)
        )
        middle = (bounds.lower[0] + bounds.upper[0]) / 2
        assert ends[0] <= middle + 0.05 and ends[1] >= middle - 0.05
    twins = [np.flatnonzero(order == point) for point in range(40)]
    for one, other in twins:
        assert answer.interval.lower[one] == answer.interval.lower[other]
