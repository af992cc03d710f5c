"""Networks: shapes, validity for any weights, what learns and what does not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pns_bounds as pb
import pns_models as pm
import pytest
from flax import nnx


def make_config(kind="anchored", backbone=None, **sizes):
    """Makes a config of any kind; sizes that it does not have are left out."""
    config_class = pm.NETWORKS[kind]
    names = [field.name for field in dataclasses.fields(config_class)]
    known = {name: size for name, size in sizes.items() if name in names}
    return config_class(backbone or pm.Backbone(), **known)


KINDS = ["anchored", "s_learner", "t_learner", "hypermodel", "epinet", "ensemble"]
ANCHORED = ["anchored", "hypermodel", "epinet", "ensemble"]
EPISTEMIC = ["hypermodel", "epinet", "ensemble"]


def make(kind, key=0, **changes):
    settings = {"backbone": pm.Backbone(width=16, depth=2), "num_members": 5, **changes}
    return make_config(kind, **settings).make(jax.random.key(key), 3)


def some_z(n=40, key=1):
    return jax.random.normal(jax.random.key(key), (n, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_every_network_maps_people_and_indices_to_six_numbers(kind):
    network = make(kind)
    indices = network.draw_indices(jax.random.key(2), 7)
    assert indices.shape == (7, network.index_dim)
    raw = network.raw(some_z(), indices)
    assert raw.shape == (7, 40, 6) and raw.dtype == jnp.float32
    assert network.is_epistemic == (kind in EPISTEMIC)
    varies = bool(jnp.any(raw[0] != raw[1]))
    assert varies == (kind in EPISTEMIC)
    assert network.central_indices().shape[1] == network.index_dim


@pytest.mark.parametrize("kind", ANCHORED)
@pytest.mark.parametrize("scale", [0.3, 3.0, 10.0])
def test_atoms_are_valid_for_any_weights_and_any_index(kind, scale):
    """No tolerance, float32; weights and indices far beyond what training reaches."""
    network = make(kind)
    structure, params, fixed = nnx.split(network, nnx.Param, ...)
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(3), len(leaves))
    wild = [
        scale * jax.random.normal(key, leaf.shape)
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    network = nnx.merge(structure, jax.tree.unflatten(tree, wild), fixed)
    ordinary = network.draw_indices(jax.random.key(4), 20)
    adversarial = jnp.concatenate([30 * ordinary, jnp.zeros_like(ordinary[:1])])
    for indices in (ordinary, adversarial):
        raw = network.raw(some_z(200), indices)
        assert np.all(np.isfinite(raw))
        atoms = jax.jit(lambda r: pm.atoms_from_raw(r, "anchored"))(raw)
        atoms = jax.tree.map(np.asarray, atoms)
        assert np.all(pb.is_compatible(atoms))
        assert atoms.mu.min() >= 0 and atoms.mu.max() <= 1
        assert np.all(np.isfinite(atoms.joint))


@pytest.mark.parametrize("shape", [(20, 200), (16, 256), (5000,)])
def test_atoms_are_valid_for_any_finite_numbers(shape):
    rng = np.random.default_rng(0)
    link = jax.jit(lambda raw: pm.atoms_from_raw(raw, "anchored"))
    for scale in (1.0, 10.0, 40.0, 1e4, 1e30):
        raw = (scale * rng.standard_normal((*shape, 6))).astype(np.float32)
        atoms = jax.tree.map(np.asarray, link(raw))
        assert np.all(pb.is_compatible(atoms))
        assert atoms.mu.min() >= 0 and atoms.mu.max() <= 1


def test_free_links_do_violate_constraints():
    raw = jnp.array([0.0, 0, 0, 0, 5, -5])
    assert not pb.is_compatible(pm.atoms_from_raw(raw, "free"))
    assert make("s_learner").link == make("t_learner").link == "free"


@pytest.mark.parametrize("link", ["anchored", "free"])
def test_log_probabilities_are_the_logarithms_of_the_atoms(link):
    raw = 3 * jax.random.normal(jax.random.key(0), (100, 6))
    atoms = pm.atoms_from_raw(raw, link)
    logs = pm.log_probabilities(raw, link)
    np.testing.assert_allclose(np.exp(logs.joint), atoms.joint, rtol=1e-4)
    np.testing.assert_allclose(np.exp(logs.outcome[..., 1]), atoms.mu, rtol=1e-4)
    np.testing.assert_allclose(np.exp(logs.outcome[..., 0]), 1 - atoms.mu, atol=1e-5)


def experimental_gradient(training: bool):
    network = make("anchored")
    structure, params = nnx.split(network, nnx.Param)
    cells = jnp.concatenate([jnp.zeros((40, 4)), jnp.ones((40, 4))], axis=1)

    def loss(params):
        raw = nnx.merge(structure, params).raw(some_z(), jnp.zeros((1, 0)))
        totals = jnp.array([1.0, 160.0])
        return pm.loss_by_index(raw, cells, totals, "anchored", training).mean()

    return jax.grad(loss)(params)


def largest(tree) -> float:
    return max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(tree))


def test_the_experimental_loss_trains_the_body_but_not_the_joint_head():
    gradient = experimental_gradient(training=True)
    assert largest(gradient["joint_head"]) == 0
    assert largest(gradient["delta_head"]) > 0
    assert largest(gradient["body"]) > 0
    assert largest(experimental_gradient(training=False)["joint_head"]) > 0


@pytest.mark.parametrize("kind", ["hypermodel", "epinet"])
def test_a_frozen_prior_does_not_move_under_adamw(kind):
    rng = np.random.default_rng(0)
    table = (
        rng.normal(size=(200, 3)),
        rng.integers(0, 2, 200),
        rng.integers(0, 2, 200),
    )
    config = make_config(kind, pm.Backbone(width=8, depth=1), index_dim=3)
    recipe = pm.Recipe(config, pm.TrainConfig(max_steps=20, weight_decay=1.0))
    counts = pm.counts_from_tables(table, table)
    key = jax.random.key(5)
    model = pm.fit(key, counts, recipe).model
    start = config.make(jax.random.split(key, 5)[0], 3)
    for frozen, same in ((pm.Frozen, True), (nnx.Param, False)):
        before, after = (nnx.state(net, frozen) for net in (start, model.network))
        pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        equal = [bool(jnp.array_equal(a, b)) for a, b in pairs]
        assert len(equal) > 2
        assert all(equal) if same else not any(equal)
    assert optax.tree.norm(nnx.state(model.network.prior, pm.Frozen)) > 0


@pytest.mark.parametrize("kind", ["hypermodel", "epinet"])
def test_the_prior_varies_over_people_and_over_indices(kind):
    """Of order one in both: a prior that is constant in z would add no doubt."""
    network = make_config(kind).make(jax.random.key(0), 15)
    z = jax.random.normal(jax.random.key(1), (300, 15))
    spread = pm.prior_sd(network, jax.random.key(2), z)
    for values in spread:
        assert values.shape == (6,)
        assert np.all((values > 0.3) & (values < 4))
    silent = make_config(kind, prior_scale=0.0).make(jax.random.key(0), 15)
    assert np.all(np.array(pm.prior_sd(silent, jax.random.key(2), z)) == 0)


def test_a_generated_network_has_the_scale_of_an_initialized_one():
    backbone = pm.Backbone(width=64, depth=3)
    plain = make_config("anchored", backbone)
    z = jax.random.normal(jax.random.key(1), (500, 10))
    none = jnp.zeros((1, 0))
    initialized = [
        float(plain.make(jax.random.key(k), 10).raw(z, none).std()) for k in range(10)
    ]
    hyper = make_config("hypermodel", backbone, prior_scale=0.0)
    network = hyper.make(jax.random.key(0), 10)
    generated = network.raw(z, network.draw_indices(jax.random.key(3), 10)).std()
    assert 0.5 < float(generated) / np.mean(initialized) < 2


def test_unit_vectors_pick_ensemble_members_and_draws_have_their_moments():
    network = make("ensemble", num_members=6)
    z = some_z(10)
    members = network.raw(z, jnp.eye(6))
    np.testing.assert_array_equal(members, network.encode(z))
    assert len({float(m[0, 0]) for m in members}) == 6
    draws = network.raw(z, network.draw_indices(jax.random.key(1), 40_000))
    np.testing.assert_allclose(draws.mean(0), members.mean(0), atol=0.03)
    ratio = draws.std(0) / jnp.std(members, axis=0, ddof=1)
    np.testing.assert_allclose(ratio, 1, atol=4 / np.sqrt(2 * 40_000))
    with pytest.raises(ValueError, match="at least 2"):
        make("ensemble", num_members=1)


def test_the_head_of_an_epinet_sends_no_gradient_into_the_features():
    network = make("epinet", prior_scale=0.0)
    structure, params, fixed = nnx.split(network, nnx.Param, ...)

    def head_only(params):
        net = nnx.merge(structure, params, fixed)
        index = jnp.ones((1, net.index_dim))
        return jnp.sum(net.raw(some_z(), index) - net.raw(some_z(), 0 * index))

    gradient = jax.grad(head_only)(params)
    assert largest(gradient["base"]["body"]) == 0
    assert largest(gradient["head"]) > 0


def test_the_learners_depend_on_arms_as_they_should():
    z = some_z()
    none = jnp.zeros((1, 0))
    single = make("s_learner")
    raw = single.raw(z, none)[0]
    assert jnp.all(raw[:, 4] != raw[:, 5])
    two = make("t_learner")
    before = two.raw(z, none)[0]
    two.arms[1].biases[-1][...] += 1.0
    after = two.raw(z, none)[0]
    np.testing.assert_allclose(
        after - before, np.eye(6)[5] * np.ones((40, 1)), atol=1e-6
    )


def test_bfloat16_products_stay_close_to_float32():
    wide, narrow = (
        make_config("anchored", pm.Backbone(matmul_dtype=dtype)).make(
            jax.random.key(0), 3
        )
        for dtype in ("float32", "bfloat16")
    )
    none = jnp.zeros((1, 0))
    raw = wide.raw(some_z(), none), narrow.raw(some_z(), none)
    assert raw[1].dtype == jnp.float32
    error = float(jnp.abs(raw[0] - raw[1]).max())
    assert 0 < error < 0.1


def test_networks_of_two_keys_differ_and_of_one_key_agree():
    none = jnp.zeros((1, 0))
    first, again, other = (
        make("anchored", key=k).raw(some_z(), none) for k in (0, 0, 1)
    )
    assert jnp.array_equal(first, again) and not jnp.array_equal(first, other)


@pytest.mark.parametrize("kind", ["hypermodel", "epinet"])
def test_the_prior_is_added_to_the_raw_numbers(kind):
    small = pm.Backbone(width=8, depth=1)
    with_prior, without = (
        make_config(kind, small, index_dim=4, prior_scale=scale).make(
            jax.random.key(0), 3
        )
        for scale in (1.0, 0.0)
    )
    indices = with_prior.draw_indices(jax.random.key(1), 5)
    added = with_prior.raw(some_z(), indices) - without.raw(some_z(), indices)
    np.testing.assert_allclose(
        added, with_prior.prior_raw(some_z(), indices), atol=1e-4
    )


def test_activation_and_depth_are_as_configured():
    none = jnp.zeros((1, 0))
    relu, silu = (
        make_config("anchored", pm.Backbone(8, 1, name))
        .make(jax.random.key(0), 3)
        .raw(some_z(), none)
        for name in ("relu", "silu")
    )
    assert not jnp.allclose(relu, silu)
    body = pm.Backbone(8, depth=2).body(3, nnx.Rngs(0))
    assert [kernel.shape for kernel in body.kernels] == [(3, 8), (8, 8), (8, 8)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: pm.Backbone(activation="tanh"), "activation must be one of"),
        (lambda: pm.Backbone(depth=-1), "depth not negative"),
        (lambda: pm.Backbone(width=0), "width must be at least 1"),
        (lambda: pm.Backbone(matmul_dtype="int8"), "matmul_dtype must be one of"),
        (lambda: pm.EpinetConfig(index_dim=0), "index_dim must be at least 1"),
        (lambda: pm.HypermodelConfig(hidden=()), "one width or more"),
        (lambda: pm.EpinetConfig(prior_scale=float("nan")), "prior_scale must be"),
        (
            lambda: pm.AnchoredConfig().make(jax.random.key(0), 0),
            "one covariate or more",
        ),
    ],
)
def test_networks_that_cannot_be_are_told(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
