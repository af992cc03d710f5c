"""Fitted models: predictions, draws, and the same as plain functions."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from flax import nnx
from pns_models import _model
from pns_models._links import loss_by_index

KINDS = ["anchored", "s_learner", "t_learner", "hypermodel", "epinet", "ensemble"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_atoms_alone_and_among_others(fits, small, kind):
    model, z = fits[kind].model, small.covariates()
    together = model.atoms(z)
    chex.assert_shape(together, [(300, 2, 2), (300, 2)])
    alone = model.atoms(z[123:124])
    np.testing.assert_allclose(alone.mu[0], together.mu[123], rtol=1e-5)
    order = np.random.default_rng(2).permutation(300)
    shuffled = model.atoms(z[order])
    np.testing.assert_allclose(shuffled.joint, together.joint[order], rtol=1e-5)
    assert model.atoms(np.zeros((0, 3))).mu.shape == (0, 2)


@pytest.mark.parametrize("kind", ["hypermodel", "epinet", "ensemble"])
def test_draws_are_coherent_valid_and_do_not_depend_on_their_number(fits, small, kind):
    model, z = fits[kind].model, small.covariates()
    key = jax.random.key(3)
    draws = model.draws(key, z, 37)
    chex.assert_shape(draws, [(37, 300, 2, 2), (37, 300, 2)])
    assert np.all(pb.is_compatible(draws))
    few = model.draws(key, z, 5)
    np.testing.assert_array_equal(few.mu, draws.mu[:5])
    # Coherent: a draw of two rows together is their draw apart.
    part = model.draws(key, z[250:], 37)
    # Rounding differs with the number of rows, by more of what is nearly 0.
    np.testing.assert_allclose(part.mu, draws.mu[:, 250:], rtol=1e-5, atol=1e-9)
    assert draws.mu.std(0).min() > 0


@pytest.mark.parametrize("kind", ["anchored", "s_learner", "t_learner"])
def test_a_network_without_index_says_that_it_has_no_draws(small, kind):
    with pytest.raises(pm.NoDrawsError, match=f"{kind!r} has no draws"):
        small.model(kind).draws(jax.random.key(0), np.zeros((5, 3)), 10)


def test_rows_that_do_not_fit_are_told(small):
    model = small.model()
    with pytest.raises(ValueError, match=r"shape \[n, 3\], as in training"):
        model.atoms(np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"in columns \[2\]"):
        model.atoms([[0.0, 0.0, np.nan]])
    with pytest.raises(ValueError, match="num_draws must be at least 1"):
        small.model("epinet").draws(jax.random.key(0), np.zeros((5, 3)), 0)


def test_constant_columns_are_reported_by_the_model(fits):
    np.testing.assert_array_equal(
        fits["anchored"].model.standardizer.constant, [False, False, True]
    )


@pytest.mark.parametrize("kind", ["hypermodel", "ensemble"])
def test_blocks_of_rows_share_the_indices_of_a_draw(small, kind, monkeypatch):
    model, key = small.model(kind), jax.random.key(1)
    z = np.random.default_rng(0).normal(size=(600, 3))
    atoms, draws = model.atoms(z), model.draws(key, z, 5)
    monkeypatch.setattr(_model, "_ROWS", 256)
    np.testing.assert_allclose(model.atoms(z).mu, atoms.mu, rtol=1e-5)
    np.testing.assert_allclose(model.draws(key, z, 5).mu, draws.mu, rtol=1e-5)


@pytest.mark.parametrize("kind", ["hypermodel", "epinet", "ensemble"])
def test_the_point_estimate_is_the_link_of_mean_raw_numbers(fits, small, kind):
    """Written out, one index after the other and averaged in float64."""
    model, z = fits[kind].model, small.covariates()[:9]
    standardized = model.standardizer(z)
    indices = model.network.central_indices()
    one = jax.jit(lambda index: model.network.raw(standardized, index[None])[0])
    raw = [one(index) for index in indices]
    mean = np.mean(np.array(raw, np.float64), axis=0).astype(np.float32)
    expected = pm.atoms_from_raw(mean, "anchored")
    np.testing.assert_allclose(model.atoms(z).mu, expected.mu, rtol=1e-4)
    np.testing.assert_allclose(model.atoms(z).joint, expected.joint, rtol=1e-4)


@pytest.mark.parametrize("kind", ["hypermodel", "epinet", "ensemble"])
def test_the_point_estimate_is_near_the_slow_average_over_draws(small, kind):
    """Raw numbers deviate by less than a twentieth of their draws' standard deviation.

    The slow average has a Monte Carlo error of 1 / sqrt(20,000) = 0.007 of it.
    """
    network = small.network(kind)
    z = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    drawn = np.asarray(network.raw(z, network.draw_indices(jax.random.key(1), 20_000)))
    mean = np.asarray(network.raw(z, network.central_indices())).mean(axis=0)
    error = np.sqrt(
        np.mean((mean - drawn.mean(axis=0)) ** 2) / drawn.var(axis=0).mean()
    )
    assert error < 0.05
    if kind == "epinet":  # whose base network is what an index of 0 gives
        base = np.asarray(network.base.encode(z)) - drawn.mean(axis=0)
        assert np.sqrt(np.mean(base**2) / drawn.var(axis=0).mean()) > 2 * error


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_model_of_the_same_structure_compiles_nothing(small, kind):
    z = np.zeros((5, 3))
    small.model(kind).atoms(z)
    compiled = _model._central_atoms._cache_size()
    small.model(kind, key=1).atoms(z)
    assert _model._central_atoms._cache_size() == compiled


@pytest.mark.parametrize("kind", KINDS)
def test_another_number_of_rows_or_another_seed_compiles_nothing(
    small, kind, num_compiled
):
    model, z = small.model(kind), np.random.default_rng(0).normal(size=(700, 3))

    def ask(num_rows, seed):
        model.atoms(z[:num_rows])
        if model.is_epistemic:
            model.draws(jax.random.key(seed), z[:num_rows], 70)
        if kind == "ensemble":
            model.member_raw(z[:num_rows])

    ask(90, 0)
    compiled = num_compiled()
    ask(130, 0)
    ask(1, 1)
    assert num_compiled() == compiled
    ask(520, 0)  # a larger block
    compiled = num_compiled()
    ask(700, 2)
    assert num_compiled() == compiled
    jax.jit(lambda x: x + 1)(1.0)
    assert num_compiled() > compiled  # a program is seen


def test_rows_are_cut_into_blocks_of_few_sizes(small):
    model = small.model()  # its standardizer changes nothing
    for count in (0, 1, 256, 257, 1000, 8192, 8193, 20_000):
        z = np.arange(3 * count, dtype=np.float32).reshape(-1, 3)
        blocks = list(model._blocks(z))
        assert all(len(block) in 256 * 2 ** np.arange(6) for block, _ in blocks)
        rows = np.concatenate([block[:kept] for block, kept in blocks])
        np.testing.assert_array_equal(rows, z)


def test_weighted_members_are_the_pass_of_each_index(fits, small):
    model, z, key = fits["ensemble"].model, small.covariates(), jax.random.key(3)
    members, indices = model.member_raw(z), model.draw_indices(key, 37)
    chex.assert_shape(members, (3, 300, 6))
    raw = np.einsum("kni,sk->sni", members, indices)
    standardized = model.standardizer(z)
    expected = [model.network.raw(standardized, index[None])[0] for index in indices]
    np.testing.assert_allclose(raw, expected, rtol=1e-4, atol=1e-5)
    drawn = pm.atoms_from_raw(raw.astype(np.float32), "anchored")
    for found, wanted in zip(drawn, model.draws(key, z, 37), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_only_ensembles_have_members(small):
    with pytest.raises(ValueError, match="an ensemble, got 'epinet'"):
        small.model("epinet").member_raw(np.zeros((5, 3)))


def test_features_and_head_make_the_raw_numbers_and_the_loss(small):
    model = small.model()
    plain = model.plain_functions()
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
    first, second = (small.model(key=key).plain_functions() for key in (0, 1))
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
    first = small.model().plain_functions()
    for config, same in ((relu, False), (deep, False), (wide, True)):
        network = nnx.eval_shape(lambda c=config: c.make(jax.random.key(0), 3))
        model = pm.FittedModel(network, pm.Recipe(config), small.model().standardizer)
        # Sizes are in the parameters, not in the functions.
        assert (model.plain_functions().features == first.features) == same


def test_other_kinds_are_told(small):
    with pytest.raises(ValueError, match="model must be of kind 'anchored'"):
        small.model("ensemble").plain_functions()
