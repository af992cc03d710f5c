"""Networks: shapes, validity for any weights, what depends on what; kinds by name."""

import dataclasses
import json
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from absl.testing import parameterized
from flax import nnx
from pns_models import _network
from pns_models._anchored import SLearner, TLearner
from pns_models._links import log_probabilities
from pns_models._network import NETWORKS

KINDS = ["anchored", "s_learner", "t_learner", "hypermodel", "epinet", "ensemble"]
ANCHORED = ["anchored", "hypermodel", "epinet", "ensemble"]
EPISTEMIC = ["hypermodel", "epinet", "ensemble"]
NONE = jnp.zeros((1, 0))  # the index of networks that have none


def some_z(n=40, key=1):
    return np.random.default_rng(key).normal(size=(n, 3)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_every_network_maps_rows_and_indices_to_six_numbers(small, kind):
    network = small.network(kind)
    indices = network.draw_indices(jax.random.key(2), 7)
    chex.assert_shape(indices, (7, network.index_dim))
    raw = network.raw(some_z(), indices)
    chex.assert_shape(raw, (7, 40, 6))
    chex.assert_type(raw, jnp.float32)
    assert network.is_epistemic == (kind in EPISTEMIC)
    varies = bool(jnp.any(raw[0] != raw[1]))
    assert varies == (kind in EPISTEMIC)
    assert network.central_indices().shape[1] == network.index_dim


@pytest.mark.parametrize("kind", ANCHORED)
def test_atoms_are_valid_for_any_weights_and_any_index(small, kind):
    """No tolerance, float32; weights and indices far beyond what training reaches."""
    structure, params, fixed = nnx.split(small.network(kind), nnx.Param, ...)
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(3), len(leaves))

    @jax.jit
    def atoms_of(params, indices):
        raw = nnx.merge(structure, params, fixed).raw(some_z(200), indices)
        return raw, pm.atoms_from_raw(raw, "anchored")

    ordinary = small.network(kind).draw_indices(jax.random.key(4), 20)
    adversarial = jnp.concatenate([30 * ordinary[1:], jnp.zeros_like(ordinary[:1])])
    for scale in (0.3, 3.0, 10.0):
        wild = [
            scale * jax.random.normal(key, leaf.shape)
            for key, leaf in zip(keys, leaves, strict=True)
        ]
        for indices in (ordinary, adversarial):
            raw, atoms = jax.tree.map(
                np.asarray, atoms_of(jax.tree.unflatten(tree, wild), indices)
            )
            chex.assert_tree_all_finite((raw, atoms))
            assert np.all(pb.is_compatible(atoms))
            assert atoms.mu.min() >= 0 and atoms.mu.max() <= 1


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
    assert SLearner.link == TLearner.link == "free"


class LinkTest(chex.TestCase, parameterized.TestCase):
    """The links with and without jit."""

    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters("anchored", "free")
    def test_log_probabilities_are_the_logarithms_of_the_atoms(self, link):
        raw = 3 * jax.random.normal(jax.random.key(0), (100, 6))
        atoms = self.variant(lambda r: pm.atoms_from_raw(r, link))(raw)
        logs = self.variant(lambda r: log_probabilities(r, link))(raw)
        np.testing.assert_allclose(np.exp(logs.joint), atoms.joint, rtol=1e-4)
        np.testing.assert_allclose(np.exp(logs.outcome[..., 1]), atoms.mu, rtol=1e-4)
        np.testing.assert_allclose(
            np.exp(logs.outcome[..., 0]), 1 - atoms.mu, atol=1e-5
        )


def test_a_generated_network_has_the_scale_of_an_initialized_one(small):
    """Twenty of each: the mean square of their raw numbers differs by their luck."""
    z = some_z(200)
    plain = [np.square(small.network(key=k).raw(z, NONE)).mean() for k in range(20)]
    generated = []
    for key in range(4):
        network = small.network("hypermodel", key=key, prior_scale=0.0)
        indices = network.draw_indices(jax.random.key(key), 5)
        generated.append(np.square(network.raw(z, indices)).mean())
    assert 0.5 < np.sqrt(np.mean(generated) / np.mean(plain)) < 2


