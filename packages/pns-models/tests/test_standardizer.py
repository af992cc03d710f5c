"""Standardizing by units, with constant columns and what is not a number."""

import jax
import numpy as np
import pns_models as pm
import pytest
from pns_models import _standardizer


def make_counts(z, units):
    cells = np.zeros((len(z), 2, 2), np.float32)
    cells[:, 0, 0] = units
    return pm.Counts(np.asarray(z, np.float32), cells, np.zeros_like(cells))


def test_merged_rows_weigh_as_many_units_as_they_hold():
    z = np.array([[0.0, 5.0], [1.0, 7.0], [3.0, 5.0]])
    units = [3, 1, 2]
    repeated = np.repeat(z, units, axis=0)
    standardizer = pm.make_standardizer(make_counts(z, units))
    np.testing.assert_allclose(standardizer.mean, repeated.mean(0), rtol=1e-6)
    np.testing.assert_allclose(standardizer.deviation, repeated.std(0), rtol=1e-6)
    np.testing.assert_allclose(standardizer(repeated).mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(standardizer(repeated).std(0), 1, rtol=1e-6)


def test_constant_columns_become_zero_and_are_reported():
    z = np.array([[1e6, 0.0, 1.0], [1e6, 0.0, 2.0]])
    standardizer = pm.make_standardizer(make_counts(z, [1, 1]))
    np.testing.assert_array_equal(standardizer.constant, [True, True, False])
    np.testing.assert_array_equal(standardizer(z + 5)[:, :2], 0)


def test_rows_that_do_not_fit_are_told():
    standardizer = pm.make_standardizer(make_counts([[0.0, 1], [1, 0]], [1, 1]))
    with pytest.raises(ValueError, match=r"shape \[n, 2\], as in training"):
        standardizer(np.zeros((3, 5)))
    with pytest.raises(ValueError, match=r"in columns \[1\]"):
        standardizer([[0.0, np.inf]])


def test_units_of_both_sources_count_and_close_numbers_are_not_constant():
    cells = np.zeros((2, 2, 2), np.float32)
    observational, experimental = cells.copy(), cells.copy()
    observational[0, 0, 0], experimental[1, 0, 0] = 1, 3
    z = np.array([[0.0, 1000.0], [1.0, 1001.0]], np.float32)
    standardizer = pm.make_standardizer(pm.Counts(z, observational, experimental))
    np.testing.assert_allclose(standardizer.mean, [0.75, 1000.75])
    assert not standardizer.constant.any()


def test_the_covariance_by_blocks_is_numpys(monkeypatch):
    rng = np.random.default_rng(0)
    z = rng.normal(5, 2, (50, 3)).astype(np.float32)
    weights = rng.integers(1, 9, 50)
    blocks = [slice(start, start + 16) for start in range(0, 50, 16)]
    monkeypatch.setattr(_standardizer, "row_blocks", lambda *_: blocks)
    np.testing.assert_allclose(
        _standardizer.weighted_covariance(z, weights),
        np.cov(z.astype(float), rowvar=False, aweights=weights),
    )


def test_rows_are_standardized_alike_inside_and_outside_a_compiled_function():
    rng = np.random.default_rng(0)
    z = rng.normal(3, 2, (500, 4)).astype(np.float32)
    z[:, 2] = 7
    counts = pm.Counts(z, *rng.integers(0, 5, (2, 500, 2, 2)))
    standardizer = pm.make_standardizer(counts)
    assert standardizer.constant.tolist() == [False, False, True, False]
    inside = jax.jit(lambda scale, z: scale.compiled(z))(standardizer, z)
    np.testing.assert_array_equal(inside, standardizer(z))
