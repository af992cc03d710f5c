"""The bootstrap against closed forms; how it reports; what it compiles."""

import dataclasses
import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_infer as pi
import pytest
from bootstrap_examples import (
    ANCHORED,
    LOGISTIC,
    anchored_config,
    anchored_data,
    anchored_features,
    anchored_frozen_nll,
    anchored_head,
    column_sizes,
    dense_curvature,
    dense_scores,
    logistic_data,
    solve_anchored,
)
from pns_infer import _cells

EXACT = pi.SolveConfig(damping=0.0, tolerance=1e-5, draws_per_batch=1000)


def sandwich(design, counts, beta):
    """Closed form: H^-1 S H^-1 with S the sum of squared scores of units."""
    p = 1 / (1 + np.exp(-design @ beta))
    units = counts.sum(axis=1)
    hessian = design.T @ (design * (units * p * (1 - p))[:, None])
    squares = counts[:, 1] * (1 - p) ** 2 + counts[:, 0] * p**2
    meat = design.T @ (design * squares[:, None])
    inverse = np.linalg.inv(hessian)
    return inverse @ meat @ inverse


@pytest.mark.parametrize("curvature", ["hessian", "ggn", "estimating_equation"])
def test_draws_of_a_logistic_model_have_the_sandwich_covariance(curvature):
    """4,000 draws: a standard deviation is known to 1.1%."""
    z, counts, params, design, beta = logistic_data()
    config = dataclasses.replace(EXACT, curvature=curvature)
    result = pi.solve_bootstrap(
        jax.random.key(0), LOGISTIC, params, z, counts, 4000, config
    )
    assert np.max(result.residuals) < 1e-4
    points = np.array([[0, 0], [1, 1], [-1, 2]], np.float32)
    drawn = result.draws(points)[..., 0]
    at = np.column_stack([np.ones(3), points])
    expected = at @ sandwich(design, counts, beta) @ at.T
    np.testing.assert_allclose(
        drawn.std(0) / np.sqrt(np.diag(expected)), 1, atol=4 * 0.0112
    )
    np.testing.assert_allclose(
        np.corrcoef(drawn.T),
        expected / np.sqrt(np.outer(np.diag(expected), np.diag(expected))),
        atol=4 * 0.016,
    )
    np.testing.assert_allclose(drawn.mean(0), at @ beta, atol=0.02)


def test_a_cell_of_many_units_is_as_good_as_many_cells():
    """The same solves; the multipliers differ, so standard errors agree in law."""
    z, counts, params, *_ = logistic_data(60)
    cell, column = (np.repeat(i, counts.ravel().astype(int)) for i in _indices(counts))
    single = (z[cell], np.eye(2)[column])
    config = dataclasses.replace(EXACT, rows_per_batch=50)
    errors = [
        pi.solve_bootstrap(
            jax.random.key(0), LOGISTIC, params, *data, 3000, config
        ).shifts.std(axis=0)
        for data in ((z, counts), single)
    ]
    assert len(single[0]) == counts.sum()
    np.testing.assert_allclose(errors[0] / errors[1], 1, atol=4 * 0.018)


def _indices(counts):
    return (index.ravel() for index in np.indices(counts.shape))


def test_shifts_solve_the_dense_system():
    result = solve_anchored()
    _, z, counts = anchored_data()
    matrix = dense_curvature("ggn") + 0.05 * np.eye(result.shifts.shape[1])
    for draw, shift in enumerate(result.shifts):
        normals = _cells.multipliers(result.key, result.cells, draw)[: len(z)]
        weights = np.sqrt(counts) * normals / column_sizes()
        scores = np.einsum("nc,ncp->p", weights, dense_scores())
        np.testing.assert_allclose(shift, -np.linalg.solve(matrix, scores), atol=1e-4)


def test_the_last_layer_equals_the_full_scope_of_a_model_that_is_one_layer():
    params, z, counts = anchored_data()
    head = pi.BootstrapProblem(anchored_head, frozen_nll=anchored_frozen_nll)
    features = anchored_features(params[0], z)
    full = pi.solve_bootstrap(
        jax.random.key(3), head, params[1], features, counts, 4, anchored_config()
    )
    last = solve_anchored("last_layer")
    np.testing.assert_allclose(last.shifts, full.shifts, atol=1e-3)


