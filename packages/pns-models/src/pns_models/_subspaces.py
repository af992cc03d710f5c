"""The linear combinations of covariates that networks with a bottleneck agree on.

Every network has found its own; they span a subspace, and most of them nearly the same
one. Some are stuck in another. Means over the projections are therefore weighted: a
network counts the less the farther its subspace lies from the common one, in the manner of a
median.
"""

import numpy as np
from jaxtyping import Float

_NUM_ITERATIONS = 20
_LEAST_SHARE = 0.02  # of what networks' first layers weigh, for a direction to count
_LEAST_DISTANCE = 1e-3


def common_subspace(
    kernels: Float[np.ndarray, "m d b"], covariance: Float[np.ndarray, "d d"]
) -> Float[np.ndarray, "d rank"]:
    """Finds the subspace that is nearest to those of most networks.

    Returns:
      Columns whose products with the covariates are uncorrelated and have variance 1,
      fewer than b if fewer covariates vary.

    Example:
      >>> kernels = np.array([[[1.0], [0.0]], [[2.0], [0.0]], [[0.0], [1.0]]])
      >>> np.abs(common_subspace(kernels, np.eye(2))).round(2).tolist()
      [[1.0], [0.0]]
    """
    values, vectors = np.linalg.eigh(np.asarray(covariance, float))
    kept = values > 1e-9 * values.max()
    root = (
        np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    )  # covariance = root.T root
    size = kernels.shape[2]
    bases = [np.linalg.qr(root @ kernel)[0] for kernel in np.asarray(kernels, float)]
    projections = np.stack([q @ q.T for q in bases])
    top = np.linalg.eigh(projections.mean(axis=0))[1][:, -size:]
    for _ in range(_NUM_ITERATIONS):
        agreement = np.array([np.sum((q.T @ top) ** 2) for q in bases]) / size
        distance = np.sqrt(np.maximum(1 - agreement, _LEAST_DISTANCE**2))
        mean = np.tensordot(1 / distance, projections, 1)
        top = np.linalg.eigh(mean)[1][:, -size:]
    return vectors[:, kept] @ (top / np.sqrt(values[kept])[:, None])


def weighed_directions(kernels: Float[np.ndarray, "m d b"]) -> Float[np.ndarray, "d r"]:
    """Finds the directions that networks' first layers weigh, with or without a bottleneck.

    Returns:
      Orthogonal columns, whose lengths are the weights. Covariates times these are
      coordinates in which networks change about as fast in all directions; those with
      little weight are left out.

    Example:
      >>> kernels = np.array([[[3.0, 0.0], [0.0, 0.0]], [[3.0, 0.1], [0.0, 0.0]]])
      >>> np.abs(weighed_directions(kernels)).round(2).tolist()
      [[3.0], [0.0]]
    """
    kernels = np.asarray(kernels, float)
    values, vectors = np.linalg.eigh(np.einsum("mdb,meb->de", kernels, kernels))
    values = values / len(kernels)
    # At least one is kept, however evenly many covariates are weighed.
    kept = values >= min(_LEAST_SHARE * values.sum(), values.max())
    return vectors[:, kept] * np.sqrt(values[kept])
