"""Solves (J + damping) x = b for many right-hand sides, and says how well."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve, lu_factor, lu_solve
from jax.scipy.sparse.linalg import cg, gmres
from jaxtyping import Array, Float, PyTree

from pns_infer._bootstrap_problem import BootstrapProblem, Curvature, SolveConfig
from pns_infer._cells import Cells
from pns_infer._curvature import dense_matrix, make_equation, product

Vectors = Float[Array, "d num_parameters"]
Residuals = Float[Array, " d"]  # relative


class _Method(NamedTuple):
    """What an iterative solve is compiled for."""

    curvature: Curvature
    max_iterations: int
    transpose: bool


def make_solver(
    problem: BootstrapProblem,
    config: SolveConfig,
    params: PyTree,
    cells: Cells,
    transpose: bool = False,
) -> Callable[[Vectors], tuple[Vectors, Residuals]]:
    """Prepares the solves: iterative for the full network, direct for the last layer.

    Args:
      problem: the estimator.
      config: curvature, damping, and when to stop.
      params: the estimate, of the bootstrapped function.
      cells: the data.
      transpose: whether to solve with the transpose of J; only that of
        'estimating_equation' is another matrix.

    Returns:
      A function that maps right-hand sides to solutions and relative residuals.
    """
    transpose = transpose and config.curvature == "estimating_equation"
    if problem.scope == "full":
        method = _Method(config.curvature, config.max_iterations, transpose)
        return lambda right: _solve_iteratively(
            problem, method, params, cells, right, config.damping, config.tolerance
        )
    matrix = dense_matrix(problem, config.curvature, params, cells, config.damping)
    matrix = matrix.T if transpose else matrix
    if config.curvature == "estimating_equation":
        return functools.partial(_solve_directly, lu_solve, matrix, lu_factor(matrix))
    factor = cho_factor((matrix + matrix.T) / 2)
    if not bool(jnp.all(jnp.isfinite(factor[0]))):
        raise ValueError(
            f"the {config.curvature} of the last layer with damping "
            f"{config.damping:g} is not positive definite; take more damping, "
            "or curvature='ggn'."
        )
    return functools.partial(_solve_directly, cho_solve, matrix, factor)


def _solve_directly(
    solve: Callable[..., jax.Array],
    matrix: Float[Array, "p p"],
    factor: tuple,
    right: Vectors,
) -> tuple[Vectors, Residuals]:
    solution = solve(factor, right.T).T
    return solution, _relative(solution @ matrix.T - right, right)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _solve_iteratively(
    problem: BootstrapProblem,
    method: _Method,
    params: PyTree,
    cells: Cells,
    right: Vectors,
    damping: float,
    tolerance: float,
) -> tuple[Vectors, Residuals]:
    equation = make_equation(problem, params, cells, damping)
    apply = functools.partial(product, equation, method.curvature)
    if method.transpose:
        apply = _transposed(apply, equation.vector)
    if method.curvature == "estimating_equation":
        restart = min(20, method.max_iterations)
        cycles = -(-method.max_iterations // restart)
        solve = functools.partial(gmres, apply, restart=restart, maxiter=cycles)
    else:
        solve = functools.partial(cg, apply, maxiter=method.max_iterations)
    solutions = jax.vmap(lambda b: solve(b, tol=tolerance)[0])(right)
    return solutions, _relative(jax.vmap(apply)(solutions) - right, right)


def _transposed(
    apply: Callable[[jax.Array], jax.Array], vector: jax.Array
) -> Callable[[jax.Array], jax.Array]:
    transposed = jax.linear_transpose(apply, vector)
    return lambda direction: transposed(direction)[0]


def _relative(gap: Vectors, right: Vectors) -> Residuals:
    size = jnp.linalg.norm(right, axis=1)
    return jnp.linalg.norm(gap, axis=1) / jnp.where(size > 0, size, 1)
