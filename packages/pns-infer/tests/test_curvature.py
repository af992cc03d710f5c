"""Products with J and sums of scores against dense matrices by their definitions."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bootstrap_examples import (
    LOGISTIC,
    anchored_data,
    column_sizes,
    dense_curvature,
    dense_scores,
    logistic_data,
    solve_anchored,
)
from pns_infer.bootstrap import curvature as _curvature
from pns_infer.bootstrap import equation as _equation

CURVATURES = ["hessian", "ggn", "estimating_equation"]


@pytest.mark.parametrize("curvature", CURVATURES)
def test_products_are_those_of_the_dense_matrix(curvature):
    result = solve_anchored()
    matrix = _curvature.dense_matrix(result.equation, curvature)
    dense = dense_curvature(curvature)
    np.testing.assert_allclose(matrix, dense, atol=2e-5)
    asymmetry = np.abs(dense - dense.T).max()
    assert (asymmetry > 1e-3) == (curvature == "estimating_equation")
    direction = np.linspace(-1, 1, len(dense), dtype=np.float32)
    found = _curvature.product(result.equation, curvature, 0.3, direction)
    np.testing.assert_allclose(found, dense @ direction + 0.3 * direction, atol=1e-4)


def test_the_sum_of_multiplied_scores_is_that_over_cells_and_columns():
    result = solve_anchored()
    _, z, counts = anchored_data()
    scores = _curvature.multiplied_scores(result.equation, result.key, jnp.arange(4))
    for draw in range(4):
        normals = _equation.multipliers(result.key, result.equation, draw)[: len(z)]
        weights = np.sqrt(counts) * normals / column_sizes()
        expected = np.einsum("nc,ncp->p", weights, dense_scores())
        np.testing.assert_allclose(scores[draw], expected, rtol=1e-4, atol=1e-6)


def test_influences_are_scores_along_a_direction():
    result = solve_anchored()
    _, z, counts = anchored_data()
    direction = np.random.default_rng(0).standard_normal(dense_scores().shape[2])
    direction32 = jnp.asarray(direction, jnp.float32)
    found = _curvature.influence(result.equation, direction32)
    expected = dense_scores() @ direction * np.sqrt(counts) / column_sizes()
    found = found.reshape(-1, 8)
    np.testing.assert_allclose(found[: len(z)], expected, rtol=1e-3, atol=1e-5)
    assert not np.any(found[len(z) :])


class ProductVariants(chex.TestCase):
    @chex.variants(
        with_jit=True, without_jit=True, with_device=True, without_device=True
    )
    def test_the_hessian_of_a_logistic_model_is_that_of_the_books(self):
        z, counts, params, design, beta = logistic_data()
        equation = _equation.make_equation(
            LOGISTIC, params, jnp.asarray(z), jnp.asarray(counts), batch=150
        )

        @self.variant
        def product(equation, direction):
            return _curvature.product(equation, "hessian", 0.0, direction)

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