def test_unit_vectors_pick_ensemble_members_and_draws_have_their_moments(small):
    network = small.network("ensemble")
    z = some_z(10)
    members = np.asarray(network.raw(z, jnp.eye(3)))
    np.testing.assert_array_equal(members, network.encode(z))
    assert len(set(members[:, 0, 0].tolist())) == 3
    indices = network.draw_indices(jax.random.key(1), 40_000)
    draws = np.asarray(network.raw(z, indices))
    np.testing.assert_allclose(draws.mean(0), members.mean(0), atol=0.03)
    ratio = draws.std(0) / np.std(members, axis=0, ddof=1)
    np.testing.assert_allclose(ratio, 1, atol=4 / np.sqrt(2 * 40_000))


def largest(tree) -> float:
    return max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(tree))


def test_the_head_of_an_epinet_sends_no_gradient_into_the_features(small):
    network = small.network("epinet", prior_scale=0.0)
    structure, params, fixed = nnx.split(network, nnx.Param, ...)

    @jax.jit
    @jax.grad
    def gradient_of_head(params):
        net = nnx.merge(structure, params, fixed)
        index = jnp.ones((1, net.index_dim))
        return jnp.sum(net.raw(some_z(), index) - net.raw(some_z(), 0 * index))

    gradient = gradient_of_head(params)
    assert largest(gradient["base"]["body"]) == 0
    assert largest(gradient["head"]) > 0


def test_an_epinet_is_its_base_plus_heads_that_see_the_index_and_are_weighted_by_it(
    small,
):
    """One pass per index, as Osband et al. write it; and not linear in the index."""
    network, z = small.network("epinet", prior_hidden=(8, 8, 8)), some_z()
    for head in (network.head, network.prior):
        for i, bias in enumerate(head.biases):
            bias[...] = 0.1 * jax.random.normal(jax.random.key(i), bias.shape)
    indices = network.draw_indices(jax.random.key(1), 5)
    features = network.base.features(z)
    expected = []
    for index in indices:
        repeated = jnp.tile(index, (len(z), 1))
        heads = (
            network.head(jnp.concatenate([features, z, repeated], axis=1)),
            network.prior_scale * network.prior(jnp.concatenate([z, repeated], axis=1)),
        )
        matrix = sum(heads).reshape(len(z), 6, len(index))
        expected.append(network.base.encode(z) + matrix @ index / len(index) ** 0.5)
    raw = network.raw(z, indices)
    np.testing.assert_allclose(raw, expected, rtol=1e-4, atol=1e-5)
    base = network.base.encode(z)
    assert float(jnp.abs(network.raw(z, 2 * indices) - 2 * raw + base).max()) > 0.1


def test_the_learners_depend_on_arms_as_they_should(small):
    z = some_z()
    raw = small.network("s_learner").raw(z, NONE)[0]
    assert jnp.all(raw[:, 4] != raw[:, 5])
    two = small.network("t_learner")
    before = two.raw(z, NONE)[0]
    two.arms[1].biases[-1][...] += 1.0
    after = two.raw(z, NONE)[0]
    np.testing.assert_allclose(
        after - before, np.eye(6)[5] * np.ones((40, 1)), atol=1e-6
    )


def test_bfloat16_products_stay_close_to_float32(small):
    wide, narrow = (
        small.network(backbone=pm.Backbone(8, 1, matmul_dtype=dtype)).raw(
            some_z(), NONE
        )
        for dtype in ("float32", "bfloat16")
    )
    chex.assert_type(narrow, jnp.float32)
    assert 0 < float(jnp.abs(wide - narrow).max()) < 0.1


def test_networks_of_two_keys_differ_and_of_one_key_agree(small):
    first, again, other = (
        small.network(key=key).raw(some_z(), NONE) for key in (0, 0, 1)
    )
    assert jnp.array_equal(first, again) and not jnp.array_equal(first, other)


@pytest.mark.parametrize("kind", ["hypermodel", "epinet"])
def test_the_prior_is_added_to_the_raw_numbers(small, kind):
    with_prior, without = (
        small.network(kind, prior_scale=scale) for scale in (1.0, 0.0)
    )
    indices = with_prior.draw_indices(jax.random.key(1), 5)
    added = with_prior.raw(some_z(), indices) - without.raw(some_z(), indices)
    np.testing.assert_allclose(
        added, with_prior.prior_raw(some_z(), indices), atol=1e-4
    )


