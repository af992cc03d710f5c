"""Errors that all members share, seen in the outcomes of neighbors.

Where covariates never repeat, the members' differences show the error of their mean, but not
a bias that all of them share. Held-out units show it: the expected product of the residuals
of two neighbors is the product of the mean's errors there. By how much it exceeds the
members' covariance is an error that they share.

Only pairs within a fold count. Of two units in different folds each was seen by the
members that judge the other, which makes the product of their residuals too small.
Neighbors share only a part of an error, and only that part is found.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int

from pns_infer.calibration.neighborhoods import neighborhoods
from pns_infer.core.inputs import sum_by, trial_counts

_GROUP_SIZE = 32  # neighbors, at least: fewer are nearer, and tell less of noise
_LEAST_VARIANCE = 1e-12  # of members that differ by more than rounding
_BLOCK = 8192  # rows whose members are held at a time


class SharedError(NamedTuple):
    """Variance of the shared error, as a multiple of the variance of members.

    Attributes:
      excess: the estimate; less than 0 by chance, where there is none.
      standard_error: of it.
    """

    excess: float
    standard_error: float

    @property
    def least(self) -> float:
        """The excess minus one standard error, floored at 0."""
        return max(self.excess - self.standard_error, 0.0)


def shared_error(
    members: Callable[[slice], pb.Atoms],
    held_out: pb.Atoms,
    observational: Float[np.ndarray, "n treatments levels"],
    experimental: Float[np.ndarray, "n treatments levels"],
    fold: Int[np.ndarray, " n"],
    coordinates: Float[np.ndarray, "n k"],
) -> SharedError:
    """Estimates the variance of the error that all members share.

    Args:
      members: computes the atoms [num_members, m] of all members for some of the rows.
      held_out: atoms of each row by the mean of the members that did not see its fold.
      observational: units of each row that chose x and had y.
      experimental: units of each row assigned an arm that had y.
      fold: of each row.
      coordinates: of each row, in which rows with alike predictions are near.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> rng = np.random.default_rng(0)
      >>> z = rng.uniform(size=80_000)
      >>> y = (rng.uniform(size=80_000) < 0.5 + 0.1 * np.sin(6 * z)).astype(int)
      >>> trial = np.zeros((80_000, 2, 2))
      >>> trial[np.arange(80_000), np.arange(80_000) % 2, y] = 1
      >>> one_half = pb.Atoms(np.full((80_000, 2, 2), 0.25), np.full((80_000, 2), 0.5))
      >>> def members(rows):  # 0.49 and 0.51; the truth is 0.5 + 0.1 sin(6 z)
      ...     mu = one_half.mu[rows] + np.array([-0.01, 0.01])[:, None, None]
      ...     return pb.Atoms(np.repeat(one_half.joint[rows][None], 2, axis=0), mu)
      >>> found = shared_error(
      ...     members, one_half, 0 * trial, trial, np.arange(80_000) % 5, z[:, None]
      ... )
      >>> variance = 0.0002  # of the members; the mean square of the error is 0.0052
      >>> abs(variance * found.excess - 0.0050) < 2 * variance * found.standard_error
      True
    """
    parts = [
        _Part(units, residual, columns, np.asarray(fold), coordinates)
        for units, residual, columns in _residuals(
            held_out, observational, experimental
        )
        if units.any()
    ]
    for start in range(0, len(fold), _BLOCK):
        block = slice(start, start + _BLOCK)
        values = np.asarray(pb.pack_atoms(members(block)), float)
        deviation = values - values.mean(axis=0)
        for part in parts:
            part.add_members(block, deviation)
    found = [part.estimate() for part in parts]
    precision = np.array([error**-2 for _, error in found if error > 0])
    if not precision.sum() > 0:
        return SharedError(0.0, 0.0)
    excess = [excess for excess, error in found if error > 0]
    return SharedError(
        float(np.average(excess, weights=precision)),
        float(1 / np.sqrt(precision.sum())),
    )


def _residuals(
    held_out: pb.Atoms,
    observational: Float[np.ndarray, "n treatments levels"],
    experimental: Float[np.ndarray, "n treatments levels"],
) -> Iterator[tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n k"], slice]]:
    """Yields, of the log and of each arm, units and residual sums of every row.

    The third is the place of what was expected among packed atoms.
    """
    expected = np.asarray(pb.pack_atoms(held_out), float)
    log, trial = trial_counts(observational, experimental, len(expected))
    num_free = pb.BINARY.num_free
    units, cells = log.sum(axis=(1, 2)), slice(num_free, None)
    seen = log[:, 0, ::-1]  # as atoms are packed
    yield units, seen - units[:, None] * expected[:, cells], cells
    for column in range(num_free):
        arm = trial[:, num_free - 1 - column]
        units, place = arm.sum(axis=1), slice(column, column + 1)
        yield units, arm[:, 1:] - units[:, None] * expected[:, place], place


class _Part:
    """Units of the log, or of one arm, in neighborhoods of rows of one fold."""

    def __init__(
        self,
        units: Float[np.ndarray, " n"],
        residual: Float[np.ndarray, "n k"],
        columns: slice,
        fold: Int[np.ndarray, " n"],
        coordinates: Float[np.ndarray, "n c"],
    ):
        """Groups the rows that have units, and sums products of their residuals."""
        self._units, self._columns = units, columns
        self._group = np.full(len(units), -1)
        self._size = 0
        for each in np.unique(fold):
            mine = np.flatnonzero((fold == each) & (units > 0))
            if len(mine):
                labels = neighborhoods(coordinates[mine], _GROUP_SIZE)
                self._group[mine] = labels + self._size
                self._size += int(labels.max()) + 1
        rows = self._group >= 0
        self._products = self._sum_pairs(residual[rows], self._group[rows]).sum(axis=1)
        self._pairs = self._sum_pairs(units[rows][:, None], self._group[rows])[:, 0]
        self._sums, self._squares, self._variance, self._degrees = 0.0, 0.0, 0.0, 0

    def add_members(
        self, block: slice, deviation: Float[np.ndarray, "num_members b eta"]
    ) -> None:
        """Takes in how members differ from their mean at some rows."""
        chosen = np.flatnonzero(self._group[block] >= 0)
        if not len(chosen):
            return
        units, group = self._units[block][chosen], self._group[block][chosen]
        deviation = deviation[:, chosen, self._columns]
        self._degrees = len(deviation) - 1
        self._variance += float(np.sum(deviation**2 * units[:, None]))
        weighted = np.moveaxis(deviation * units[:, None], 1, 0)
        weighted = weighted.reshape(len(chosen), -1)
        self._sums = self._sums + sum_by(group, weighted, self._size)
        self._squares = self._squares + sum_by(group, weighted**2, self._size)

    def estimate(self) -> tuple[float, float]:
        """Returns the excess, and its standard error; 0 if there is nothing to tell it."""
        pairs = self._pairs.sum()
        variance = self._variance / (max(self._degrees, 1) * self._units.sum())
        if not (pairs > 0 and variance > _LEAST_VARIANCE):
            return 0.0, 0.0
        covariance = np.sum(self._sums**2 - self._squares, axis=1) / self._degrees
        gap = self._products - covariance
        excess = gap.sum() / pairs
        error = np.sqrt(np.sum((gap - excess * self._pairs) ** 2)) / pairs
        return float(excess / variance), float(error / variance)

    def _sum_pairs(
        self, values: Float[np.ndarray, "m k"], group: Int[np.ndarray, " m"]
    ) -> Float[np.ndarray, "size k"]:
        """Sums products over all ordered pairs of different rows in each group."""
        sums, squares = (
            sum_by(group, part, self._size) for part in (values, values**2)
        )
        return sums**2 - squares
