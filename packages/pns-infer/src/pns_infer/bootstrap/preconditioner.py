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
from jaxtyping import Array, Float, PyTree

from pns_infer.bootstrap.batches import Batches
from pns_infer.bootstrap.curvature import make_equation, product
from pns_infer.bootstrap.problem import BootstrapProblem, SolveConfig

_PRECISION = (
    1e-6  # of a product in single precision, relative to the largest eigenvalue
)


class Preconditioner(NamedTuple):
    """Shrinks a vector along some directions, and leaves it as it is along the rest.

    Attributes:
      basis: the directions, orthonormal.
      shrinkage: the part that is taken away.
    """

    basis: Float[Array | np.ndarray, "rank num_parameters"]
    shrinkage: Float[Array | np.ndarray, " rank"]

    def __call__(
        self, vector: Float[Array, " num_parameters"]
    ) -> Float[Array, " num_parameters"]:
        """Multiplies by the approximate inverse, up to a factor."""
        return vector - (self.shrinkage * (self.basis @ vector)) @ self.basis


def make_preconditioner(
    problem: BootstrapProblem, config: SolveConfig, params: PyTree, batches: Batches
) -> Preconditioner:
    """Approximates the inverse of 'ggn' with damping; does nothing for other curvatures.

    Those may be negative, where a Nystrom approximation does not exist.
    """
    num_parameters = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    wanted = config.preconditioner_rank if config.curvature == "ggn" else 0
    rank = min(wanted, num_parameters)
    rng = np.random.default_rng(0)  # decides how quickly solves end, not where
    sketch = np.linalg.qr(rng.standard_normal((num_parameters, rank)))[0].T
    dtype = jax.dtypes.canonicalize_dtype(float)
    products = [
        np.asarray(_products(problem, params, batches, some.astype(dtype)), float)
        for some in _split(sketch, config.draws_per_batch)
    ]
    values, basis = _leading_pairs(sketch, np.concatenate(products or [sketch]))
    smallest = np.min(values, initial=np.inf)
    shrinkage = 1 - (smallest + config.damping) / (values + config.damping)
    return Preconditioner(basis.astype(dtype), shrinkage.astype(dtype))


def _split(vectors: np.ndarray, size: int) -> list[np.ndarray]:
    return [vectors[i : i + size] for i in range(0, len(vectors), size)]


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


@functools.partial(jax.jit, static_argnums=0)
def _products(
    problem: BootstrapProblem,
    params: PyTree,
    batches: Batches,
    directions: Float[Array, "d num_parameters"],
) -> Float[Array, "d num_parameters"]:
    equation = make_equation(problem, params, batches)
    return jax.vmap(functools.partial(product, equation, "ggn"))(directions)
