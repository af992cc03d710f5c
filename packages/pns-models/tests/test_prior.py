"""How far a frozen prior varies."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest


def test_deviations_over_rows_and_over_indices_are_told_apart():
    class VariesOverRows:
        def draw_indices(self, key, num):
            return jnp.zeros((num, 1))

        def prior_raw(self, z, indices):
            return jnp.broadcast_to(
                jnp.arange(len(z))[None, :, None], (len(indices), len(z), 6)
            )

    deviation = pm.prior_sd(VariesOverRows(), jax.random.key(0), np.zeros((5, 2)))
    np.testing.assert_allclose(deviation.over_z, np.sqrt(2))
    np.testing.assert_array_equal(deviation.over_index, 0)
    with pytest.raises(TypeError, match="only hypermodels and epinets have a prior"):
        pm.prior_sd(object(), jax.random.key(0), np.zeros((5, 2)))


@pytest.mark.parametrize("kind", ["hypermodel", "epinet"])
def test_the_prior_varies_over_rows_and_over_indices(small, kind):
    """Of order one in both: a prior that is constant in z would add no doubt."""
    z = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    network = small.network(kind, prior_scale=1.0)
    deviation = pm.prior_sd(network, jax.random.key(2), z)
    chex.assert_shape(list(deviation), (6,))
    for values in deviation:
        assert np.all((values > 0.3) & (values < 4))
    network.prior_scale = 0.0
    assert np.all(np.array(pm.prior_sd(network, jax.random.key(2), z)) == 0)
