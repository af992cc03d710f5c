"""Hypermodels that start as those of the ENN library."""

import json

import jax
import numpy as np
import pns_models as pm
import pytest
from flax import nnx
from pns_models._hypermodel import cut_normal, fan_average_normal, output_layer
from scipy import stats


def make_network(key=0, **changes):
    config = pm.HypermodelConfig(pm.Backbone(width=32, depth=2), **changes)
    return config.make(jax.random.key(key), 3)


def deviations(network):
    """Returns standard deviations of learner and prior, over rows and over indices."""
    z = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    indices = network.draw_indices(jax.random.key(9), 300)
    prior = np.asarray(network.prior_raw(z, indices))
    learner = np.asarray(network.raw(z, indices)) - prior
    return [
        (raw.std(axis=1).mean(), raw.std(axis=0).mean()) for raw in (learner, prior)
    ]


@pytest.mark.slow
def test_prior_and_learner_start_constant_in_z_and_half_a_logit_apart():
    """Averaged over four networks; other starts vary over z as much as over indices."""
    measured = np.mean(
        [deviations(make_network(key, initialization="enn")) for key in range(4)],
        axis=0,
    )
    for over_z, over_index in measured:
        assert over_z < 0.02 and 0.4 < over_index < 0.8
    (over_z, _), (prior_over_z, _) = deviations(make_network())
    assert over_z > 0.1 and prior_over_z > 0.3


def test_the_deviation_over_indices_is_what_the_scales_imply():
    """By hand: an output bias is a sum of 64 body outputs, whose variance is known.

    ReLU of N(0, v) has variance v (1/2 - 1/(2 pi)); a cut kernel keeps c = 0.774 of the
    variance of its inputs; the average of fans of one number in a head of 4 is 34.
    """
    cut = stats.truncnorm(-2, 2).var()
    body = cut * (1 / 2 - 1 / (2 * np.pi)) * cut
    expected = np.sqrt(64 * body / ((64 + 4) / 2))
    # Heads add what features of variance near 1/5 add: a few percent.
    measured = []
    for key in range(8):
        network = make_network(key, initialization="enn", prior_scale=0.0)
        indices = network.draw_indices(jax.random.key(9), 300)
        raw = np.asarray(network.raw(np.zeros((1, 3), np.float32), indices))
        measured.append(raw[:, 0, :4].var(axis=0))
    # 32 numbers, each a sum of 64: a relative error of the mean variance near a tenth.
    assert abs(np.sqrt(np.mean(measured)) / expected - 1) < 0.2


@pytest.mark.parametrize("shape", [(64, 512), (32, 4), (300,)])
def test_the_fan_average_normal_has_the_scale_of_the_initializer_of_jax(shape):
    """Two routes: JAX's initializer for kernels, SciPy's truncated normal for all."""
    drawn = np.concatenate(
        [np.ravel(fan_average_normal(jax.random.key(k), shape)) for k in range(100)]
    )
    variance = 2 / (shape[0] + shape[-1])
    sd = np.sqrt(variance) / stats.truncnorm(-2, 2).std()
    # The variance of a square of this law is below that of a normal's, 2 variance^2.
    assert abs(drawn.var() / variance - 1) < 4 * np.sqrt(2 / len(drawn))
    assert np.abs(drawn).max() <= 2 * sd * (1 + 1e-6)
    assert (
        stats.kstest(drawn[:5000], stats.truncnorm(-2, 2, scale=sd).cdf).pvalue > 1e-3
    )
    if len(shape) == 2:
        of_jax = jax.nn.initializers.variance_scaling(
            1.0, "fan_avg", "truncated_normal"
        )
        expected = np.asarray(of_jax(jax.random.key(3), shape))
        np.testing.assert_allclose(
            fan_average_normal(jax.random.key(3), shape), expected, rtol=1e-5
        )


def test_the_kernels_of_the_body_are_cut_and_not_scaled_up_again():
    kernel = np.asarray(cut_normal(jax.random.key(0), (50, 400)))
    expected = stats.truncnorm(-2, 2).var() / 50
    assert abs(kernel.var() / expected - 1) < 4 * np.sqrt(2 / kernel.size)


def test_generated_kernels_are_divided_by_the_root_of_their_fan_in():
    kernel, bias, scale = output_layer(jax.random.key(0), 16, (25, 6))
    assert kernel.shape == (16, 150) and bias.shape == (150,)
    np.testing.assert_allclose(scale, 1 / 5)
    np.testing.assert_array_equal(output_layer(jax.random.key(0), 16, (6,))[2], 1)


def test_a_generated_vector_is_written_out_by_hand():
    """The last layer of the body has no activation after it."""
    learner = make_network(hidden=(7, 5), initialization="enn").learner
    index = np.random.default_rng(0).normal(size=20)
    first, second = (np.asarray(k[...], np.float64) for k in learner.body.kernels)
    hidden = np.maximum(index @ first, 0) @ second
    assert hidden.min() < 0
    vector = hidden @ np.asarray(learner.kernel[...]) + np.asarray(learner.bias[...])
    vector *= np.asarray(learner.scale[...])
    np.testing.assert_allclose(learner(index.astype(np.float32)), vector, atol=1e-5)


def test_the_scale_and_the_prior_do_not_learn():
    network = make_network(initialization="enn")
    _, learning, fixed = nnx.split(network, nnx.Param, ...)
    assert "prior" not in learning and set(learning["learner"]) == {
        "body",
        "kernel",
        "bias",
    }
    assert set(fixed["learner"]) == {"scale"}


def test_the_initialization_survives_json_and_a_model_of_it_is_saved(tmp_path, small):
    config = small.config("hypermodel", initialization="enn")
    recipe = pm.Recipe(config)
    assert pm.Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
    scale = pm.Standardizer(
        np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(3, bool)
    )
    model = pm.FittedModel(config.make(jax.random.key(0), 3), recipe, scale)
    model.save(tmp_path / "model")
    z = small.covariates()[:5]
    np.testing.assert_array_equal(
        pm.FittedModel.load(tmp_path / "model").atoms(z).mu, model.atoms(z).mu
    )


def test_recipes_without_the_field_are_read_as_before(small):
    values = pm.Recipe(small.config("hypermodel")).to_json()
    del values["network"]["initialization"]
    assert pm.Recipe.from_json(values).network.initialization == "network"
    with pytest.raises(ValueError, match="initialization must be one of"):
        pm.HypermodelConfig(initialization="he")
