"""Covariates on a common scale, with the training data's mean and deviation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Num
from numpy.typing import ArrayLike

from pns_models._data import Counts, check_finite, row_blocks
from pns_models._errors import require


class Standardizer(NamedTuple):
    """Shifts and scales covariates.

    Attributes:
      mean: of the training units.
      deviation: of the training units; 1 for a constant column.
      constant: whether a column does not vary. Such columns become 0.
    """

    mean: Float[np.ndarray, " d"]
    deviation: Float[np.ndarray, " d"]
    constant: Bool[np.ndarray, " d"]

    def __call__(self, z: ArrayLike) -> Float[np.ndarray, "n d"]:
        """Standardizes rows [n, d]; raises if they do not fit or are not finite."""
        z = self.check(z)
        result = np.empty_like(z)
        for part in row_blocks(*z.shape):
            result[part] = (z[part] - self.mean) / self.deviation
        result[:, self.constant] = 0
        return result

    def check(self, z: ArrayLike) -> Float[np.ndarray, "n d"]:
        """Returns rows as float32; raises if they do not fit or are not finite."""
        z = np.asarray(z, np.float32)
        size = len(self.mean)
        require(
            z.ndim == 2 and z.shape[1] == size,
            "z",
            f"must have shape [n, {size}], as in training, got {list(z.shape)}.",
        )
        check_finite("z", z)
        return z

    def compiled(self, z: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Standardizes rows inside a compiled function, bit for bit as outside."""
        # Behind the barrier XLA divides; otherwise it multiplies by a reciprocal.
        deviation = jnp.broadcast_to(self.deviation, z.shape)
        scaled = (z - self.mean) / jax.lax.optimization_barrier(deviation)
        return jnp.where(self.constant, 0, scaled)


def make_standardizer(counts: Counts) -> Standardizer:
    """Computes mean and deviation over units, so a merged row counts as all of its own.

    Example:
      >>> import numpy as np
      >>> z = np.array([[10.0, 7.0], [60.0, 7.0]], np.float32)
      >>> four, one = [[3.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]
      >>> counts = Counts(z, np.array([four, one]), np.zeros((2, 2, 2)))
      >>> standardizer = make_standardizer(counts)  # four units of 10, one of 60
      >>> standardizer.mean.round(3).tolist(), standardizer.deviation.round(3).tolist()
      ([20.0, 7.0], [20.0, 1.0])
      >>> standardizer([[20.0, 7.0], [60.0, 9.0]]).round(3).tolist()
      [[0.0, 0.0], [2.0, 0.0]]
    """
    sources = [np.asarray(part).sum((1, 2)) for part in counts[1:]]
    units = sources[0] + sources[1]
    share = np.asarray(units / units.sum(), np.float64)
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


def weighted_covariance(
    z: Float[np.ndarray, "n d"], weights: Num[np.ndarray, " n"]
) -> Float[np.ndarray, "d d"]:
    """Computes what `numpy.cov` does with these `aweights`, by blocks of rows."""
    share = np.asarray(weights, np.float64) / np.sum(weights, dtype=np.float64)
    mean = _weighted_sum(share, z)
    total = np.zeros((z.shape[1], z.shape[1]))
    for part in row_blocks(*z.shape):
        block = z[part].astype(np.float64) - mean
        total += (block * share[part, None]).T @ block
    return total / (1 - np.sum(share**2))


def _weighted_sum(
    share: Float[np.ndarray, " n"],
    z: Float[np.ndarray, "n d"],
    center: Float[np.ndarray, " d"] | None = None,
) -> Float[np.ndarray, " d"]:
    """Sums share * z, or share * (z - center)^2, in float64 by blocks of rows."""
    total = np.zeros(z.shape[1])
    for part in row_blocks(*z.shape):
        block = z[part].astype(np.float64)
        if center is not None:
            block = (block - center) ** 2
        total += share[part] @ block
    return total
