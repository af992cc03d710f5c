"""J, its root, its preconditioner and solves with it against dense linear algebra."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pytest
from bootstrap_examples import (
    ANCHORED,
    LOGISTIC,
    anchored_config,
    anchored_data,
    dense_curvature,
    logistic_data,
    solve_anchored,
)
from pns_infer.bootstrap import problem as _problem
from pns_infer.bootstrap import solve as _solve

CURVATURES = ["ggn", "estimating_equation"]


@pytest.mark.parametrize("curvature", CURVATURES)
def test_products_are_those_of_the_dense_matrix(curvature):
    result = solve_anchored()
    matrix = _solve.dense_matrix(result.equation, curvature)
    dense = dense_curvature(curvature)
    np.testing.assert_allclose(matrix, dense, atol=2e-5)
    asymmetry = np.abs(dense - dense.T).max()
    assert (asymmetry > 1e-3) == (curvature == "estimating_equation")
    direction = np.linspace(-1, 1, len(dense), dtype=np.float32)
    found = _solve.product(result.equation, curvature, 0.3, direction)
    np.testing.assert_allclose(found, dense @ direction + 0.3 * direction, atol=1e-4)


class ProductVariants(chex.TestCase):
    @chex.variants(
        with_jit=True, without_jit=True, with_device=True, without_device=True
    )
    def test_the_hessian_of_a_logistic_model_is_that_of_the_books(self):
        z, counts, params, design, beta = logistic_data()
        equation = _problem.make_equation(
            LOGISTIC, params, jnp.asarray(z), jnp.asarray(counts), batch=150
        )

        @self.variant
        def product(equation, direction):
            return _solve.product(equation, "estimating_equation", 0.0, direction)

        p = 1 / (1 + np.exp(-design @ beta))
        weights = counts.sum(axis=1) * p * (1 - p) / counts.sum()
        direction = np.array([0.5, -1.0, 2.0], np.float32)
        expected = design.T @ (weights * (design @ direction))
        found = np.asarray(product(equation, direction))
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_parameters_come_in_the_order_of_ravel_pytree():
    params, _, _ = anchored_data()
    equation = solve_anchored().equation
    chex.assert_trees_all_equal(
        equation.vector, jax.flatten_util.ravel_pytree(params)[0]
    )


def test_the_matrix_is_that_of_jacobians_and_fisher_matrices():
    result = solve_anchored()
    found = _solve.gauss_newton_matrix(result.equation)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, dense_curvature("ggn"), atol=2e-6)


def test_the_matrix_of_a_logistic_model_is_its_hessian():
    """The canonical link: expected and observed curvature are the same."""
    z, counts, params, *_ = logistic_data()
    vector, unravel = jax.flatten_util.ravel_pytree(params)

    def loss(v):
        losses = LOGISTIC.losses(LOGISTIC.outputs(unravel(v), z), None, counts)
        return jnp.sum(losses) / counts.sum()

    equation = _problem.make_equation(
        LOGISTIC, params, jnp.asarray(z), jnp.asarray(counts), batch=150
    )
    found = _solve.gauss_newton_matrix(equation)
    np.testing.assert_allclose(found, jax.hessian(loss)(vector), atol=1e-6)


@pytest.mark.parametrize("rows", [7, 64])
def test_blocks_of_rows_change_nothing(rows, monkeypatch):
    result = solve_anchored()
    whole = _solve.gauss_newton_matrix(result.equation)
    monkeypatch.setattr(_solve, "_ROWS", rows)
    parts = _solve.gauss_newton_matrix(result.equation)
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_a_cell_of_many_units_costs_what_a_cell_of_one_does():
    """Five rows at most: three of the joint law, one of each arm that has units."""
    params, z, counts = anchored_data()
    num_arms = (counts[:, 4:].reshape(-1, 2, 2).sum(axis=2) > 0).sum()
    rows = []
    for factor in (1, 100):
        equation = _problem.make_equation(
            ANCHORED["full"], params, jnp.asarray(z), jnp.asarray(factor * counts), 64
        )
        _, roots = _solve._split_fisher(equation)
        rows.append(len(roots))
    assert rows == [3 * len(z) + num_arms] * 2
    assert num_arms < 2 * len(z)  # some have none


def test_parameters_that_are_not_finite_are_refused():
    result = solve_anchored()
    body, head = result.params
    with pytest.raises(pb.InputError, match="params must be finite"):
        _solve.gauss_newton_matrix(
            dataclasses.replace(result.equation, params=(body * np.nan, head))
        )


DAMPING = 1e-3


def preconditioner(rank, **options):
    result = solve_anchored()
    config = anchored_config(damping=DAMPING, preconditioner_rank=rank, **options)
    return _solve.make_preconditioner(result.equation, config)


def preconditioned(rank):
    """What is left to conjugate gradients: eigenvalues of M (J + damping), ascending."""
    matrix = dense_curvature("ggn").astype(float)
    matrix = matrix + DAMPING * np.eye(len(matrix))
    inverse = np.asarray(jax.vmap(preconditioner(rank))(np.eye(len(matrix))), float)
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-5)
    return np.sort(np.linalg.eigvals(inverse @ matrix).real)


def test_a_sketch_of_full_rank_gives_the_inverse():
    """Up to a factor, and but for directions without curvature, five of a softmax.

    Those are left as they are, the others as the flattest one that is not among them.
    """
    values = preconditioned(42) / DAMPING
    flattest = np.linalg.eigvalsh(dense_curvature("ggn").astype(float))[5]
    np.testing.assert_allclose(values[:5], 1, atol=0.01)
    np.testing.assert_allclose(values[5:], 1 + flattest / DAMPING, atol=0.01)


def test_a_sketch_of_some_rank_leaves_less_to_do():
    """The condition number falls as the rank grows."""
    conditions = [values[-1] / values[0] for values in map(preconditioned, (0, 20, 35))]
    assert conditions[0] > 5 * conditions[1] > 25 * conditions[2]


def test_directions_are_orthonormal_and_batches_change_nothing():
    basis = np.asarray(preconditioner(20).basis)
    np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-5)
    other = preconditioner(20, draws_per_batch=7)
    vector = np.linspace(-1, 1, 42, dtype=np.float32)
    np.testing.assert_allclose(
        other(vector), preconditioner(20)(vector), rtol=1e-3, atol=1e-4
    )


def test_a_curvature_of_zero_leaves_vectors_as_they_are():
    result = solve_anchored()
    empty = dataclasses.replace(result.equation, counts=0 * result.equation.counts)
    found = _solve.make_preconditioner(empty, anchored_config())
    vector = np.linspace(-1, 1, 42, dtype=np.float32)
    np.testing.assert_array_equal(found(vector), vector)


def test_few_steps_suffice_with_the_preconditioner_alone():
    result = solve_anchored()
    config = anchored_config(
        damping=0.01, direct_up_to=0, max_iterations=10, tolerance=1e-4
    )
    right = np.random.default_rng(0).standard_normal((4, 42)).astype(np.float32)
    residuals = [
        _solve.make_solver(
            result.equation, dataclasses.replace(config, preconditioner_rank=rank)
        )(right)[1].max()
        for rank in (0, 35)
    ]
    assert residuals[1] < 1e-3 and residuals[0] > 1e-2


def test_the_derivative_itself_has_none():
    """They may be far from the matrix that is never negative."""
    result = solve_anchored()
    config = anchored_config(curvature="estimating_equation", preconditioner_rank=20)
    found = _solve.make_preconditioner(result.equation, config)
    assert found.basis.shape == (0, 42)


NUM_BODY = 12  # parameters of the features; those of the last layer follow


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("curvature", ["ggn", "estimating_equation"])
@pytest.mark.parametrize(
    "scope, direct_up_to", [("full", 8000), ("full", 0), ("last_layer", 8000)]
)
def test_solutions_are_those_of_the_dense_system(
    scope, direct_up_to, curvature, transpose
):
    result = solve_anchored(scope)
    solve = _solve.make_solver(
        result.equation,
        anchored_config(curvature=curvature, damping=0.2, direct_up_to=direct_up_to),
        transpose,
    )
    dense = dense_curvature(curvature)
    if scope == "last_layer":
        dense = dense[NUM_BODY:, NUM_BODY:]
    matrix = (dense.T if transpose else dense) + 0.2 * np.eye(len(dense))
    right = np.random.default_rng(0).standard_normal((4, len(dense)))
    right[3] = 0
    solution, residuals = solve(right.astype(np.float32))
    expected = np.linalg.solve(matrix.astype(float), right.T).T
    # Conjugate gradients reach 1e-6 in float32, GMRES does not.
    np.testing.assert_allclose(solution, expected, atol=2e-3 * np.abs(expected).max())
    limit = 1e-6 if direct_up_to else 1e-4
    assert residuals[:3].max() < limit and residuals[3] == 0


@pytest.mark.parametrize(
    "curvature, damping, expected",
    [
        (
            "estimating_equation",
            0.0,
            "damping 0 is too small: the matrix 'estimating_equation' of 42",
        ),
        ("ggn", 0.0, "damping 0 is too small.* or curvature='ggn'"),
    ],
)
def test_a_matrix_that_cannot_be_factored_is_refused(curvature, damping, expected):
    """All cells are alike and lack a covariate: directions without any information."""
    result = solve_anchored()
    alike = dataclasses.replace(result.equation, inputs=result.equation.inputs * 0)
    config = anchored_config(curvature=curvature, damping=damping)
    with pytest.raises(pb.InputError, match=expected):
        _solve.make_solver(alike, config)


def test_a_matrix_that_is_not_finite_is_refused():
    result = solve_anchored()
    config = anchored_config(curvature="estimating_equation")
    params = jax.tree.map(lambda leaf: leaf * np.nan, result.params)
    lost = dataclasses.replace(result.equation, params=params)
    with pytest.raises(pb.InputError, match="params and outputs must be finite"):
        _solve.make_solver(lost, config)


@pytest.mark.slow
def test_devices_share_the_draws_of_an_iterative_solve(tmp_path):
    program = Path(__file__).parent / "solve_on_devices.py"
    path = tmp_path / "found.npz"
    subprocess.run([sys.executable, str(program), str(path)], check=True)
    with np.load(path) as found:
        assert found["devices"].tolist() == [8, 8]  # two batches
        np.testing.assert_allclose(found["eight"], found["one"], rtol=1e-3, atol=1e-4)
