"""The derivative J of the estimating equation, and solves of (J + damping) x = b.

Symbols are those of `problem`. Few parameters: J is formed and factored. At a cell the
Fisher matrix of the outputs is the sum of r r^T over a few vectors r: with the anchored
network three for the joint law and one for each arm, fewer where a source has no units. The
gradient of r^T outputs is then a row of a matrix A, and 'ggn' is A^T A. Its cost is the
number of rows of A times the square of the number of parameters; how many units share a
cell does not matter.

Many parameters: iterative solves. Few directions hold most of the curvature of a network:
of 52,358 eigenvalues about 130 exceed a damping of 0.001. A randomized Nystrom approximation
finds them from as many products as its rank, and conjugate gradients are left with the rest,
which damping dominates. (Frangella, Tropp and Udell, Randomized Nystrom preconditioning,
SIAM Journal on Matrix Analysis and Applications, 2023.)
"""

import functools
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jax.scipy.sparse.linalg import cg, gmres
from jaxtyping import Array, Float
from scipy import linalg

from pns_infer.bootstrap.problem import (
    Curvature,
    Equation,
    SolveConfig,
    Vector,
    column_scores,
    output_gradient,
)


def product(
    equation: Equation,
    curvature: Curvature,
    damping: float | Float[Array, ""],
    direction: Vector,
) -> Vector:
    """Computes (J + damping) direction."""
    of_batch = _ggn_product if curvature == "ggn" else _score_derivative

    def add(total: jax.Array, batch: tuple) -> tuple[jax.Array, None]:
        inputs, counts = batch
        return total + of_batch(equation, inputs, counts, direction), None

    batches = (equation.inputs, equation.counts)
    return jax.lax.scan(add, damping * direction, batches)[0]


@functools.partial(jax.jit, static_argnums=1)
def dense_matrix(
    equation: Equation, curvature: Curvature
) -> Float[Array, "num_parameters num_parameters"]:
    """Forms J, 64 columns at a time."""
    vector = equation.vector
    columns = jax.lax.map(
        functools.partial(product, equation, curvature, 0.0),
        jnp.eye(len(vector), dtype=vector.dtype),
        batch_size=min(64, len(vector)),
    )
    return columns.T  # row i of the products is J e_i


def _score_derivative(
    equation: Equation,
    inputs: Float[Array, "n width"],
    counts: Float[Array, "n c"],
    direction: Vector,
) -> Vector:
    """Differentiates a batch's part of Psi."""

    def psi(v: jax.Array) -> jax.Array:
        outputs, pull = jax.vjp(lambda v: equation.outputs(v, inputs), v)
        weights = counts / equation.sizes
        return pull(output_gradient(equation.problem, outputs, weights))[0]

    return jax.jvp(psi, (equation.vector,), (direction,))[1]


def _ggn_product(
    equation: Equation,
    inputs: Float[Array, "n width"],
    counts: Float[Array, "n c"],
    direction: Vector,
) -> Vector:
    """Multiplies by Jacobian transposed, Fisher matrix of the outputs, and Jacobian."""
    vector = equation.vector
    outputs, push = jax.linearize(lambda v: equation.outputs(v, inputs), vector)
    fisher = output_fisher(equation, outputs, counts)
    change = jnp.einsum("nij,nj->ni", fisher, push(direction))
    return jax.linear_transpose(push, vector)(change)[0]


def output_fisher(
    equation: Equation, outputs: Float[Array, "n k"], counts: Float[Array, "n c"]
) -> Float[Array, "n k k"]:
    """Computes the expected curvature of the loss in the outputs.

    For each trial (group of columns) it is the number of units times the sum over
    outcomes of probability times score times its transpose.
    """
    losses, scores = column_scores(equation.problem, outputs, counts.shape)
    trial = np.array(equation.problem.trial)
    same = jnp.asarray(trial[:, None] == trial[None, :], counts.dtype)
    expected = jnp.exp(-losses).T * (counts @ same) / equation.sizes  # [n, c]
    return jnp.einsum("nc,cni,cnj->nij", expected, scores, scores)


_ROWS = 8192  # of A at a time


def gauss_newton_matrix(
    equation: Equation,
) -> Float[np.ndarray, "num_parameters num_parameters"]:
    """Forms the matrix 'ggn', without damping.

    Rows are multiplied in the precision of the parameters; the products, each of several
    thousand rows, are added in double precision.
    """
    inputs, roots = _split_fisher(equation)
    size = min(_ROWS, equation.counts[..., 0].size * roots.shape[1])
    total = np.zeros((equation.num_parameters, equation.num_parameters))
    for start in range(0, len(roots), size):
        parts = [part[start : start + size] for part in (inputs, roots)]
        count = len(parts[0])
        # Filled up, so that nothing is compiled for the last ones.
        filled = [np.pad(part, ((0, size - count), (0, 0))) for part in parts]
        rows = np.asarray(_gradients(equation, *filled))[:count]
        total += rows.T @ rows  # NumPy computes one triangle of this product
    return total


