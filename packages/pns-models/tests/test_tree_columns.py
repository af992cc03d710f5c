"""Columns as trees see them: one for each covariate, whatever block a row lies in."""

import numpy as np
import pytest
from pns_models._tree_columns import is_category, tree_columns

COVARIATE = np.array([0, 1, 1, 2, 2, 2, 2, 3, 4, 4, 4])


def draw(size, seed=0):
    """Draws values with gaps, and their columns."""
    rng = np.random.default_rng(seed)
    plain, gappy, other = rng.normal(size=(3, size)).astype(np.float32)
    missing = rng.random(size) < 0.3
    first, second = rng.integers(-1, 4, size), rng.integers(-1, 3, size)
    z = np.column_stack(
        [
            plain,
            missing,
            np.where(missing, 0, gappy),
            first[:, None] == np.arange(4),
            other,
            second[:, None] == np.arange(3),
        ]
    )
    gappy[missing] = np.nan
    levels = [np.where(part < 0, np.nan, part) for part in (first, second)]
    wanted = np.column_stack([plain, gappy, levels[0], other, levels[1]])
    return z.astype(np.float32), wanted.astype(np.float32)


@pytest.mark.parametrize("size", [0, 50, 150_000])
def test_columns_are_the_values_that_they_were_made_of(size):
    z, wanted = draw(size)
    np.testing.assert_array_equal(tree_columns(z, COVARIATE), wanted)
    rows = np.random.default_rng(1).permutation(size)[: size // 2]
    np.testing.assert_array_equal(tree_columns(z, COVARIATE, rows), wanted[rows])


def test_columns_that_belong_together_need_not_be_side_by_side():
    z, wanted = draw(50)
    spread = np.random.default_rng(2).permutation(len(COVARIATE))
    for each in range(5):  # the order of its own columns stays
        own = COVARIATE[spread] == each
        spread[own] = np.sort(spread[own])
    np.testing.assert_array_equal(tree_columns(z[:, spread], COVARIATE[spread]), wanted)


def test_columns_that_are_covariates_are_not_copied():
    z, _ = draw(50)
    every = np.arange(len(COVARIATE))
    assert np.shares_memory(tree_columns(z, every), z)
    assert np.shares_memory(tree_columns(z, every, np.arange(7, 30)), z)
    np.testing.assert_array_equal(tree_columns(z, every, np.array([9, 3])), z[[9, 3]])


def test_categories_are_the_covariates_of_three_columns_or_more():
    assert is_category(COVARIATE).tolist() == [False, False, True, False, True]
    assert not is_category(np.arange(5)).any()
