"""Groups of rows with similar covariates."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from pns_infer.core.inputs import check_at_least, check_shape

Array = Any  # NumPy or JAX
_NUMBERS = 2**20  # whose variances are summed at a time, about


def neighborhoods(
    z: Float[Array, "num_rows num_covariates"],
    size: int,
    scale: Float[np.ndarray, " num_covariates"] | None = None,
    order: Int[np.ndarray, " num_rows"] | None = None,
) -> Int[np.ndarray, " num_rows"]:
    """Cuts rows into groups of near neighbors, of `size` to 2 `size` rows each.

    Rows are halved at the median of the column that varies most, again and again. Labels
    count from 0. Columns are divided by `scale` before they are compared; None if they
    are on comparable scales already. The order of the rows parts those with a tie.

    Example:
      >>> neighborhoods([[0.0], [9.0], [1.0], [8.0]], size=2).tolist()
      [1, 0, 1, 0]
    """
    z = np.asarray(z)
    check_shape("z", z, ("num_rows", "num_covariates"))
    check_at_least("size", size, 1)
    labels = np.zeros(len(z), int)
    scale = np.ones(z.shape[1]) if scale is None else scale
    pending, number = [np.arange(len(z)) if order is None else order], 0
    while pending:
        rows = pending.pop()
        if len(rows) < 2 * size:
            labels[rows] = number
            number += 1
            continue
        column = np.argmax(_variances(z, rows) / scale**2)
        rows = rows[np.argsort(z[rows, column], kind="stable")]
        pending += [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
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
