"""The bootstrap against closed forms; how it reports; what it compiles."""

import dataclasses
import inspect
import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from bootstrap_examples import (
    ANCHORED,
    LOGISTIC,
    anchored_config,
    anchored_data,
    column_sizes,
    dense_curvature,
    dense_scores,
    logistic_data,
    logistic_nll,
    logistic_outputs,
    solve_anchored,
)
from pns_infer.bootstrap import equation as _equation
from pns_infer.bootstrap.multiplier import SolveStatus

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
    cell, column = (
        np.repeat(index.ravel(), counts.ravel().astype(int))
        for index in np.indices(counts.shape)
    )
    single = np.eye(2)[column]
    assert len(single) == counts.sum() > 2 * len(counts)
    empty = len(single) - len(counts)  # the same shapes: compiled once
    merged = np.pad(z, ((0, empty), (0, 0))), np.pad(counts, ((0, empty), (0, 0)))
    config = dataclasses.replace(EXACT, rows_per_batch=50)
    errors = [
        pi.solve_bootstrap(
            jax.random.key(0), LOGISTIC, params, *cells, 3000, config
        ).shifts.std(axis=0)
        for cells in (merged, (z[cell], single))
    ]
    np.testing.assert_allclose(errors[0] / errors[1], 1, atol=4 * 0.018)


@pytest.mark.parametrize(
    "scope, direct_up_to", [("full", 8000), ("full", 0), ("last_layer", 8000)]
)
def test_shifts_solve_the_dense_system(scope, direct_up_to):
    result = solve_anchored(scope, direct_up_to=direct_up_to)
    _, z, counts = anchored_data()
    num_moving = result.shifts.shape[1]  # the last layer comes last
    matrix = dense_curvature("ggn")[-num_moving:, -num_moving:]
    matrix = matrix + 0.05 * np.eye(num_moving)
    for draw, shift in enumerate(result.shifts):
        normals = _equation.multipliers(result.key, result.equation, draw)[: len(z)]
        weights = np.sqrt(counts) * normals / column_sizes()
        scores = np.einsum("nc,ncp->p", weights, dense_scores()[..., -num_moving:])
        np.testing.assert_allclose(shift, -np.linalg.solve(matrix, scores), atol=1e-4)


def test_direct_draws_are_those_of_conjugate_gradients():
    _, z, _ = anchored_data()
    direct, iterative = (
        solve_anchored(damping=0.01, direct_up_to=most) for most in (42, 41)
    )
    assert direct.shifts.shape == (4, 42)  # the largest that is solved directly
    assert direct.residuals.max() < 1e-10 < iterative.residuals.max() < 1e-5
    assert not np.array_equal(direct.shifts, iterative.shifts)
    np.testing.assert_allclose(direct.draws(z), iterative.draws(z), atol=1e-4)


def test_each_source_is_divided_by_its_own_size():
    """Ten times the experiment: its noise falls by the root of ten, exactly.

    The same multipliers on ten times the units; J does not change, nor does the rest.
    The experiment moves the outputs of delta alone, as the joint law is frozen in it.
    """
    params, z, counts = anchored_data()
    more = counts * np.where(np.arange(8) < 4, 1, 10)
    key, problem = jax.random.key(3), ANCHORED["last_layer"]
    once, ten = (
        pi.solve_bootstrap(key, problem, params, z, units, 4, anchored_config())
        for units in (counts, more)
    )
    (once_weights, once_bias), (ten_weights, ten_bias) = (
        (r.shifts[:, :24].reshape(4, 4, 6), r.shifts[:, 24:]) for r in (once, ten)
    )
    expected = np.array([1, 1, 1, 1, np.sqrt(10), np.sqrt(10)])
    np.testing.assert_allclose(once_weights, ten_weights * expected, atol=1e-5)
    np.testing.assert_allclose(once_bias, ten_bias * expected, atol=1e-5)
    assert np.abs(once_weights).min(axis=(0, 1)).max() > 1e-3