def test_activation_and_depth_are_as_configured(small):
    relu, silu = (
        small.network(backbone=pm.Backbone(8, 1, name)).raw(some_z(), NONE)
        for name in ("relu", "silu")
    )
    assert not jnp.allclose(relu, silu)
    body = pm.Backbone(8, depth=2).body(3, nnx.Rngs(0))
    assert [kernel.shape for kernel in body.kernels] == [(3, 8), (8, 8), (8, 8)]
    network = pm.Backbone(8, depth=2).mlp(3, 4, nnx.Rngs(0))
    assert [kernel.shape[1] for kernel in network.kernels] == [8, 8, 8, 4]


def test_a_bottleneck_is_a_linear_layer_before_the_hidden_ones():
    """Written out by hand, also in the form without a bottleneck."""
    backbone = pm.Backbone(8, depth=1, activation="silu", bottleneck=2)
    body = backbone.body(3, nnx.Rngs(0))
    assert [kernel.shape for kernel in body.kernels] == [(3, 2), (2, 8), (8, 8)]
    for i, bias in enumerate(body.biases):
        bias[...] += 0.1 * (i + 1)
    kernels = [np.asarray(kernel[...], np.float64) for kernel in body.kernels]
    narrow = some_z() @ kernels[0] + 0.1
    hidden = np.asarray(jax.nn.silu(narrow @ kernels[1] + 0.2))
    np.testing.assert_allclose(body(some_z()), hidden @ kernels[2] + 0.3, atol=1e-5)
    whole = backbone.mlp(3, 4, nnx.Rngs(0))
    assert [kernel.shape[1] for kernel in whole.kernels] == [2, 8, 8, 4]
    plain = pm.Backbone(8, depth=1, activation="silu").body(3, nnx.Rngs(0))
    assert plain.num_linear == 0 and len(plain.kernels) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_network_may_have_a_bottleneck(small, kind):
    network = small.network(kind, backbone=pm.Backbone(8, 1, bottleneck=1))
    indices = network.draw_indices(jax.random.key(2), 2)
    raw = network.raw(some_z(), indices)
    chex.assert_shape(raw, (2, 40, 6))
    chex.assert_tree_all_finite(raw)


def test_behind_a_bottleneck_only_its_combinations_matter(small):
    """A step in a direction that the first kernel does not see changes nothing."""
    network = small.network(backbone=pm.Backbone(8, 1, "silu", bottleneck=1))
    raw = network.raw(some_z(), NONE)
    kernel = np.asarray(network.body.kernels[0][...])[:, 0]
    across = np.cross(kernel, [1.0, 0.0, 0.0]).astype(np.float32)
    moved = network.raw(some_z() + 5 * across, NONE)
    np.testing.assert_allclose(moved, raw, atol=1e-4)
    along = network.raw(some_z() + 5 * kernel, NONE)
    assert float(jnp.abs(along - raw).max()) > 0.1


