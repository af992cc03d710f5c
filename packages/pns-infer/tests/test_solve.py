"""Solves against dense linear algebra."""

import jax.numpy as jnp
import numpy as np
import pytest
from bootstrap_examples import (
    anchored_config,
    anchored_data,
    dense_curvature,
    solve_anchored,
)
from pns_infer import _solve

NUM_BODY = 12  # parameters of the features; those of the last layer follow


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("curvature", ["ggn", "estimating_equation"])
@pytest.mark.parametrize("scope", ["full", "last_layer"])
def test_solutions_are_those_of_the_dense_system(scope, curvature, transpose):
    result = solve_anchored(scope)
    params, *_ = anchored_data()
    moving = params if scope == "full" else params[1]
    solve = _solve.make_solver(
        result.problem,
        anchored_config(curvature=curvature, damping=0.2),
        moving,
        result.cells,
        transpose,
    )
    dense = dense_curvature(curvature)
    if scope == "last_layer":
        dense = dense[NUM_BODY:, NUM_BODY:]
    matrix = (dense.T if transpose else dense) + 0.2 * np.eye(len(dense))
    right = np.random.default_rng(0).standard_normal((4, len(dense)))
    right[3] = 0
    solution, residuals = solve(jnp.asarray(right, jnp.float32))
    expected = np.linalg.solve(matrix.astype(float), right.T).T
    # Conjugate gradients reach 1e-6 in float32, GMRES does not.
    np.testing.assert_allclose(solution, expected, atol=2e-3 * np.abs(expected).max())
    assert residuals[:3].max() < 1e-4 and residuals[3] == 0


def test_an_indefinite_last_layer_is_refused():
    result = solve_anchored("last_layer")
    config = anchored_config(curvature="hessian", damping=0.0)
    with pytest.raises(ValueError, match="not positive definite; take more damping"):
        _solve.make_solver(result.problem, config, result.params[1], result.cells)
