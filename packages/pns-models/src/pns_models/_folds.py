"""Folds: who is held out with whom.

Every row of the data lies in one fold, whatever its weight. A row of `FoldedCounts` holds
the units of one fold that share covariates, so a covariate vector has as many rows as folds
in which it occurs.
"""

from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int, Num, Shaped
from numpy.typing import ArrayLike

from pns_models._data import (
    Counts,
    check_groups,
    flat_weights,
)
from pns_models._errors import TooFewRowsError


class FoldedCounts(NamedTuple):
    """Counts by covariates and fold.

    Attributes:
      counts: the units of each row.
      fold: of each row, from 0.
      cell: of each row, from 0; rows of a cell share their covariates.
    """

    counts: Counts
    fold: Int[np.ndarray, " n"]
    cell: Int[np.ndarray, " n"]

    @property
    def num_folds(self) -> int:
        """Number of folds."""
        return int(self.fold.max()) + 1

    def cell_totals(self) -> Float[np.ndarray, "num_cells counts"]:
        """Sums the counts of each cell over the folds."""
        weights = flat_weights(self.counts)
        size = int(self.cell.max()) + 1
        sums = [np.bincount(self.cell, column, size) for column in weights.T]
        return np.stack(sums, axis=1)

    def cell_covariates(self) -> Float[np.ndarray, "num_cells d"]:
        """Returns the covariates of each cell."""
        z, first = np.asarray(self.counts.z), np.unique(self.cell, return_index=True)[1]
        is_one_each = np.array_equal(first, np.arange(len(z)))
        return z if is_one_each else z[first]


def deal_folds(
    rng: np.random.Generator,
    part: Int[np.ndarray, " n"],
    num_folds: int,
    groups: ArrayLike | None = None,
) -> Int[np.ndarray, " n"]:
    """Deals rows to folds at random.

    Folds are as equal as they can be: in rows, and in rows of the log and of each arm.

    Args:
      rng: decides the folds.
      part: of each row: 0 in the log, 1 in the control arm, 2 in the treatment arm.
      num_folds: at least 2.
      groups: of each row, a label; rows of a group lie in one fold.

    Returns:
      The fold of each row, from 0, as int16.

    Raises:
      TooFewRowsError: if a fold lacks rows of the log or of an arm.

    Example:
      >>> import numpy as np
      >>> part = np.repeat([0, 1, 2], [6, 3, 3])
      >>> fold = deal_folds(np.random.default_rng(0), part, num_folds=3)
      >>> np.bincount(fold[:6]).tolist(), np.bincount(fold[9:]).tolist()
      ([2, 2, 2], [1, 1, 1])
    """
    fold = _deal(rng, np.asarray(part), num_folds, groups)
    parts = [np.bincount(fold[part == i], minlength=num_folds) for i in range(3)]
    _check_folds(np.stack(parts, axis=1))
    return fold


def deal_held_out(
    rng: np.random.Generator,
    num_rows: int,
    fraction: float,
    groups: ArrayLike | None = None,
) -> Int[np.ndarray, " n"]:
    """Marks each row, or each group, as held out with the given probability: 1, else 0.

    Example:
      >>> import numpy as np
      >>> deal_held_out(np.random.default_rng(0), 1000, 0.1).mean().round(1)
      np.float64(0.1)
    """
    if groups is None:
        return (rng.random(num_rows) < fraction).astype(np.int16)
    _, group = np.unique(check_groups(groups, num_rows), return_inverse=True)
    drawn = rng.random(int(group.max()) + 1) < fraction
    return drawn[group].astype(np.int16)


def _deal(
    rng: np.random.Generator,
    part: Int[np.ndarray, " n"],
    num_folds: int,
    groups: ArrayLike | None,
) -> Int[np.ndarray, " n"]:
    """Deals rows to folds: whole groups first, then single rows, part by part."""
    if num_folds < 2:
        raise pb.InputError("num_folds", f"must be at least 2, got {num_folds}.")
    fold = np.full(len(part), -1, np.int16)  # small: there may be many millions of rows
    if groups is not None:
        _deal_groups(rng, fold, check_groups(groups, len(part)), part, num_folds)
    place = np.int32 if len(part) < 2**31 else np.int64
    alone = rng.permutation(np.flatnonzero(fold < 0).astype(place))
    alone = np.concatenate([alone[part[alone] == i] for i in range(3)])
    order = rng.permutation(num_folds).astype(fold.dtype)
    fold[alone] = np.resize(order, len(alone))
    return fold


def _deal_groups(
    rng: np.random.Generator,
    fold: Int[np.ndarray, " n"],
    labels: Shaped[np.ndarray, " n"],
    part: Int[np.ndarray, " n"],
    num_folds: int,
) -> None:
    """Fills in the folds of rows that are not alone in their group.

    The largest groups come first, each goes where it adds least to the sum of squared
    shares that folds have in all rows and in each part.
    """
    _, group, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    parts = np.stack([np.bincount(group, part == i) for i in range(3)], axis=1)
    content = np.concatenate([sizes[:, None], parts], axis=1)
    content = content / np.maximum(content.sum(axis=0), 1)
    load = np.zeros((num_folds, 4))
    fold_of = np.full(len(sizes), -1)
    order = rng.permutation(np.flatnonzero(sizes > 1))
    for number in order[np.argsort(-sizes[order], kind="stable")]:
        fold_of[number] = np.argmin(load @ content[number])
        load[fold_of[number]] += content[number]
    fold[:] = fold_of[group]


def _check_folds(sums: Num[np.ndarray, "num_folds 3"]) -> None:
    """Raises if a fold lacks units of the observational source or of an arm."""
    names = (
        "observational units",
        "experimental units in the control arm",
        "experimental units in the treatment arm",
    )
    for name, by_fold in zip(names, sums.T, strict=True):
        if by_fold.min() <= 0:
            first = int(by_fold.argmin())
            raise TooFewRowsError(
                f"fold {first + 1} of {len(sums)} has no {name}; give more data, fewer "
                "folds, or smaller groups.",
                part="fold",
                observational=float(sums[first, 0]),
                experimental=float(sums[first, 1:].sum()),
            )