def test_a_bottleneck_starts_at_the_scale_of_its_inputs():
    """LeCun's, as no activation follows: variance 1 / 50, within its sampling error."""
    body = pm.Backbone(8, depth=1, bottleneck=40).body(50, nnx.Rngs(0))
    variance = float(np.var(np.asarray(body.kernels[0][...])))
    assert abs(50 * variance - 1) < 4 * np.sqrt(2 / 2000)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: pm.Backbone(activation="tanh"), "activation must be one of"),
        (lambda: pm.Backbone(depth=-1), "depth not negative"),
        (lambda: pm.Backbone(width=0), "width must be at least 1"),
        (lambda: pm.Backbone(bottleneck=0), "bottleneck must be None or at least 1"),
        (lambda: pm.Backbone(matmul_dtype="int8"), "matmul_dtype must be one of"),
        (lambda: pm.EpinetConfig(index_dim=0), "index_dim must be at least 1"),
        (lambda: pm.HypermodelConfig(hidden=()), "one width or more"),
        (lambda: pm.EpinetConfig(prior_scale=float("nan")), "prior_scale must be"),
        (lambda: pm.EnsembleConfig(num_members=0), "num_members must be at least 1"),
        (
            lambda: pm.AnchoredConfig().make(jax.random.key(0), 0),
            "one covariate or more",
        ),
    ],
)
def test_networks_that_cannot_be_are_told(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


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


class Constant(pm.Network):
    """Six numbers, whoever asks."""

    def __init__(self):
        self.numbers = nnx.Param(jnp.zeros(6))

    def encode(self, z):
        """Repeats the numbers."""
        return jnp.broadcast_to(self.numbers[...], (len(z), 6))


@dataclasses.dataclass(frozen=True)
class ConstantConfig:
    """Makes a `Constant`."""

    kind: ClassVar[str] = "constant"
    sizes: tuple[int, ...] = (1, 2)
    backbone: pm.Backbone = dataclasses.field(default_factory=pm.Backbone)

    def make(self, key, num_covariates):
        """Needs no key."""
        del key, num_covariates
        return Constant()


@pytest.fixture
def registered(monkeypatch):
    """Registers the toy network for one test."""
    monkeypatch.setattr(_network, "NETWORKS", dict(NETWORKS))
    assert pm.register_network(ConstantConfig) is ConstantConfig


def test_the_register_holds_our_six_kinds():
    assert sorted(NETWORKS) == sorted(KINDS)
    for kind, config_class in NETWORKS.items():
        assert config_class.kind == kind
        assert config_class() == config_class()
        assert hash(config_class()) == hash(config_class())
        network = nnx.eval_shape(lambda c=config_class: c().make(jax.random.key(0), 2))
        assert isinstance(network, pm.Network)


@pytest.mark.usefixtures("registered", "quick_compilation")
def test_a_network_from_outside_trains_saves_and_loads(tmp_path):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(400, 2)), rng.integers(0, 2, 400), rng.integers(0, 2, 400)
    counts = pm.rows_from_tables(table, table).counts(merge=None)
    config = ConstantConfig(sizes=(3,), backbone=pm.Backbone(width=5))
    recipe = pm.Recipe(config, pm.TrainConfig(max_steps=200, patience=None))
    model = pm.fit(jax.random.key(0), counts, recipe).model
    atoms = model.atoms(counts.z)
    # It can only learn the frequencies, and does.
    frequencies = counts.observational.sum(0) / counts.observational.sum()
    np.testing.assert_allclose(atoms.joint[0], frequencies, atol=0.03)
    model.save(tmp_path / "model")
    loaded = pm.FittedModel.load(tmp_path / "model")
    assert loaded.recipe == recipe
    chex.assert_trees_all_equal(loaded.atoms(counts.z), atoms)


@pytest.mark.usefixtures("registered", "quick_compilation")
def test_a_config_survives_json_with_its_tuples_and_dataclasses():
    config = ConstantConfig(sizes=(3, 1), backbone=pm.Backbone(width=5))
    values = json.loads(json.dumps(pm.Recipe(config).to_json()))
    assert values["network"]["kind"] == "constant"
    assert pm.Recipe.from_json(values) == pm.Recipe(config)


def test_an_unknown_kind_lists_what_is_known():
    values = pm.Recipe().to_json()
    values["network"]["kind"] = "forest"
    with pytest.raises(ValueError, match=r"one of \['anchored', .* got 'forest'"):
        pm.Recipe.from_json(values)
    values["network"] = {"kind": "anchored", "trees": 3}
    with pytest.raises(TypeError, match="trees"):
        pm.Recipe.from_json(values)


@pytest.mark.usefixtures("registered", "quick_compilation")
def test_what_cannot_be_registered_is_told():
    @dataclasses.dataclass(frozen=True)
    class Other:
        kind: ClassVar[str] = "constant"

    with pytest.raises(ValueError, match="'constant' is taken by ConstantConfig"):
        pm.register_network(Other)
    with pytest.raises(ValueError, match="must be a frozen dataclass"):
        pm.register_network(Constant)
    # The same class once more, as when a cell of a notebook runs again.
    pm.register_network(ConstantConfig)
