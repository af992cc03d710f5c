"""The high-dimensional model against loops over its formulas and simulated units."""

import dataclasses
import itertools
import math

import chex
import jax
import numpy as np
import pns_bounds as pb
import pns_dgp
import pytest
from pns_dgp import _acic


def sigmoid(t: float) -> float:
    return 1 / (1 + math.exp(-t))


def slow_truth(model: _acic.AcicModel, z):
    """Loops over the hidden values and evaluates eq:treatment-model, eq:outcome-model."""
    k = len(model.hidden_probs)
    cells = np.zeros((2, 2, 2))
    least = model.epsilon + model.gamma
    index = model.propensity_intercept + sum(model.propensity_slope * z)
    p = least + (1 - 2 * least) * sigmoid(index)
    for h in itertools.product((0, 1), repeat=k):
        weight = 1.0
        for j in range(k):
            weight *= model.hidden_probs[j] if h[j] else 1 - model.hidden_probs[j]
        d = [h[j] - model.hidden_probs[j] for j in range(k)]
        p_x = p + model.gamma * sum(model.alpha[j] * d[j] for j in range(k))
        assert model.epsilon <= p_x <= 1 - model.epsilon  # so the clip never binds
        p_y = []
        for x in (0, 1):
            logit = model.intercept[x] + sum(model.slope[x] * z)
            for j in range(k):
                logit += model.hidden_effect[x, j] * d[j]
                logit += model.modulation[x, j] * d[j] * sum(model.modulator[x, j] * z)
                for m in range(j + 1, k):
                    logit += model.hidden_pairs[x, j, m] * d[j] * d[m]
            p_y.append(sigmoid(logit))
        # The threshold eta falls between the breakpoints 0, p, p', 1.
        points = sorted([0.0, *p_y, 1.0])
        for low, high in itertools.pairwise(points):
            eta = (low + high) / 2
            y0, y1 = int(eta <= p_y[0]), int(eta <= p_y[1])
            cells[1, y0, y1] += weight * p_x * (high - low)
            cells[0, y0, y1] += weight * (1 - p_x) * (high - low)
    return cells, p


def small_model(**changes) -> _acic.AcicModel:
    """Three distinct units to be drawn from, four covariates."""
    rows = np.array([[0.0, 1, -2, 3], [1, -1, 2, 0], [-1, 0, 0, -3]])
    settings = {"seed": 3, "gamma": 0.3, "num_active": 3, **changes}
    return pns_dgp.acic_model(covariates=rows, **settings)


@pytest.mark.parametrize("num_hidden", [0, 1, 5])
def test_the_oracle_is_the_sum_over_hidden_values(num_hidden):
    model = small_model(num_hidden=num_hidden)
    z = np.random.default_rng(1).normal(size=(10, 4))
    truth = model.oracle(z)
    for row in range(len(z)):
        cells, p = slow_truth(model, z[row])
        expected = pns_dgp.truth_from_cells(cells[None])
        for have, want in zip(
            jax.tree.leaves(truth), jax.tree.leaves(expected), strict=True
        ):
            np.testing.assert_allclose(have[row], want[0], atol=1e-13)
        np.testing.assert_allclose(truth.atoms.joint[row, 1].sum(), p, atol=1e-14)
        np.testing.assert_allclose(model.propensity(z[row : row + 1]), p, atol=1e-14)


@pytest.mark.parametrize("source", pns_dgp.SOURCES)
def test_the_oracle_agrees_with_simulated_units(source):
    model = small_model()
    units = model.sample_population(jax.random.key(1), 400_000)
    table = model.sample(jax.random.key(2), 400_000, source)
    kinds = np.unique(units.z, axis=0)
    assert len(kinds) == 3
    truth = model.oracle(kinds)
    limit = 4.5  # standard errors; about 50 comparisons with fixed seeds
    for row, z in enumerate(kinds):
        here = np.all(units.z == z, axis=1)
        y0, y1 = units.y0[here], units.y1[here]
        n = here.sum()
        for hits, p in (
            (units.x[here], truth.atoms.joint[row, 1].sum()),
            (y0, truth.atoms.mu[row, 0]),
            (y1, truth.atoms.mu[row, 1]),
            ((y1 == 1) & (y0 == 0), truth.pns[row]),
            ((y1 == 0) & (y0 == 1), truth.harm[row]),
        ):
            assert abs(hits.mean() - p) <= limit * math.sqrt(p * (1 - p) / n)
        there = np.all(table.z == z, axis=1)
        if source == "experimental":
            assert abs(table.x[there].mean() - 0.5) < limit * 0.5 / math.sqrt(
                there.sum()
            )
        for arm, y in np.ndindex(2, 2):
            if source == "observational":
                hits = (table.x[there] == arm) & (table.y[there] == y)
                p = truth.atoms.joint[row, arm, y]
            else:
                hits = table.y[there & (table.x == arm)] == y
                p = truth.atoms.mu[row, arm] if y else 1 - truth.atoms.mu[row, arm]
            assert abs(hits.mean() - p) <= limit * math.sqrt(p * (1 - p) / len(hits))


