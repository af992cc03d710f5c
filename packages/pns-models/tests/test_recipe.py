"""Recipes: they survive JSON, hold the paper's tables, and refuse contradictions."""

import json

import jax
import pns_models as pm
import pytest


@pytest.mark.parametrize("preset", pm.PRESETS)
def test_every_preset_survives_json_and_makes_a_network(preset):
    recipe = pm.PRESETS[preset]
    assert pm.Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
    assert hash(recipe) == hash(pm.Recipe.from_json(recipe.to_json()))
    shapes = jax.eval_shape(
        lambda key, z: recipe.network.make(key, 15).raw(
            z, recipe.network.make(key, 15).draw_indices(key, 2)
        ),
        jax.random.key(0),
        jax.ShapeDtypeStruct((3, 15), "float32"),
    )
    assert shapes.shape == (2, 3, 6)


def test_paper_presets_are_those_of_the_tables():
    low, high, bootstrap = (
        pm.PRESETS[name]
        for name in ("paper_low_dim", "paper_high_dim", "paper_bootstrap")
    )
    assert (low.network.index_dim, high.network.index_dim) == (20, 18)
    assert (low.training.learning_rate, high.training.learning_rate) == (3e-4, 3e-5)
    assert (low.training.epochs, high.training.epochs) == (800, 4600)
    assert (low.network.hidden, high.network.hidden) == ((64, 64), (32, 32))
    assert (low.network.prior_scale, high.network.prior_scale) == (1.0, 1.25)
    assert (low.network.backbone.width, high.network.backbone.width) == (128, 256)
    assert bootstrap.training.batch_size == 256 and bootstrap.training.epochs == 100
    for recipe in (low, high, bootstrap):
        assert recipe.training.patience is None and recipe.training.weight_decay == 0
        assert recipe.network.backbone.depth == 3
        assert recipe.network.backbone.activation == "relu"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 5}, "epochs or max_steps must be given"),
        ({"max_steps": None}, "epochs or max_steps must be given"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"held_out_fraction": 1.0}, r"held_out_fraction must lie in \[0, 1\)"),
        (
            {"patience": 3, "held_out_fraction": 0.0},
            "held_out_fraction must be above 0",
        ),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive"),
        ({"schedule": "linear"}, "schedule must be one of .*'cosine'.* got 'linear'"),
        ({"data_noise": "normal"}, "data_noise must be one of .*'exponential'"),
    ],
)
def test_settings_that_contradict_are_told(change, message):
    with pytest.raises(ValueError, match=message):
        pm.TrainConfig(**change)
