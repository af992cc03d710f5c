"""A preconditioner for networks with too many parameters to form their curvature.

Few directions hold most of the curvature of a network: of 52,358 eigenvalues about 130
exceed a damping of 0.001. A randomized Nystrom approximation finds them from as many products
as its rank, and conjugate gradients are left with the rest, which damping dominates.
(Frangella, Tropp and Udell, Randomized Nystrom preconditioning, SIAM Journal on Matrix
Analysis and Applications, 2023.)
"""

import functools
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from pns_infer.bootstrap.curvature import product
from pns_infer.bootstrap.equation import Equation, Vector
from pns_infer.bootstrap.problem import SolveConfig

_PRECISION = 1e-6  # of a product in single precision, beside the largest eigenvalue


class Preconditioner(NamedTuple):
    """Shrinks a vector along some directions, and leaves it as it is along the rest."""

    basis: Float[Array | np.ndarray, "rank num_parameters"]  # orthonormal
    shrinkage: Float[Array | np.ndarray, " rank"]  # the part that is taken away

    def __call__(self, vector: Vector) -> Vector:
        """Multiplies by the approximate inverse, up to a factor."""
        return vector - (self.shrinkage * (self.basis @ vector)) @ self.basis


def make_preconditioner(equation: Equation, config: SolveConfig) -> Preconditioner:
    """Approximates the inverse of 'ggn' with damping; does nothing for other curvatures.

    Those may be negative, where a Nystrom approximation does not exist.
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