def test_a_solve_that_did_not_converge_says_what_to_try():
    z, counts, params, *_ = logistic_data()
    config = pi.SolveConfig(max_iterations=1, direct_up_to=0, preconditioner_rank=0)
    with pytest.warns(pi.NotConvergedWarning, match="100% of 25 solves") as caught:
        # Unwrapped: a check of shapes around it would be the caller.
        result = inspect.unwrap(pi.solve_bootstrap)(
            jax.random.key(0), LOGISTIC, params, z, counts, 25, config
        )
    assert caught[0].filename == __file__  # who called
    assert not result.converged
    assert result.status is SolveStatus.MAX_ITERATIONS
    assert result.message == str(caught[0].message)
    assert result.message.endswith("take more damping or more max_iterations.")
    assert result.residuals.shape == (25,) and result.residuals.max() > 0.01


def test_solves_that_converged_say_so_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = solve_anchored()
    assert result.converged and result.status is SolveStatus.CONVERGED
    assert result.message.startswith("all 4 solves reached 0.001 (worst relative")
    assert "array" not in repr(result) and len(repr(result)) < 1000
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.shifts = result.shifts * 2


def test_the_status_of_a_direct_solve_does_not_ask_for_iterations():
    result = solve_anchored("last_layer")
    bad = dataclasses.replace(result, residuals=np.array([0, 0, 0, 0.5]))
    assert bad.status is SolveStatus.ILL_CONDITIONED
    assert bad.message.startswith("25% of 4") and "iterations" not in bad.message
    lost = dataclasses.replace(result, residuals=np.array([0, 0, 0, np.nan]))
    assert lost.status is SolveStatus.NOT_FINITE and "finite" in lost.message


def test_more_draws_leave_the_earlier_ones_unchanged():
    few, more = solve_anchored(), solve_anchored(num_draws=8)
    np.testing.assert_allclose(few.shifts, more.shifts[:4], atol=1e-5)
    assert few.num_draws == 4 and more.num_draws == 8


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
            25,
            config,
        ).shifts
        for kind in (bool, np.int8, np.float32)
    ]
    chex.assert_trees_all_close(*shifts, rtol=1e-4, atol=1e-5)


def test_a_single_draw_is_refused():
    z, counts, params, *_ = logistic_data()
    with pytest.raises(pb.InputError, match="num_draws must be at least 2"):
        pi.solve_bootstrap(jax.random.key(0), LOGISTIC, params, z, counts, 1)


@pytest.mark.parametrize(
    "scope, direct_up_to", [("full", 8000), ("full", 0), ("last_layer", 8000)]
)
def test_a_second_problem_of_the_same_functions_compiles_nothing(scope, direct_up_to):
    """Every call of the model's functions is a trace: nothing of it runs twice."""
    traces = []

    def features(body, z):
        traces.append("features")
        return jnp.tanh(z @ body)

    def head(params, features):
        traces.append("head")
        return logistic_outputs(params, features)

    def nll(outputs, counts):
        traces.append("nll")
        return logistic_nll(outputs, counts)

    z, counts, params, *_ = logistic_data()

    def run(factor):
        problem = pi.BootstrapProblem(
            pi.TwoStage(features, head), nll=nll, columns=LOGISTIC.columns, scope=scope
        )
        pair = (factor * jnp.eye(2), jax.tree.map(lambda leaf: factor * leaf, params))
        config = pi.SolveConfig(damping=factor / 10, direct_up_to=direct_up_to)
        result = pi.solve_bootstrap(
            jax.random.key(1), problem, pair, factor * z, counts + factor, 3, config
        )
        return result.draws(z)

    first = run(1.0)
    assert set(traces) == {"features", "head", "nll"}
    traces.clear()
    second = run(1.1)
    assert not traces
    chex.assert_tree_all_finite(second)
    assert np.abs(first - second).max() > 0.01
