"""Folds: who is held out with whom.

Every row of the data lies in one fold, whatever its weight. A row of `FoldedCounts` holds
the units of one fold that share covariates, so a covariate vector has as many rows as folds
in which it occurs.
"""

from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike

from pns_models._data import (
    Counts,
    check_counts,
    check_groups,
    flat_weights,
    group_rows,
    number_groups,
    sum_rows,
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


def assign_folds(
    rng: np.random.Generator,
    counts: Counts,
    num_folds: int,
    groups: ArrayLike | None = None,
) -> Int[np.ndarray, " n"]:
    """Assigns every row to a fold at random.

    Folds are as equal as they can be: in rows, and in rows of the observational source
    and of each arm.

    Args:
      rng: decides the folds.
      counts: one row per unit, whatever its weight; a row lies in one fold.
      num_folds: at least 2.
      groups: of each row, a label; rows of a group lie in one fold.

    Returns:
      The fold of each row, from 0.

    Raises:
      TooFewRowsError: if a fold lacks units of the observational source or of an arm.

    Example:
      >>> import numpy as np
      >>> import pns_models as pm
      >>> z, x, y = np.arange(12.0)[:, None], np.arange(12) % 2, np.arange(12) // 6
      >>> counts = pm.counts_from_tables((z, x, y), (z, x, y), merge=False)
      >>> fold = assign_folds(np.random.default_rng(0), counts, num_folds=3)
      >>> np.bincount(fold[:12]).tolist()  # of the observational rows
      [4, 4, 4]
      >>> np.bincount(fold[12:][x == 1]).tolist()  # of the treatment arm
      [2, 2, 2]
      >>> pairs = np.arange(24) // 2
      >>> fold = assign_folds(np.random.default_rng(0), counts, 3, groups=pairs)
      >>> bool(np.all(fold[::2] == fold[1::2])), np.bincount(fold).tolist()
      (True, [8, 8, 8])
    """
    check_counts(counts)
    fold = _deal(rng, _part_of_rows(counts), num_folds, groups).astype(int)
    weights = flat_weights(counts)
    sums = np.stack([np.bincount(fold, w, num_folds) for w in weights.T], axis=1)
    arms = (sums[:, :4], sums[:, 4:6], sums[:, 6:])
    _check_folds(np.stack([arm.sum(axis=1) for arm in arms], axis=1))
    return fold


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


def fold_counts(
    counts: Counts, fold: Int[np.ndarray, " n"]
) -> tuple[FoldedCounts, Int[np.ndarray, " n"]]:
    """Merges rows that share covariates and fold.

    Args:
      counts: any counts.
      fold: of each row, from `assign_folds`.

    Returns:
      The counts by covariates and fold, and for each given row its place among them.

    Example:
      >>> import numpy as np
      >>> import pns_models as pm
      >>> log = ([[5.0], [5.0], [5.0]], [0, 1, 1], [0, 1, 1])  # z, x, y
      >>> trial = ([[5.0], [6.0]], [0, 1], [0, 1])
      >>> counts = pm.counts_from_tables(log, trial, merge=False)
      >>> folded, place = fold_counts(counts, np.array([1, 0, 0, 1, 0]))
      >>> place.tolist()  # the two units of z = 5 in fold 0 share a row
      [0, 1, 1, 0, 2]
      >>> folded.fold.tolist(), folded.cell.tolist()
      ([1, 0, 0], [0, 0, 1])
      >>> folded.counts.observational[1].tolist()
      [[0.0, 0.0], [0.0, 2.0]]
    """
    fold = np.asarray(fold)
    _, cell = group_rows(np.asarray(counts.z, np.float32))
    first, place = number_groups(cell.astype(np.int64) * (fold.max() + 1) + fold)
    return FoldedCounts(sum_rows(counts, first, place), fold[first], cell[first]), place


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


def _part_of_rows(counts: Counts) -> Int[np.ndarray, " n"]:
    """Returns 0 for observational rows, 1 for the control and 2 for the treatment arm."""
    place = np.argmax(flat_weights(counts), axis=1)
    return np.where(place < 4, 0, place // 2 - 1)


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


def _check_folds(sums: Float[np.ndarray, "num_folds 3"]) -> None:
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
