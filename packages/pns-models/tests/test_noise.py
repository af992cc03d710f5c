"""Weights that depend on the index: right law, per unit and per count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pns_models import _noise
from scipy import stats


@pytest.mark.parametrize("kind", ["hypermodel", "epinet", "ensemble"])
def test_weights_of_counts_are_gamma(small, kind):
    """Kolmogorov-Smirnov over rows (ensemble) and over indices (the others)."""
    num = 3000
    network = small.network(kind, index_dim=10)
    counts = np.tile([0.0, 1, 2, 7, 40, 0.5, 0, 1], (num, 1)).astype(np.float32)
    table = _noise.make_noise_table(counts)
    if kind == "ensemble":
        indices, rows = jnp.eye(3), jnp.arange(num)
    else:
        indices, rows = network.draw_indices(jax.random.key(1), num), jnp.arange(1)
    directions = _noise.row_directions(network, jax.random.key(2), rows)
    which = table.which[: len(rows)]
    weights = np.asarray(
        _noise.noisy_weights(jnp.asarray(table.quantiles), which, directions, indices)
    )
    sample = weights[1] if kind == "ensemble" else weights[:, 0]
    for cell, count in enumerate(counts[0]):
        if count == 0:
            assert np.all(sample[:, cell] == 0)
        else:
            law = stats.gamma(count)
            assert stats.kstest(sample[:, cell], law.cdf).pvalue > 1e-4
            if count >= 1:
                error = np.sqrt(count / num)
                assert abs(sample[:, cell].mean() - count) < 4.5 * error
    # Cells and members are reweighted independently of each other.
    assert abs(np.corrcoef(sample[:, 1], sample[:, 7])[0, 1]) < (
        0.1 if kind == "ensemble" else 0.9
    )
    if kind == "ensemble":
        assert abs(np.corrcoef(weights[0, :, 3], weights[1, :, 3])[0, 1]) < 0.1


def test_many_different_weights_are_rounded_to_three_digits():
    cells = np.linspace(0.1, 50, 80_000).reshape(-1, 8).astype(np.float32)
    table = _noise.make_noise_table(cells)
    assert len(table.quantiles) <= 10_000
    middle = table.quantiles[table.which, 96]  # the median
    exact = stats.gamma.ppf(0.5, cells)
    np.testing.assert_allclose(middle, exact, rtol=0.06)


def test_padding_of_the_table_is_never_read():
    table = _noise.make_noise_table(np.arange(40.0).reshape(5, 8))
    assert table.quantiles.shape == (64, 193) and table.which.max() == 39
    np.testing.assert_array_equal(table.quantiles[40:], 0)