def _split_fisher(
    equation: Equation,
) -> tuple[Float[np.ndarray, "num_rows width"], Float[np.ndarray, "num_rows k"]]:
    """Writes each Fisher matrix as a sum of r r^T; returns inputs and r of each term.

    Terms below the rounding error of the cell's largest are left out.
    """
    fisher = np.asarray(_fisher_matrices(equation))
    precision = np.finfo(fisher.dtype).eps
    fisher = fisher.reshape(-1, *fisher.shape[2:])
    if not np.all(np.isfinite(fisher)):
        raise pb.InputError("params", "must be finite, and so must the outputs.")
    values, vectors = np.linalg.eigh(fisher)
    cell, term = np.nonzero(values > precision * values[:, -1:].clip(min=0))
    roots = vectors[cell, :, term] * np.sqrt(values[cell, term])[:, None]
    inputs = np.asarray(equation.inputs).reshape(len(fisher), -1)
    return inputs[cell], roots


@jax.jit
def _fisher_matrices(equation: Equation) -> Float[Array, "num_batches batch k k"]:
    def of_batch(batch: tuple) -> jax.Array:
        inputs, counts = batch
        outputs = equation.outputs(equation.vector, inputs)
        return output_fisher(equation, outputs, counts)

    return jax.lax.map(of_batch, (equation.inputs, equation.counts))


@jax.jit
def _gradients(
    equation: Equation, inputs: Float[Array, "n width"], roots: Float[Array, "n k"]
) -> Float[Array, "n num_parameters"]:
    """Computes the gradient of each row's combination of outputs."""

    def combined(v: jax.Array, row: jax.Array, root: jax.Array) -> jax.Array:
        return equation.outputs(v, row[None])[0] @ root

    gradient = jax.vmap(jax.grad(combined), in_axes=(None, 0, 0))
    return gradient(equation.vector, inputs, roots)


_PRECISION = 1e-6  # of a product in single precision, beside the largest eigenvalue


class Preconditioner(NamedTuple):
    """Shrinks a vector along some directions, and leaves it as it is along the rest."""

    basis: Float[Array | np.ndarray, "rank num_parameters"]  # orthonormal
    shrinkage: Float[Array | np.ndarray, " rank"]  # the part that is taken away

    def __call__(self, vector: Vector) -> Vector:
        """Multiplies by the approximate inverse, up to a factor."""
        return vector - (self.shrinkage * (self.basis @ vector)) @ self.basis


def make_preconditioner(equation: Equation, config: SolveConfig) -> Preconditioner:
    """Approximates the inverse of 'ggn' with damping; does nothing for J itself.

    That may be negative, where a Nystrom approximation does not exist.
    """
    num_parameters = equation.num_parameters
    wanted = config.preconditioner_rank if config.curvature == "ggn" else 0
    rank = min(wanted, num_parameters)
    rng = np.random.default_rng(0)  # decides how quickly solves end, not where
    sketch = np.linalg.qr(rng.standard_normal((num_parameters, rank)))[0].T
    dtype, size = jax.dtypes.canonicalize_dtype(float), config.draws_per_batch
    products = [
        np.asarray(_products(equation, sketch[i : i + size].astype(dtype)), float)
        for i in range(0, rank, size)
    ]
    values, basis = _leading_pairs(sketch, np.concatenate(products or [sketch]))
    smallest = np.min(values, initial=np.inf)
    shrinkage = 1 - (smallest + config.damping) / (values + config.damping)
    return Preconditioner(basis.astype(dtype), shrinkage.astype(dtype))


def _leading_pairs(
    sketch: Float[np.ndarray, "rank p"], products: Float[np.ndarray, "rank p"]
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "r p"]]:
    """Finds eigenvalues and eigenvectors of the approximation, those beyond rounding.

    With S the sketch and Y = S J, both by rows, the approximation is Y^T (S Y^T)^-1 Y.
    """
    core = sketch @ products.T
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    kept = values > _PRECISION * np.max(values, initial=0)
    half = (vectors[:, kept] / np.sqrt(values[kept])).T @ products
    values, vectors = np.linalg.eigh(half @ half.T)
    return values, (vectors / np.sqrt(values)).T @ half