def test_each_source_is_divided_by_its_own_size():
    """Ten times the experiment: its share of the noise falls by the root of ten.

    With its scores alone in the outputs of delta, whose curvature does not change.
    """
    params, z, counts = anchored_data()
    config = pi.SolveConfig(damping=0.02, draws_per_batch=500)
    errors = []
    for factor in (1, 10):
        units = counts * np.where(np.arange(8) < 4, 1, factor)
        result = pi.solve_bootstrap(
            jax.random.key(0), ANCHORED["last_layer"], params, z, units, 2000, config
        )
        errors.append(result.draws(z[:5]).std(axis=0))
    ratio = errors[0] / errors[1]
    np.testing.assert_allclose(ratio[:, 4:], np.sqrt(10), rtol=0.1)
    np.testing.assert_allclose(ratio[:, :4], 1, rtol=0.1)


def test_a_solve_that_did_not_converge_says_what_to_try():
    with pytest.warns(pi.NotConvergedWarning, match="100% of 4 solves") as caught:
        result = solve_anchored(damping=1e-6, max_iterations=1)
    assert caught[0].filename.endswith("bootstrap_examples.py")  # who called
    assert not result.converged
    assert result.status is pi.SolveStatus.MAX_ITERATIONS
    assert result.message == str(caught[0].message)
    assert result.message.endswith("take more damping or more max_iterations.")
    assert result.residuals.shape == (4,) and result.residuals.max() > 0.01


def test_solves_that_converged_say_so_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = solve_anchored()
    assert result.converged and result.status is pi.SolveStatus.CONVERGED
    assert result.message.startswith("all 4 solves reached 0.001 (worst relative")
    assert "array" not in repr(result) and len(repr(result)) < 1000
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.shifts = result.shifts * 2


def test_the_status_of_a_direct_solve_does_not_ask_for_iterations():
    result = solve_anchored("last_layer")
    bad = dataclasses.replace(result, residuals=np.array([0, 0, 0, 0.5]))
    assert bad.status is pi.SolveStatus.ILL_CONDITIONED
    assert bad.message.startswith("25% of 4") and "iterations" not in bad.message
    lost = dataclasses.replace(result, residuals=np.array([0, 0, 0, np.nan]))
    assert lost.status is pi.SolveStatus.NOT_FINITE and "finite" in lost.message


def test_more_draws_leave_the_earlier_ones_unchanged():
    few, more = solve_anchored(), solve_anchored(num_draws=6)
    np.testing.assert_allclose(few.shifts, more.shifts[:4], atol=1e-5)
    assert few.num_draws == 4 and more.num_draws == 6


def test_covariates_of_any_type_are_numbers():
    """Source sizes must not take the type of z: 0/1 columns often are booleans."""
    z, counts, params, *_ = logistic_data()
    config = pi.SolveConfig(tolerance=1e-5)
    shifts = [
        pi.solve_bootstrap(
            jax.random.key(0),
            LOGISTIC,
            params,
            (z > 0).astype(kind),
            counts.astype(int),
            50,
            config,
        ).shifts
        for kind in (bool, np.int8, np.float32)
    ]
    chex.assert_trees_all_close(*shifts, rtol=1e-4, atol=1e-5)


def test_a_single_draw_is_refused():
    z, counts, params, *_ = logistic_data()
    with pytest.raises(ValueError, match="num_draws must be at least 2"):
        pi.solve_bootstrap(jax.random.key(0), LOGISTIC, params, z, counts, 1)


@pytest.mark.parametrize("scope", ["full", "last_layer"])
def test_a_second_problem_of_the_same_functions_compiles_nothing(scope):
    """Every call of the model's functions is a trace: nothing of it runs twice."""
    traces = []

    def head(params, features):
        traces.append("head")
        return anchored_head(params, features)

    def nll(outputs, frozen, counts):
        traces.append("nll")
        return anchored_frozen_nll(outputs, frozen, counts)

    params, z, counts = anchored_data()

    def run(factor):
        problem = pi.BootstrapProblem(
            pi.TwoStage(anchored_features, head), frozen_nll=nll, scope=scope
        )
        moved = jax.tree.map(lambda leaf: factor * leaf, params)
        result = pi.solve_bootstrap(
            jax.random.key(1),
            problem,
            moved,
            factor * z,
            counts + factor,
            3,
            anchored_config(),
        )
        return result.draws(z), pi.per_point_draws(result, z[:1])

    first, _ = run(1.0)
    assert {"head", "nll"} <= set(traces)
    traces.clear()
    second, _ = run(1.1)
    assert not traces
    assert np.abs(first - second).max() > 0.01
    assert np.all(np.isfinite(jnp.asarray(second)))
