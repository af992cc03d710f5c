"""Kinds of networks by name: ours, and one from outside the package."""

import dataclasses
import json
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from flax import nnx
from pns_models import _network
from pns_models._network import NETWORKS

pytestmark = pytest.mark.usefixtures("quick_compilation")

KINDS = ["anchored", "s_learner", "t_learner", "hypermodel", "epinet", "ensemble"]


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
    monkeypatch.setattr(_network, "_NETWORKS", dict(_network._NETWORKS))
    monkeypatch.setattr(_network, "NETWORKS", _network._NETWORKS)
    assert pm.register_network(ConstantConfig) is ConstantConfig


def test_the_register_holds_our_six_kinds():
    assert sorted(NETWORKS) == sorted(KINDS)
    for kind, config_class in NETWORKS.items():
        assert config_class.kind == kind
        assert config_class() == config_class()
        assert hash(config_class()) == hash(config_class())
        network = nnx.eval_shape(lambda c=config_class: c().make(jax.random.key(0), 2))
        assert isinstance(network, pm.Network)
    with pytest.raises(TypeError):
        NETWORKS["forest"] = ConstantConfig


@pytest.mark.usefixtures("registered")
def test_a_network_from_outside_trains_saves_and_loads(tmp_path):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(400, 2)), rng.integers(0, 2, 400), rng.integers(0, 2, 400)
    counts = pm.counts_from_tables(table, table)
    config = ConstantConfig(sizes=(3,), backbone=pm.Backbone(width=5))
    recipe = pm.Recipe(config, pm.TrainConfig(max_steps=200, patience=None))
    model = pm.fit(jax.random.key(0), counts, recipe).model
    atoms = model.atoms(counts.z)
    # It can only learn the frequencies, and does.
    frequencies = counts.observational.sum(0) / counts.observational.sum()
    np.testing.assert_allclose(atoms.joint[0], frequencies, atol=0.03)
    model.save(tmp_path / "model")
    loaded = pm.load(tmp_path / "model")
    assert loaded.recipe == recipe
    chex.assert_trees_all_equal(loaded.atoms(counts.z), atoms)


@pytest.mark.usefixtures("registered")
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


@pytest.mark.usefixtures("registered")
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
