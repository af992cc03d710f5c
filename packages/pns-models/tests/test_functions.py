"""Plain functions say what the module says."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest


def make_config(kind="anchored", backbone=None, **sizes):
    """Makes a config of any kind; sizes that it does not have are left out."""
    config_class = pm.NETWORKS[kind]
    names = [field.name for field in dataclasses.fields(config_class)]
    known = {name: size for name, size in sizes.items() if name in names}
    return config_class(backbone or pm.Backbone(), **known)


def untrained(kind):
    config = make_config(kind, pm.Backbone(width=8, depth=1), num_members=2)
    scale = pm.Standardizer(
        np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(3, bool)
    )
    return pm.FittedModel(config.make(jax.random.key(0), 3), pm.Recipe(config), scale)


def test_features_and_head_make_the_raw_numbers_and_the_loss():
    model = untrained("anchored")
    plain = pm.plain_functions(model)
    z = jax.random.normal(jax.random.key(1), (20, 3))
    raw = plain.head(plain.params[1], plain.features(plain.params[0], z))
    np.testing.assert_allclose(raw, model.network.encode(z), rtol=1e-6)
    cells = jnp.asarray(np.random.default_rng(0).integers(0, 4, (20, 8)), jnp.float32)
    for training in (False, True):

        def loss(raw, training=training):
            ones = jnp.ones(2)
            return pm.loss_by_index(raw[None], cells, ones, "anchored", training)[0]

        frozen = jax.lax.stop_gradient(raw)
        mine = jax.grad(
            lambda r, f=frozen, t=training: jnp.sum(
                plain.frozen_nll(r, f if t else r, cells)
            )
        )(raw)
        np.testing.assert_allclose(mine, jax.grad(loss)(raw), atol=1e-4)


def test_other_kinds_are_told():
    with pytest.raises(TypeError, match="only a model of kind 'anchored'"):
        pm.plain_functions(untrained("ensemble"))
