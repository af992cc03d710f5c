"""The bootstrap against closed forms and the paper's algorithm; draws at new points."""

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
    NETWORK,
    anchored_config,
    anchored_data,
    anchored_head,
    anchored_logs,
    column_sizes,
    dense_curvature,
    dense_scores,
    logistic_data,
    logistic_nll,
    logistic_outputs,
    solve_anchored,
)
from pns_infer.bootstrap import problem as _problem
from pns_infer.bootstrap.multiplier import (
    NotConvergedWarning,
    per_point_draws,
)

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


@pytest.mark.parametrize("curvature", ["ggn", "estimating_equation"])
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
        normals = _problem.multipliers(result.key, result.equation, draw)[: len(z)]
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
    with pytest.warns(NotConvergedWarning, match="100% of 25 solves") as caught:
        # Unwrapped: a check of shapes around it would be the caller.
        result = inspect.unwrap(pi.solve_bootstrap)(
            jax.random.key(0), LOGISTIC, params, z, counts, 25, config
        )
    assert caught[0].filename == __file__  # who called
    assert not result.converged
    assert result.message == str(caught[0].message)
    assert result.message.endswith("take more damping or more max_iterations.")
    assert result.residuals.shape == (25,) and result.residuals.max() > 0.01


def test_solves_that_converged_say_so_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = solve_anchored()
    assert result.converged
    assert result.message.startswith("all 4 solves reached 0.001 (worst relative")
    assert "array" not in repr(result) and len(repr(result)) < 1000
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.shifts = result.shifts * 2


def test_the_message_of_a_direct_solve_does_not_ask_for_iterations():
    result = solve_anchored("last_layer")
    bad = dataclasses.replace(result, residuals=np.array([0, 0, 0, 0.5]))
    assert bad.message.startswith("25% of 4") and "iterations" not in bad.message
    lost = dataclasses.replace(result, residuals=np.array([0, 0, 0, np.nan]))
    assert not lost.converged and "finite" in lost.message


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
            (features, head), nll=nll, trial=(0, 0), source=(0, 0), scope=scope
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


def test_draws_are_compiled_once_for_all_calls():
    @chex.assert_max_traces(n=1)
    def line(params, z):
        return z @ params

    shifts, z = np.eye(3, dtype=np.float32), np.ones((5, 3), np.float32)
    problem = pi.BootstrapProblem(line, nll=lambda outputs, counts: None)
    ones, fours = (
        pi.bootstrap_draws(problem, np.full(3, c, np.float32), shifts, z)
        for c in (0, 1)
    )
    np.testing.assert_allclose(ones, 1)
    np.testing.assert_allclose(fours, 4)


def test_a_last_block_of_fewer_points_compiles_nothing():
    @chex.assert_max_traces(n=1)
    def line(params, z):
        return z @ params

    shifts, z = np.eye(3, dtype=np.float32), np.ones((64, 3), np.float32)
    problem = pi.BootstrapProblem(line, nll=lambda outputs, counts: None)
    params = np.zeros(3, np.float32)
    for count in (64, 33):
        drawn = pi.bootstrap_draws(problem, params, shifts, z[:count])
        np.testing.assert_array_equal(drawn, np.ones((3, count)))


def test_draws_are_the_derivative_along_the_shift():
    result = solve_anchored()
    params, z, _ = anchored_data()
    vector, unravel = jax.flatten_util.ravel_pytree(params)
    drawn = result.draws(z[:5])
    chex.assert_shape(drawn, (4, 5, 6))
    for shift, draw in zip(result.shifts, drawn, strict=True):
        step = 1e-2
        ahead, behind = (
            NETWORK(unravel(vector + s * shift), z[:5]) for s in (step, -step)
        )
        slope = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(draw, NETWORK(params, z[:5]) + slope, atol=1e-3)


@pytest.mark.parametrize("scope", ["full", "last_layer"])
def test_shifts_from_disk_give_the_same_draws(scope, tmp_path):
    result = solve_anchored(scope)
    params, z, _ = anchored_data()
    np.save(tmp_path / "shifts.npy", result.shifts)
    shifts = np.load(tmp_path / "shifts.npy")
    drawn = pi.bootstrap_draws(ANCHORED[scope], params, shifts, z[:7])
    np.testing.assert_array_equal(drawn, result.draws(z[:7]))
    inputs = NETWORK.features(params[0], z[:7]) if scope == "last_layer" else z[:7]
    moving = params[1] if scope == "last_layer" else params
    alone = pi.BootstrapProblem(
        ANCHORED[scope].function, nll=lambda outputs, counts: None
    )
    by_hand = pi.bootstrap_draws(alone, moving, shifts, inputs)
    np.testing.assert_allclose(drawn, by_hand, atol=1e-5)


def test_chunks_of_points_change_nothing():
    result = solve_anchored()
    _, z, _ = anchored_data()
    whole = result.draws(z[:7])
    np.testing.assert_allclose(result.draws(z[:7], points_per_chunk=3), whole, 1e-5)


def test_a_function_may_return_a_tree():
    result = solve_anchored()
    _, z, _ = anchored_data()

    def parts(params, z):
        raw = NETWORK(params, z)
        return {"joint": raw[:, :4], "delta": raw[:, 4:]}

    drawn = result.draws(z[:3], parts)
    whole = result.draws(z[:3])
    chex.assert_trees_all_close(
        drawn, {"joint": whole[..., :4], "delta": whole[..., 4:]}, atol=1e-6
    )


def test_shifts_of_other_parameters_are_refused():
    params, z, _ = anchored_data()
    with pytest.raises(pb.InputError, match=r"shape \[num_draws, 42\].* got \[2, 5\]"):
        pi.bootstrap_draws(ANCHORED["full"], params, np.zeros((2, 5)), z)


def mu_of_network(params, z):
    raw = NETWORK(params, z)
    return jnp.exp(anchored_logs(raw, raw)[:, 4:])


def mu_of_head(params, features):
    raw = anchored_head(params, features)
    return jnp.exp(anchored_logs(raw, raw)[:, 4:])


@pytest.mark.parametrize(
    "scope, curvature, direct_up_to, function",
    [
        ("full", "ggn", 8000, mu_of_network),
        ("full", "ggn", 0, mu_of_network),
        ("full", "estimating_equation", 0, mu_of_network),
        ("last_layer", "estimating_equation", 8000, mu_of_head),
        ("last_layer", "ggn", 8000, None),
    ],
)
def test_shared_solves_equal_the_per_point_algorithm(
    scope, curvature, direct_up_to, function
):
    result = solve_anchored(scope, curvature, damping=0.2, direct_up_to=direct_up_to)
    points = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    shared = result.draws(points, function)
    single = per_point_draws(result, points, function)
    chex.assert_equal_shape([shared, single])
    # Conjugate gradients reach 1e-6 in float32, GMRES does not.
    loose = (scope, curvature) == ("full", "estimating_equation")
    tolerance = (1e-3 if loose else 2e-4) * np.abs(shared).max()
    np.testing.assert_allclose(shared, single, atol=tolerance)
    assert np.std(shared, axis=0).min() > 1e-4
