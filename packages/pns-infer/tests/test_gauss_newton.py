"""The matrix by rows of its root against Jacobians, Hessians and the books."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pytest
from bootstrap_examples import (
    ANCHORED,
    LOGISTIC,
    anchored_data,
    dense_curvature,
    logistic_data,
    solve_anchored,
)
from pns_infer.bootstrap import equation as _equation
from pns_infer.bootstrap import gauss_newton as _gauss_newton


def test_the_matrix_is_that_of_jacobians_and_fisher_matrices():
    result = solve_anchored()
    found = _gauss_newton.gauss_newton_matrix(result.equation)
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

    equation = _equation.make_equation(
        LOGISTIC, params, jnp.asarray(z), jnp.asarray(counts), batch=150
    )
    found = _gauss_newton.gauss_newton_matrix(equation)
    np.testing.assert_allclose(found, jax.hessian(loss)(vector), atol=1e-6)


@pytest.mark.parametrize("rows", [7, 64])
def test_blocks_of_rows_change_nothing(rows, monkeypatch):
    result = solve_anchored()
    whole = _gauss_newton.gauss_newton_matrix(result.equation)
    monkeypatch.setattr(_gauss_newton, "_ROWS", rows)
    parts = _gauss_newton.gauss_newton_matrix(result.equation)
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_a_cell_of_many_units_costs_what_a_cell_of_one_does():
    """Five rows at most: three of the joint law, one of each arm that has units."""
    params, z, counts = anchored_data()
    num_arms = (counts[:, 4:].reshape(-1, 2, 2).sum(axis=2) > 0).sum()
    rows = []
    for factor in (1, 100):
        equation = _equation.make_equation(
            ANCHORED["full"], params, jnp.asarray(z), jnp.asarray(factor * counts), 64
        )
        _, roots = _gauss_newton._split_fisher(equation)
        rows.append(len(roots))
    assert rows == [3 * len(z) + num_arms] * 2
    assert num_arms < 2 * len(z)  # some have none


def test_parameters_that_are_not_finite_are_refused():
    result = solve_anchored()
    body, head = result.params
    with pytest.raises(pb.InputError, match="params must be finite"):
        _gauss_newton.gauss_newton_matrix(
            dataclasses.replace(result.equation, params=(body * np.nan, head))
        )
