"""Weights that depend on the index: right law, per person and per cell."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from pns_models import _noise
from scipy import stats


def make_config(kind="anchored", backbone=None, **sizes):
    """Makes a config of any kind; sizes that it does not have are left out."""
    config_class = pm.NETWORKS[kind]
    names = [field.name for field in dataclasses.fields(config_class)]
    known = {name: size for name, size in sizes.items() if name in names}
    return config_class(backbone or pm.Backbone(), **known)


@pytest.mark.parametrize("kind", ["hypermodel", "epinet", "ensemble"])
def test_weights_of_counts_are_gamma(kind):
    """Kolmogorov-Smirnov over rows (ensemble) and over indices (the others)."""
    num = 3000
    config = make_config(kind, pm.Backbone(4, 1), index_dim=10, num_members=3)
    network = config.make(jax.random.key(0), 2)
    cells = np.tile([0.0, 1, 2, 7, 40, 0.5, 0, 1], (num, 1)).astype(np.float32)
    table = _noise.make_noise_table(cells)
    if kind == "ensemble":
        indices, rows = jnp.eye(3), jnp.arange(num)
    else:
        indices, rows = network.draw_indices(jax.random.key(1), num), jnp.arange(1)
    directions = _noise.cell_directions(network, jax.random.key(2), rows)
    which = table.which[: len(rows)]
    weights = np.asarray(
        _noise.noisy_cells(jnp.asarray(table.quantiles), which, directions, indices)
    )
    sample = weights[1] if kind == "ensemble" else weights[:, 0]
    for cell, count in enumerate(cells[0]):
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
