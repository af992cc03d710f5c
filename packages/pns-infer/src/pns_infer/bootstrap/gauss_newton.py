"""The generalized Gauss-Newton matrix of all parameters, formed once.

At a cell the Fisher matrix of the outputs is the sum of r r^T over a few vectors r: with the
anchored network three for the joint law and one for each arm, fewer where a source has no
units. The gradient of r^T outputs is then a row of a matrix A, and J is A^T A. Its cost is
the number of rows of A times the square of the number of parameters; how many units share
a cell does not matter.
"""

import jax
import numpy as np
import pns_bounds as pb
from jaxtyping import Array, Float

from pns_infer.bootstrap.curvature import output_fisher
from pns_infer.bootstrap.equation import Equation

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

    def of_row(row: jax.Array, root: jax.Array) -> jax.Array:
        return jax.grad(lambda v: equation.outputs(v, row[None])[0] @ root)(
            equation.vector
        )

    return jax.vmap(of_row)(inputs, roots)