def test_the_default_model_is_valid_confounded_and_thin_in_overlap():
    model = pns_dgp.acic_model()
    table = model.sample(jax.random.key(0), 30_000, "observational")
    truth = model.oracle(table.z)
    assert np.all(pb.compatibility_slack(truth.atoms) >= 0)
    assert np.all(truth.interval.lower <= truth.pns)
    assert np.all(truth.pns <= truth.interval.upper)
    p = model.propensity(table.z)
    assert 0.07 <= p.min() < 0.08 and 0.92 < p.max() <= 0.93
    thin = np.mean((p < 0.15) | (p > 0.85))
    assert 0.1 < thin < 0.25
    # Confounding: P(Y=1 | X=x, z) is not mu_x(z).
    naive = pb.identify_under_exogeneity(truth.atoms.joint)
    assert np.mean(np.abs(naive - truth.atoms.mu)) > 0.008


def test_gamma_and_overlap_do_what_they_say():
    z = pns_dgp.acic_model().sample_population(jax.random.key(0), 5000).z
    gaps, deviations = [], []
    for gamma in (0.0, 0.1, 0.3):
        truth = pns_dgp.acic_model(gamma=gamma).oracle(z)
        naive = pb.identify_under_exogeneity(truth.atoms.joint)
        gaps.append(np.abs(naive - truth.atoms.mu).mean())
    assert gaps[0] < 1e-12 < gaps[1] < gaps[2]
    for strength in (0.0, 0.5, 1.0):
        truth = pns_dgp.acic_model(hidden_strength=strength).oracle(z)
        naive = pb.identify_under_exogeneity(truth.atoms.joint)
        gaps.append(np.abs(naive - truth.atoms.mu).mean())
    assert gaps[3] < 1e-12 < gaps[4] < gaps[5]
    for overlap in (0.0, 1.0, 5.0):
        deviations.append(pns_dgp.acic_model(overlap=overlap).propensity(z).std())
    assert deviations[0] > deviations[1] > deviations[2]


def test_rows_do_not_depend_on_their_number_nor_on_the_source_of_another():
    model = pns_dgp.acic_model()
    key = jax.random.key(4)
    few, many = (model.sample(key, n, "observational") for n in (10, 9000))
    chex.assert_trees_all_equal(jax.tree.map(lambda long: long[:10], many), few)
    other = model.sample_population(jax.random.key(12), 10)
    units = model.sample_population(key, 10)
    assert not np.any(np.all(other.z == units.z, axis=1))
    trial = model.sample(key, 10, "experimental")
    assert not np.any(np.all(trial.z == few.z, axis=1))
    again = model.sample(key, 10, "experimental")
    np.testing.assert_array_equal(trial.z, again.z)


def test_wrong_arguments_raise():
    model = small_model()
    key = jax.random.key(0)
    with pytest.raises(pb.InputError, match="source must be in"):
        model.sample(key, 10, "trial")
    with pytest.raises(pb.InputError, match="at least 1"):
        model.sample(key, 0, "observational")
    with pytest.raises(pb.InputError, match=r"shape \[n, 4\].*got \[2, 3\]"):
        model.oracle(np.zeros((2, 3)))
    with pytest.raises(pb.InputError, match=r"gamma \+ epsilon must be less than 0.5"):
        small_model(gamma=0.49, epsilon=0.05)
    with pytest.raises(pb.InputError, match="row 1, column 2: nan"):
        model.oracle([[0, 0, 0, 0], [0, 0, np.nan, 0]])
    with pytest.raises(pb.InputError, match="one typed key"):
        model.sample_population(jax.random.split(key, 3), 5)
    with pytest.raises(pb.InputError, match="loop over keys"):
        jax.vmap(lambda k: model.sample_population(k, 5))(jax.random.split(key, 3))
    with pytest.raises(pb.InputError, match="num_hidden must be at most 20, got 21"):
        small_model(num_hidden=21).oracle(np.zeros((1, 4)))
    for field, value, message in (
        ("alpha", np.full(5, 0.3), "absolute sum at most 1"),
        ("hidden_pairs", np.ones((2, 5, 5)), "j < l only"),
        ("hidden_probs", np.ones(5), "hidden_probs must lie inside"),
        ("epsilon", 0.0, "epsilon must be positive"),
        ("slope", np.zeros((2, 3)), r"slope must be finite numbers of shape \[2, 4\]"),
    ):
        with pytest.raises(pb.InputError, match=message):
            dataclasses.replace(model, **{field: value})
    with pytest.raises(pb.InputError, match="num_active must be between 1 and 4"):
        small_model(num_active=5)
    with pytest.raises(pb.InputError, match="overlap must not be negative"):
        small_model(overlap=-1)
