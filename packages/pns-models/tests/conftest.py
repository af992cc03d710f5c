"""Small networks, tables and fits that the tests share.

Equal recipes and shapes are compiled once in a session, so tests that train share them
where they can.
"""

import contextlib
import dataclasses
import types

import jax
import numpy as np
import pns_models as pm
import pytest
from pns_models._network import NETWORKS

TINY = pm.Backbone(width=8, depth=1, activation="silu")
SIZES = {"index_dim": 4, "hidden": (8, 8), "prior_hidden": (8,), "num_members": 3}


def make_config(kind="anchored", backbone=TINY, **sizes):
    """Makes a config of any kind; sizes that it does not have are left out."""
    config_class = NETWORKS[kind]
    names = [field.name for field in dataclasses.fields(config_class)]
    known = {k: v for k, v in {**SIZES, **sizes}.items() if k in names}
    return config_class(backbone, **known)


def make_network(kind="anchored", key=0, **sizes):
    """Draws a small network of any kind for three covariates."""
    return make_config(kind, **sizes).make(jax.random.key(key), 3)


def make_recipe(kind="anchored", **training):
    """Makes a recipe of few steps for a small network of any kind."""
    settings = {"max_steps": 20, "eval_every": 10, "patience": None, **training}
    return pm.Recipe(make_config(kind), pm.TrainConfig(**settings))


def make_model(kind="anchored", key=0):
    """Makes a model of a network that was not trained, on three covariates."""
    config = make_config(kind)
    scale = pm.Standardizer(
        np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(3, bool)
    )
    return pm.FittedModel(config.make(jax.random.key(key), 3), pm.Recipe(config), scale)


def make_tables(n=300, m=200, seed=0):
    """Draws three binary covariates; X and Y depend on them and on something hidden."""
    rng = np.random.default_rng(seed)
    tables = []
    for size, randomized in ((n, False), (m, True)):
        z = rng.integers(0, 2, (size, 3)).astype(np.float32)
        hidden = rng.integers(0, 2, size)
        lean = 0.25 + 0.2 * z[:, 0] + 0.3 * hidden
        x = (rng.random(size) < (0.5 if randomized else lean)).astype(int)
        respond = 0.1 + 0.3 * hidden + 0.2 * x * z[:, 1] + 0.2 * z[:, 2]
        tables.append((z, x, (rng.random(size) < respond).astype(int)))
    return tables


def make_covariates(n=300, seed=1):
    """Draws three columns of different scales, the last of them constant."""
    rng = np.random.default_rng(seed)
    return rng.normal([0.0, 50.0, 1.0], [1.0, 9.0, 0.0], size=(n, 3))


def make_fit(kind="anchored", key=5):
    """Fits a small network on three covariates, of which the last is constant.

    The covariates take four values, so two keys give data of the same shapes.
    """
    rng = np.random.default_rng(0)
    tables = []
    for n in (400, 300):
        z = np.stack([np.arange(n) % 2, 50.0 + np.arange(n) % 4, np.ones(n)], axis=1)
        tables.append((z, rng.integers(0, 2, n), rng.integers(0, 2, n)))
    counts = pm.rows_from_tables(*tables).counts()
    recipe = make_recipe(
        kind, max_steps=10, eval_every=5, num_indices=3, data_noise="exponential"
    )
    return pm.fit(jax.random.key(key), counts, recipe)


@contextlib.contextmanager
def few_optimizations():
    """Compiles quickly; numbers are those of other roundings."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def quick_compilation():
    """Is for tests of bookkeeping; tests of numbers compile as users do."""
    with few_optimizations():
        yield


@pytest.fixture(scope="session")
def small():
    """Returns the functions of this file."""
    return types.SimpleNamespace(
        config=make_config,
        network=make_network,
        recipe=make_recipe,
        model=make_model,
        fit=make_fit,
        tables=make_tables,
        covariates=make_covariates,
    )


@pytest.fixture(scope="session")
def fits():
    """One small fit of each kind."""
    with few_optimizations():
        return {kind: make_fit(kind) for kind in NETWORKS}


_COMPILED = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration, **_: (
        _COMPILED.append(duration)
        if event.endswith("backend_compile_duration")
        else None
    )
)


@pytest.fixture
def num_compiled():
    """Counts the programs that were compiled, or read from the cache, so far."""
    return lambda: len(_COMPILED)
