"""Solves against dense linear algebra."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pns_bounds as pb
import pytest
from bootstrap_examples import (
    anchored_config,
    dense_curvature,
    solve_anchored,
)
from pns_infer.bootstrap import solve as _solve

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
            "hessian",
            0.0,
            "damping 0 is too small: the matrix 'hessian' of 42",
        ),
        (
            "estimating_equation",
            0.0,
            "damping 0 is too small",
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
    config = anchored_config(curvature="hessian")
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
