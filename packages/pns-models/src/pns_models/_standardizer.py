"""Covariates on a common scale, with the training data's mean and deviation."""

from typing import Any, NamedTuple

import numpy as np

from pns_models._data import Counts

_BLOCK = 65_536  # rows


class Standardizer(NamedTuple):
    """Shifts and scales covariates.

    Attributes:
      mean: [d] of the training people.
      deviation: [d] of the training people; 1 for a constant column.
      constant: [d] whether a column does not vary. Such columns become 0.
    """

    mean: np.ndarray
    deviation: np.ndarray
    constant: np.ndarray

    def __call__(self, z: Any) -> np.ndarray:
        """Standardizes rows [n, d]; raises if they do not fit or are not finite."""
        z = np.asarray(z, np.float32)
        if z.ndim != 2 or z.shape[1] != len(self.mean):
            raise ValueError(
                f"z must have shape [n, {len(self.mean)}], as in training, got "
                f"{list(z.shape)}."
            )
        bad = ~np.isfinite(z).all(axis=0)
        if bad.any():
            raise ValueError(
                "z has missing or infinite values in columns "
                f"{np.flatnonzero(bad).tolist()}."
            )
        result = np.empty_like(z)
        for start in range(0, len(z), _BLOCK):  # no temporaries of the table's size
            part = slice(start, start + _BLOCK)
            result[part] = (z[part] - self.mean) / self.deviation
        result[:, self.constant] = 0
        return result


def make_standardizer(counts: Counts) -> Standardizer:
    """Computes mean and deviation over people, so merged rows count as often as they do."""
    people = np.asarray(counts.observational).sum((1, 2)) + np.asarray(
        counts.experimental
    ).sum((1, 2))
    share = (people / people.sum()).astype(np.float64)
    z = np.asarray(counts.z)
    mean = _weighted_sum(share, z)
    deviation = np.sqrt(_weighted_sum(share, z, center=mean))
    # A column that float32 cannot tell from a constant is one.
    constant = deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-30)
    return Standardizer(
        mean=mean.astype(np.float32),
        deviation=np.where(constant, 1, deviation).astype(np.float32),
        constant=constant,
    )


def _weighted_sum(share, z, center=None) -> np.ndarray:
    """Sums share * z, or share * (z - center)^2, in float64 by blocks of rows."""
    total = np.zeros(z.shape[1])
    for start in range(0, len(z), _BLOCK):
        part = slice(start, start + _BLOCK)
        block = z[part].astype(np.float64)
        if center is not None:
            block = (block - center) ** 2
        total += share[part] @ block
    return total
