"""Plain functions say what the module says, and compare by value."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from flax import nnx
from pns_models._loss import loss_by_index


def test_features_and_head_make_the_raw_numbers_and_the_loss(small):
    model = small.model()
    plain = pm.plain_functions(model)
    rng = np.random.default_rng(0)
    z = rng.normal(size=(20, 3)).astype(np.float32)
    raw = plain.head(plain.params[1], plain.features(plain.params[0], z))
    np.testing.assert_allclose(raw, model.network.encode(z), rtol=1e-6)
    counts = rng.integers(0, 4, (20, 8)).astype(np.float32)

    @jax.jit
    @jax.grad
    def gradient(raw, training):
        numbers = jax.lax.select(training, jax.lax.stop_gradient(raw), raw)
        return jnp.sum(plain.frozen_nll(raw, numbers, counts))

    for training in (False, True):

        def loss(raw, training=training):
            ones = jnp.ones(2)
            return loss_by_index(raw[None], counts, ones, "anchored", training)[0]

        np.testing.assert_allclose(
            gradient(raw, training), jax.jit(jax.grad(loss))(raw), atol=1e-4
        )


def test_functions_of_two_models_of_one_structure_are_equal_and_compile_once(small):
    first, second = (pm.plain_functions(small.model(key=key)) for key in (0, 1))
    for name in ("features", "head", "frozen_nll"):
        assert getattr(first, name) == getattr(second, name)
        assert hash(getattr(first, name)) == hash(getattr(second, name))
    assert first.features != first.head

    @functools.partial(jax.jit, static_argnums=0)
    @chex.assert_max_traces(n=1)
    def features(function, params, z):
        return function(params, z)

    for plain in (first, second):
        z = jnp.ones((3, 3))
        mapped = features(plain.features, plain.params[0], z)
        want = plain.features(plain.params[0], z)
        np.testing.assert_allclose(mapped, want, rtol=1e-5)


def test_functions_of_other_structures_differ(small):
    wide = small.config(backbone=pm.Backbone(width=9, depth=1, activation="silu"))
    relu = small.config(backbone=pm.Backbone(width=8, depth=1, activation="relu"))
    deep = small.config(backbone=pm.Backbone(width=8, depth=2, activation="silu"))
    first = pm.plain_functions(small.model())
    for config, same in ((relu, False), (deep, False), (wide, True)):
        network = nnx.eval_shape(lambda c=config: c.make(jax.random.key(0), 3))
        model = pm.FittedModel(network, pm.Recipe(config), small.model().standardizer)
        # Sizes are in the parameters, not in the functions.
        assert (pm.plain_functions(model).features == first.features) == same


def test_other_kinds_are_told(small):
    with pytest.raises(ValueError, match="model must be of kind 'anchored'"):
        pm.plain_functions(small.model("ensemble"))
