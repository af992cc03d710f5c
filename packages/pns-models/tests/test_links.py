"""The loss: the mean negative log-likelihood of each source, whoever shares a row."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from flax import nnx
from pns_models._data import flat_weights
from pns_models._links import free_numbers, loss_by_index
from scipy import special

LINK = "anchored"


@jax.jit
def compiled_loss(raw, weights, totals):
    return loss_by_index(raw, weights, totals, LINK)


@pytest.mark.parametrize("kind", ["anchored", "s_learner", "ensemble"])
def test_counts_and_rows_have_the_same_loss_and_gradient(small, kind):
    tables = small.tables(600, 400)
    network = small.network(kind)
    structure, params = nnx.split(network, nnx.Param)
    indices = network.training_indices(jax.random.key(1), 2)

    def loss(params, z, weights):
        raw = nnx.merge(structure, params).raw(z, indices)
        totals = jnp.array([600.0, 400.0])
        return loss_by_index(raw, weights, totals, network.link, True).mean()

    value_and_grad = jax.jit(jax.value_and_grad(loss))
    by_rows, merged = (
        value_and_grad(params, counts.z, flat_weights(counts))
        for counts in (
            pm.rows_from_tables(*tables).counts(merge=False),
            pm.rows_from_tables(*tables).counts(),
        )
    )
    np.testing.assert_allclose(by_rows[0], merged[0], rtol=1e-5)
    chex.assert_trees_all_close(by_rows[1], merged[1], atol=2e-6)


def test_the_loss_is_the_mean_negative_log_likelihood_of_each_source(small):
    tables = small.tables(50, 30)
    counts = pm.rows_from_tables(*tables).counts()
    raw = np.random.default_rng(0).normal(size=(1, len(counts.z), 6))
    loss = compiled_loss(raw, flat_weights(counts), np.array([50.0, 30.0]))
    joint, mu = jax.tree.map(np.asarray, pm.atoms_from_raw(jnp.asarray(raw[0]), LINK))
    expected = 0.0
    for source, (z, x, y) in enumerate(tables):
        for row in range(len(z)):
            (where,) = np.flatnonzero(np.all(counts.z == z[row], axis=1))
            if source == 0:
                expected -= np.log(joint[where, x[row], y[row]]) / 50
            else:
                p = mu[where, x[row]]
                expected -= np.log(p if y[row] else 1 - p) / 30
    np.testing.assert_allclose(loss[0], expected, rtol=1e-5)


def test_weights_may_differ_by_index():
    rng = np.random.default_rng(0)
    raw, weights = rng.normal(size=(3, 7, 6)), rng.random((3, 7, 8))
    totals = np.array([4.0, 5.0])
    together = compiled_loss(raw, weights, totals)
    for i in range(3):
        alone = compiled_loss(raw[i : i + 1], weights[i], totals)
        np.testing.assert_allclose(together[i], alone[0], rtol=1e-5)


def experimental_gradient(small, training: bool):
    """Differentiates the loss of experimental units alone."""
    structure, params = nnx.split(small.network(), nnx.Param)
    weights = jnp.concatenate([jnp.zeros((40, 4)), jnp.ones((40, 4))], axis=1)
    z = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)

    @jax.jit
    @jax.grad
    def gradient(params):
        raw = nnx.merge(structure, params).raw(z, jnp.zeros((1, 0)))
        totals = jnp.array([1.0, 160.0])
        return loss_by_index(raw, weights, totals, "anchored", training).mean()

    return gradient(params)


def largest(tree) -> float:
    return max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(tree))


def test_the_experimental_loss_trains_the_body_but_not_the_joint_head(small):
    gradient = experimental_gradient(small, training=True)
    assert largest(gradient["joint_head"]) == 0
    assert largest(gradient["delta_head"]) > 0
    assert largest(gradient["body"]) > 0
    assert largest(experimental_gradient(small, training=False)["joint_head"]) > 0


def test_logits_of_any_size_are_laws():
    """Differences of 148 in float32 have sums that are not one."""
    rng = np.random.default_rng(0)
    raw = rng.normal(0, 1, (1000, 6)).astype(np.float32)
    raw *= np.array([[1.0], [100.0], [1e4], [1e6]], np.float32).repeat(250, axis=0)
    free = free_numbers(raw)
    assert np.isfinite(free).all()
    law = np.exp(free[:, :4].astype(float))
    np.testing.assert_allclose(law.sum(axis=1), 1, atol=1e-5)
    mu = special.expit(free[:, 4:].astype(float))
    assert np.all(mu >= law[:, [1, 3]] - 1e-5)
    assert np.all(mu <= 1 - law[:, [0, 2]] + 1e-5)
