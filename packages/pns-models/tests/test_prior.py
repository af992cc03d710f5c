"""How far a frozen prior varies."""

import jax
import numpy as np
import pytest


@pytest.mark.parametrize("kind", ["hypermodel", "epinet"])
def test_the_prior_varies_over_rows_and_over_indices(small, kind):
    """Of order one in both: a prior that is constant in z would add no doubt."""
    z = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    network = small.network(kind, prior_scale=1.0)
    indices = network.draw_indices(jax.random.key(2), 100)
    raw = np.asarray(network.prior_raw(z, indices))
    for values in (raw.std(axis=1).mean(axis=0), raw.std(axis=0).mean(axis=0)):
        assert values.shape == (6,) and np.all((values > 0.3) & (values < 4))
    network.prior_scale = 0.0
    assert np.all(np.asarray(network.prior_raw(z, indices)) == 0)
