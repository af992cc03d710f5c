"""Indices that stand for all of N(0, I)."""

import numpy as np
import pytest
from pns_models._epinet import balanced_indices
from scipy import stats


@pytest.mark.parametrize(
    ("index_dim", "num"), [(1, 128), (4, 128), (18, 144), (20, 160)]
)
def test_moments_up_to_the_third_are_those_of_a_normal_law(index_dim, num):
    indices = balanced_indices(index_dim)
    assert indices.shape == (num, index_dim)
    np.testing.assert_array_equal(indices[: num // 2], -indices[num // 2 :])
    np.testing.assert_allclose(indices.T @ indices / num, np.eye(index_dim), atol=1e-9)
    third = np.einsum("sa,sb,sc->abc", indices, indices, indices)
    np.testing.assert_allclose(third, 0, atol=1e-9)


@pytest.mark.parametrize("index_dim", [1, 4, 20])
def test_lengths_are_those_of_draws(index_dim):
    """Quantiles of the chi law, within the width of a stratum."""
    lengths = np.linalg.norm(balanced_indices(index_dim), axis=1)
    middle = np.quantile(lengths, [0.25, 0.75])
    expected = stats.chi(index_dim).ppf([0.25, 0.75])
    np.testing.assert_allclose(middle, expected, rtol=0.1)


def test_a_function_that_bends_has_the_mean_of_many_draws():
    """Against a closed form: E relu(a . index) = |a| / sqrt(2 pi)."""
    a = np.random.default_rng(1).normal(size=(30, 20))
    mean = np.maximum(balanced_indices(20) @ a.T, 0).mean(axis=0)
    exact = np.linalg.norm(a, axis=1) / np.sqrt(2 * np.pi)
    # 80 independent pairs would err by sd(|normal|) / 2 / sqrt(80) = 0.034 each.
    assert (
        np.sqrt(np.mean((mean - exact) ** 2)) < 0.034 * np.sqrt(np.mean(a**2) * 20) / 2
    )
