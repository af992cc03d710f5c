"""The deviation of draws against the sandwich standard error of a linear model.

Features that are linear in z make the joint law a multinomial logit, whose estimator has
a known sandwich covariance. Exponential weights are a bootstrap of it. An index of
dimension d gives standard deviations with a relative noise of sqrt(1 / (2 d)).
"""

import jax
import numpy as np
import pns_models as pm
import pytest

N = 6000
POINTS = np.array([[a, b] for a in (-1, 0, 1) for b in (-1, 0, 1)], np.float32)
LINEAR = pm.Backbone(width=8, depth=0)
HYPERMODEL = pm.HypermodelConfig(LINEAR, 40, hidden=(32,), prior_scale=0.0)


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


def logit_probabilities(theta, design):
    """Computes probabilities [n, 4] of a multinomial logit; the first cell is the base."""
    free = design @ theta.reshape(3, 3).T
    weights = np.exp(np.concatenate([np.zeros((len(free), 1)), free], axis=1))
    return weights / weights.sum(1, keepdims=True)


def slopes_of_cells(p, design):
    """Differentiates probabilities [n, 4] by the nine coefficients: [n, 4, 9]."""
    by_logit = p[:, :, None] * (np.eye(4)[:, 1:] - p[:, None, 1:])  # [n, 4, 3]
    return np.einsum("ncf,nd->ncfd", by_logit, design).reshape(len(p), 4, 9)


def sandwich(z, x, y):
    """Fits the multinomial logit; returns estimates and standard errors [9, 4]."""
    design, points = (
        np.concatenate([np.ones((len(rows), 1)), rows], axis=1) for rows in (z, POINTS)
    )
    happened = np.eye(4)[2 * x + y][:, 1:]
    theta = np.zeros(9)
    for _ in range(8):  # Newton's method
        p = logit_probabilities(theta, design)
        scores = np.einsum("nf,nd->nfd", happened - p[:, 1:], design).reshape(-1, 9)
        slopes = slopes_of_cells(p, design)[:, 1:].reshape(-1, 3, 9)
        hessian = np.einsum("nfi,nd->fdi", slopes, design).reshape(9, 9)
        theta = theta + np.linalg.solve(hessian, scores.sum(0))
    assert np.abs(scores.sum(0)).max() < 1e-6
    bread = np.linalg.inv(hessian)
    covariance = bread @ (scores.T @ scores) @ bread
    p = logit_probabilities(theta, points)
    slopes = slopes_of_cells(p, points)
    return p, np.sqrt(np.einsum("pci,ij,pcj->pc", slopes, covariance, slopes))


@pytest.fixture(scope="module")
def problem():
    observational, experimental = draw_tables()
    counts = pm.rows_from_tables(observational, experimental).counts(merge=None)
    assert len(counts.z) == 9
    return counts, *sandwich(*observational)


def fit_and_draw(counts, network, **training):
    """Trains to the end; returns the estimate, and the deviation of draws [9, 4]."""
    settings = {
        "learning_rate": 5e-3,
        "weight_decay": 0.0,
        "schedule": "cosine",
        "batch_size": None,
        "max_steps": 3000,
        "held_out_fraction": 0.0,
        "patience": None,
        "eval_every": 1000,
        "num_indices": 16,
    }
    config = pm.TrainConfig(**{**settings, **training})
    model = pm.fit(jax.random.key(1), counts, pm.Recipe(network, config)).model
    draws = model.draws(jax.random.key(2), POINTS, 1000)
    return model.atoms(POINTS), draws.joint.reshape(1000, 9, 4).std(0)


def rms(values) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.slow
def test_a_hypermodel_with_exponential_noise_has_the_sandwich_error(problem):
    counts, estimate, errors = problem
    atoms, deviation = fit_and_draw(counts, HYPERMODEL, data_noise="exponential")
    assert np.abs(atoms.joint.reshape(9, 4) - estimate).max() < 0.5 * errors.max()
    noise = np.sqrt(1 / (2 * 40))  # 0.11; the points share it, so allow two of them
    assert abs(rms(deviation) / rms(errors) - 1) < 2 * noise
    assert 0.5 < (deviation / errors).min() and (deviation / errors).max() < 1.5


@pytest.mark.slow
def test_a_hypermodel_without_noise_or_prior_collapses(problem):
    counts, _, errors = problem
    _, deviation = fit_and_draw(counts, HYPERMODEL, data_noise="none")
    assert rms(deviation) < 0.25 * rms(errors)


@pytest.mark.slow
def test_an_ensemble_with_exponential_weights_has_the_sandwich_error(problem):
    counts, estimate, errors = problem
    network = pm.EnsembleConfig(LINEAR, num_members=60)
    atoms, deviation = fit_and_draw(
        counts, network, data_noise="exponential", learning_rate=2e-2, max_steps=800
    )
    assert np.abs(atoms.joint.reshape(9, 4) - estimate).max() < errors.max()
    assert abs(rms(deviation) / rms(errors) - 1) < 2 * np.sqrt(1 / (2 * 60))
