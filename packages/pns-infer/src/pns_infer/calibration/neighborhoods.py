"""Groups of rows with similar covariates."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from pns_infer.core.inputs import check_at_least, check_shape

Array = Any  # NumPy or JAX
_NUMBERS = 2**20  # whose variances are summed at a time, about


def neighborhoods(
    z: Float[Array, "num_rows num_covariates"], size: int
) -> Int[np.ndarray, " num_rows"]:
    """Cuts rows into groups of near neighbors, of `size` to 2 `size` rows each.

    Rows are halved at the median of the column that varies most, again and again.
    Covariates must be on comparable scales; labels count from 0.

    Example:
      >>> neighborhoods([[0.0], [9.0], [1.0], [8.0]], size=2).tolist()
      [1, 0, 1, 0]
    """
    z = np.asarray(z)
    check_shape("z", z, ("num_rows", "num_covariates"))
    check_at_least("size", size, 1)
    labels = np.zeros(len(z), int)
    pending, number = [np.arange(len(z))], 0
    while pending:
        rows = pending.pop()
        if len(rows) < 2 * size:
            labels[rows] = number
            number += 1
            continue
        column = np.argmax(_variances(z, rows))
        order = rows[np.argsort(z[rows, column], kind="stable")]
        pending += [order[: len(rows) // 2], order[len(rows) // 2 :]]
    return labels


def _variances(
    z: Float[np.ndarray, "n d"], rows: Int[np.ndarray, " some"]
) -> Float[np.ndarray, " d"]:
    """Computes the variance of each column over some rows, a block at a time."""
    blocks = np.array_split(rows, -(-len(rows) * z.shape[1] // _NUMBERS))
    mean, squares = np.zeros(z.shape[1]), np.zeros(z.shape[1])
    for block in blocks:
        mean += np.sum(z[block], axis=0, dtype=float) / len(rows)
    for block in blocks:
        squares += np.sum((z[block] - mean) ** 2, axis=0)
    return squares / len(rows)
