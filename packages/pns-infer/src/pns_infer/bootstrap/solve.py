"""Solves (J + damping) x = b for many right-hand sides, and says how well."""

import functools
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import pns_bounds as pb
from jax.scipy.sparse.linalg import cg, gmres
from jaxtyping import Array, Float
from scipy import linalg

from pns_infer.bootstrap.curvature import dense_matrix, product
from pns_infer.bootstrap.equation import Equation
from pns_infer.bootstrap.gauss_newton import gauss_newton_matrix
from pns_infer.bootstrap.preconditioner import Preconditioner, make_preconditioner
from pns_infer.bootstrap.problem import Curvature, SolveConfig

Vectors = Float[np.ndarray, "d num_parameters"]
Residuals = Float[np.ndarray, " d"]  # relative
Matrix = Float[np.ndarray, "num_parameters num_parameters"]
Solver = Callable[[Vectors], tuple[Vectors, Residuals]]


class _Method(NamedTuple):
    """What an iterative solve is compiled for."""

    curvature: Curvature
    max_iterations: int
    transpose: bool


def make_solver(
    equation: Equation, config: SolveConfig, transpose: bool = False
) -> Solver:
    """Prepares the solves: direct up to some number of parameters, then iterative.

    The result maps right-hand sides to solutions and relative residuals. It may solve
    with the transpose of J; only that of 'estimating_equation' is another matrix.
    """
    transpose = transpose and config.curvature == "estimating_equation"
    if equation.num_parameters <= config.direct_up_to:
        if config.curvature == "ggn":
            matrix = gauss_newton_matrix(equation)
        else:
            matrix = np.array(dense_matrix(equation, config.curvature), float)
        matrix[np.diag_indices(len(matrix))] += config.damping
        return _make_direct(matrix.T if transpose else matrix, config)
    method = _Method(config.curvature, config.max_iterations, transpose)
    preconditioner = make_preconditioner(equation, config)
    return functools.partial(
        _solve_in_batches, equation, config, method, preconditioner
    )


def _make_direct(matrix: Matrix, config: SolveConfig) -> Solver:
    """Factors the matrix, in double precision."""
    if not np.all(np.isfinite(matrix)):
        raise pb.InputError(
            "params", "and outputs must be finite: their matrix is not."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error", linalg.LinAlgWarning)
        try:
            if config.curvature == "estimating_equation":
                factor = linalg.lu_factor(matrix, check_finite=False)
                solve = functools.partial(linalg.lu_solve, factor, check_finite=False)
            else:
                half = matrix if config.curvature == "ggn" else (matrix + matrix.T) / 2
                factor = linalg.cho_factor(half, check_finite=False)
                solve = functools.partial(linalg.cho_solve, factor, check_finite=False)
        except (linalg.LinAlgError, linalg.LinAlgWarning) as error:
            raise pb.InputError(
                "damping",
                f"{config.damping:g} is too small: the matrix {config.curvature!r} of "
                f"{len(matrix)} parameters cannot be factored; take more damping, or "
                "curvature='ggn'.",
            ) from error
    return functools.partial(_solve_directly, matrix, solve)


def _solve_directly(
    matrix: Matrix, solve: Callable[[np.ndarray], np.ndarray], right: Vectors
) -> tuple[Vectors, Residuals]:
    """Substitutes back for all right-hand sides at once."""
    solutions = solve(np.asarray(right, float).T).T
    residuals = _relative(solutions @ matrix.T - right, right)
    return solutions.astype(right.dtype), residuals


def _solve_in_batches(
    equation: Equation,
    config: SolveConfig,
    method: _Method,
    preconditioner: Preconditioner,
    right: Vectors,
) -> tuple[Vectors, Residuals]:
    """Solves for as many right-hand sides at a time as activations may be held for."""
    solutions, gaps = [], []
    size = config.draws_per_batch * jax.local_device_count()
    for start in range(0, len(right), size):
        batch = right[start : start + size]
        limits = (config.damping, config.tolerance)
        solution, gap = _solve_iteratively(
            method, equation, preconditioner, _spread(batch), *limits
        )
        solutions.append(np.asarray(solution)[: len(batch)])
        gaps.append(np.asarray(gap)[: len(batch)])
    return np.concatenate(solutions), _relative(np.concatenate(gaps), right)


def _spread(right: Vectors) -> Vectors | Float[Array, "filled num_parameters"]:
    """Deals right-hand sides to the devices of this process, filled up with zeros."""
    devices = jax.local_devices()
    if len(devices) == 1:
        return right
    filled = np.pad(right, ((0, -len(right) % len(devices)), (0, 0)))
    mesh = jax.sharding.Mesh(np.array(devices), ("draw",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("draw"))
    return jax.device_put(filled, sharding)


@functools.partial(jax.jit, static_argnums=0)
def _solve_iteratively(
    method: _Method,
    equation: Equation,
    preconditioner: Preconditioner,
    right: Float[Array, "d num_parameters"],
    damping: float,
    tolerance: float,
) -> tuple[Float[Array, "d num_parameters"], Float[Array, "d num_parameters"]]:
    """Returns solutions, and what they leave of the right-hand sides."""
    apply = functools.partial(product, equation, method.curvature, damping)
    if method.transpose:
        transposed = jax.linear_transpose(apply, equation.vector)

        def apply(direction: jax.Array) -> jax.Array:
            return transposed(direction)[0]

    if method.curvature == "estimating_equation":
        restart = min(20, method.max_iterations)
        cycles = -(-method.max_iterations // restart)
        solve = functools.partial(gmres, apply, restart=restart, maxiter=cycles)
    else:
        solve = functools.partial(cg, apply, maxiter=method.max_iterations)
    solutions = jax.vmap(lambda b: solve(b, tol=tolerance, M=preconditioner)[0])(right)
    return solutions, jax.vmap(apply)(solutions) - right


def _relative(gap: Vectors, right: Vectors) -> Residuals:
    size = np.linalg.norm(right, axis=1)
    return np.linalg.norm(gap, axis=1) / np.where(size > 0, size, 1)
