"""The deviation of draws against the sandwich standard error of a linear model.

Features that are linear in z make the joint law a multinomial logit, whose estimator has
a known sandwich covariance. Exponential weights are a bootstrap of it. An index of
dimension d gives standard deviations with a relative noise of sqrt(1 / (2 d)).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from scipy import optimize

N = 6000
POINTS = np.array([[a, b] for a in (-1, 0, 1) for b in (-1, 0, 1)], np.float32)
LINEAR = pm.Backbone(width=8, depth=0)


def draw_tables():
    rng = np.random.default_rng(0)
    z = rng.integers(-1, 2, (2, N, 2)).astype(np.float32)
    logits = np.array([[0, 0, 0], [0.3, 0.5, -0.4], [-0.2, -0.6, 0.3], [0.1, 0.4, 0.5]])
    p = np.exp(logits[:, 0] + z[0] @ logits[:, 1:].T)
    cell = (rng.random((N, 1)) > (p / p.sum(1, keepdims=True)).cumsum(1)).sum(1)
    arm = rng.integers(0, 2, N)
    rate = 1 / (1 + np.exp(-(0.2 + 0.5 * z[1, :, 0] + 0.4 * arm)))
    y = (rng.random(N) < rate).astype(int)
    return (z[0], cell // 2, cell % 2), (z[1], arm, y)


def logit_probabilities(theta, z):
    theta = theta.reshape(3, 3)
    free = theta[:, 0] + z @ theta[:, 1:].T
    return jax.nn.log_softmax(jnp.concatenate([jnp.zeros((len(z), 1)), free], axis=1))


def sandwich(z, x, y):
    """Fits the multinomial logit and returns estimates and standard errors [9, 4]."""
    cell = 2 * x + y
    with jax.enable_x64(True):

        def losses(theta):
            return -logit_probabilities(theta, jnp.asarray(z, float))[
                jnp.arange(len(z)), cell
            ]

        mean = jax.jit(lambda theta: losses(theta).mean())
        gradient = jax.jit(jax.grad(lambda theta: losses(theta).mean()))
        found = optimize.minimize(mean, np.zeros(9), jac=gradient, tol=1e-10)
        theta = jnp.asarray(found.x)
        scores = jax.jacobian(losses)(theta)
        bread = jnp.linalg.inv(jax.hessian(mean)(theta))
        covariance = bread @ (scores.T @ scores / len(z)) @ bread / len(z)

        def probabilities(theta):
            return jnp.exp(logit_probabilities(theta, jnp.asarray(POINTS, float)))

        slopes = jax.jacobian(probabilities)(theta)
        errors = jnp.sqrt(jnp.einsum("pci,ij,pcj->pc", slopes, covariance, slopes))
        return np.asarray(probabilities(theta)), np.asarray(errors)


@pytest.fixture(scope="module")
def problem():
    observational, experimental = draw_tables()
    counts = pm.counts_from_tables(observational, experimental)
    assert len(counts.z) == 9
    return counts, *sandwich(*observational)


def fit_and_draw(counts, network, **training):
    config = pm.TrainConfig(
        weight_decay=0.0,
        batch_size=None,
        held_out_fraction=0.0,
        patience=None,
        eval_every=500,
        schedule="cosine",
        **training,
    )
    model = pm.fit(jax.random.key(1), counts, pm.Recipe(network, config)).model
    draws = model.draws(jax.random.key(2), POINTS, 1000)
    return model.atoms(POINTS), draws.joint.reshape(1000, 9, 4).std(0)


def rms(values) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.slow
def test_a_hypermodel_with_exponential_noise_has_the_sandwich_error(problem):
    counts, estimate, errors = problem
    network = pm.HypermodelConfig(LINEAR, index_dim=40, prior_scale=0.0)
    atoms, deviation = fit_and_draw(
        counts,
        network,
        data_noise="exponential",
        learning_rate=3e-3,
        max_steps=6000,
        num_indices=32,
    )
    assert np.abs(atoms.joint.reshape(9, 4) - estimate).max() < 0.5 * errors.max()
    noise = np.sqrt(1 / (2 * 40))  # 0.11; the points share it, so allow two of them
    assert abs(rms(deviation) / rms(errors) - 1) < 2 * noise
    assert 0.5 < (deviation / errors).min() and (deviation / errors).max() < 1.5


@pytest.mark.slow
def test_a_hypermodel_without_noise_or_prior_collapses(problem):
    counts, _, errors = problem
    network = pm.HypermodelConfig(LINEAR, index_dim=40, prior_scale=0.0)
    _, deviation = fit_and_draw(
        counts, network, learning_rate=3e-3, max_steps=3000, num_indices=16
    )
    assert rms(deviation) < 0.25 * rms(errors)


@pytest.mark.slow
def test_an_ensemble_with_exponential_weights_has_the_sandwich_error(problem):
    counts, estimate, errors = problem
    network = pm.EnsembleConfig(LINEAR, num_members=60)
    atoms, deviation = fit_and_draw(
        counts, network, data_noise="exponential", learning_rate=1e-2, max_steps=2000
    )
    assert np.abs(atoms.joint.reshape(9, 4) - estimate).max() < errors.max()
    assert abs(rms(deviation) / rms(errors) - 1) < 2 * np.sqrt(1 / (2 * 60))