@jax.jit
def _products(
    equation: Equation, directions: Float[Array, "d num_parameters"]
) -> Float[Array, "d num_parameters"]:
    return jax.vmap(functools.partial(product, equation, "ggn", 0.0))(directions)


Vectors = Float[np.ndarray, "d num_parameters"]
Residuals = Float[np.ndarray, " d"]  # relative
Matrix = Float[np.ndarray, "num_parameters num_parameters"]
Solver = Callable[[Vectors], tuple[Vectors, Residuals]]


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
    return _make_iterative(equation, config, transpose)


def _make_direct(matrix: Matrix, config: SolveConfig) -> Solver:
    """Factors the matrix, in double precision."""
    if not np.all(np.isfinite(matrix)):
        problem = "and outputs must be finite: their matrix is not."
        raise pb.InputError("params", problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error", linalg.LinAlgWarning)
        try:
            if config.curvature == "ggn":
                factor = linalg.cho_factor(matrix, check_finite=False)
                solve = functools.partial(linalg.cho_solve, factor, check_finite=False)
            else:
                factor = linalg.lu_factor(matrix, check_finite=False)
                solve = functools.partial(linalg.lu_solve, factor, check_finite=False)
        except (linalg.LinAlgError, linalg.LinAlgWarning) as error:
            raise pb.InputError(
                "damping",
                f"{config.damping:g} is too small: the matrix {config.curvature!r} of "
                f"{len(matrix)} parameters cannot be factored; take more damping, or "
                "curvature='ggn'.",
            ) from error

    def solve_all(right: Vectors) -> tuple[Vectors, Residuals]:
        solutions = solve(np.asarray(right, float).T).T
        residuals = _relative(solutions @ matrix.T - right, right)
        return solutions.astype(right.dtype), residuals

    return solve_all


def _make_iterative(equation: Equation, config: SolveConfig, transpose: bool) -> Solver:
    """Solves for as many right-hand sides at a time as activations may be held for."""
    preconditioner = make_preconditioner(equation, config)
    size = config.draws_per_batch * jax.local_device_count()
    # What a solve is compiled for, and what it is compiled without.
    compiled = (config.curvature, config.max_iterations, transpose)
    arrays, limits = (equation, preconditioner), (config.damping, config.tolerance)

    def solve_all(right: Vectors) -> tuple[Vectors, Residuals]:
        solutions, gaps = [], []
        for start in range(0, len(right), size):
            batch = right[start : start + size]
            found = _solve_iteratively(*compiled, *arrays, _spread(batch), *limits)
            solutions.append(np.asarray(found[0])[: len(batch)])
            gaps.append(np.asarray(found[1])[: len(batch)])
        return np.concatenate(solutions), _relative(np.concatenate(gaps), right)

    return solve_all


def _spread(right: Vectors) -> Vectors | Float[Array, "filled num_parameters"]:
    """Deals right-hand sides to the devices of this process, filled up with zeros."""
    devices = jax.local_devices()
    if len(devices) == 1:
        return right
    filled = np.pad(right, ((0, -len(right) % len(devices)), (0, 0)))
    mesh = jax.sharding.Mesh(np.array(devices), ("draw",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("draw"))
    return jax.device_put(filled, sharding)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _solve_iteratively(
    curvature: Curvature,
    max_iterations: int,
    transpose: bool,
    equation: Equation,
    preconditioner: Preconditioner,
    right: Float[Array, "d num_parameters"],
    damping: float,
    tolerance: float,
) -> tuple[Float[Array, "d num_parameters"], Float[Array, "d num_parameters"]]:
    """Returns solutions, and what they leave of the right-hand sides."""
    apply = functools.partial(product, equation, curvature, damping)
    if transpose:
        transposed = jax.linear_transpose(apply, equation.vector)

        def apply(direction: jax.Array) -> jax.Array:
            return transposed(direction)[0]

    if curvature == "estimating_equation":
        restart = min(20, max_iterations)
        cycles = -(-max_iterations // restart)
        solve = functools.partial(gmres, apply, restart=restart, maxiter=cycles)
    else:
        solve = functools.partial(cg, apply, maxiter=max_iterations)
    solutions = jax.vmap(lambda b: solve(b, tol=tolerance, M=preconditioner)[0])(right)
    return solutions, jax.vmap(apply)(solutions) - right


def _relative(gap: Vectors, right: Vectors) -> Residuals:
    size = np.linalg.norm(right, axis=1)
    return np.linalg.norm(gap, axis=1) / np.where(size > 0, size, 1)
