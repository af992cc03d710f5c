"""Sums of rows by group."""

import numpy as np
from jaxtyping import Float, Int


def sum_by(
    place: Int[np.ndarray, " n"], values: Float[np.ndarray, "n ..."], size: int = 0
) -> Float[np.ndarray, "places ..."]:
    """Sums the rows of each place; of `size` places, or as many as occur."""
    columns = values.reshape(len(values), -1).T
    sums = np.stack([np.bincount(place, column, size) for column in columns], axis=1)
    return sums.reshape(-1, *values.shape[1:])
