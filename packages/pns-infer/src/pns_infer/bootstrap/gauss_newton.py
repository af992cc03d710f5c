"""The generalized Gauss-Newton matrix of all parameters, formed once.

At a cell the Fisher matrix of the outputs is the sum of r r^T over a few vectors r: with the
anchored network three for the joint law and one for each arm, fewer where a source has no
units. The gradient of r^T outputs is then a row of a matrix A, and J is A^T A. Its cost is
the number of rows of A times the square of the number of parameters; how many units share
a cell does not matter.
"""

import functools

import jax
import numpy as np
import pns_bounds as pb
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from pns_infer.bootstrap.batches import Batches
from pns_infer.bootstrap.curvature import make_equation, output_fisher
from pns_infer.bootstrap.problem import BootstrapProblem

_ROWS = 8192  # of A at a time


def gauss_newton_matrix(
    problem: BootstrapProblem, params: PyTree, batches: Batches
) -> Float[np.ndarray, "num_parameters num_parameters"]:
    """Forms the matrix 'ggn', without damping.

    Rows are multiplied in the precision of the parameters; the products, each of several
    thousand rows, are added in double precision.
    """
    inputs, roots = _split_fisher(problem, params, batches)
    size = min(_ROWS, batches.counts[..., 0].size * roots.shape[1])
    num_parameters = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    total = np.zeros((num_parameters, num_parameters))
    for start in range(0, len(roots), size):
        parts = [part[start : start + size] for part in (inputs, roots)]
        count = len(parts[0])
        # Filled up, so that nothing is compiled for the last ones.
        filled = [np.pad(part, ((0, size - count), (0, 0))) for part in parts]
        rows = np.asarray(_gradients(problem, params, *filled))[:count]
        total += rows.T @ rows  # NumPy computes one triangle of this product
    return total


def _split_fisher(
    problem: BootstrapProblem, params: PyTree, batches: Batches
) -> tuple[Float[np.ndarray, "num_rows width"], Float[np.ndarray, "num_rows k"]]:
    """Writes each Fisher matrix as a sum of r r^T; returns inputs and r of each term.

    Terms below the rounding error of the cell's largest are left out.
    """
    fisher = np.asarray(_fisher_matrices(problem, params, batches))
    precision = np.finfo(fisher.dtype).eps
    fisher = fisher.reshape(-1, *fisher.shape[2:])
    if not np.all(np.isfinite(fisher)):
        raise pb.InputError("params", "must be finite, and so must the outputs.")
    values, vectors = np.linalg.eigh(fisher)
    cell, term = np.nonzero(values > precision * values[:, -1:].clip(min=0))
    roots = vectors[cell, :, term] * np.sqrt(values[cell, term])[:, None]
    inputs = np.asarray(batches.inputs).reshape(len(fisher), -1)
    return inputs[cell], roots


@functools.partial(jax.jit, static_argnums=0)
def _fisher_matrices(
    problem: BootstrapProblem, params: PyTree, batches: Batches
) -> Float[Array, "num_batches batch k k"]:
    equation = make_equation(problem, params, batches)

    def of_batch(batch: tuple) -> jax.Array:
        inputs, counts = batch
        outputs = equation.outputs(equation.vector, inputs)
        return output_fisher(equation, outputs, counts)

    return jax.lax.map(of_batch, (batches.inputs, batches.counts))


@functools.partial(jax.jit, static_argnums=0)
def _gradients(
    problem: BootstrapProblem,
    params: PyTree,
    inputs: Float[Array, "n width"],
    roots: Float[Array, "n k"],
) -> Float[Array, "n num_parameters"]:
    """Computes the gradient of each row's combination of outputs."""

    def of_row(row: jax.Array, root: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda p: problem.function(p, row[None])[0] @ root)(params)
        return ravel_pytree(gradient)[0]

    return jax.vmap(of_row)(inputs, roots)
