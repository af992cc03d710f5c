"""Folds: who is held out with whom.

Every unit lies in one fold. A row of `FoldedCounts` holds the units of one fold that
share covariates, so a covariate vector has as many rows as folds in which it occurs.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike

from pns_models._data import (
    Counts,
    check_counts,
    flat_weights,
    group_rows,
    merge_counts,
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

    def cell_totals(self) -> Float[np.ndarray, "num_cells 8"]:
        """Sums the counts of each cell over the folds."""
        weights = flat_weights(self.counts)
        size = int(self.cell.max()) + 1
        sums = [np.bincount(self.cell, column, size) for column in weights.T]
        return np.stack(sums, axis=1)


def make_folds(
    rng: np.random.Generator,
    counts: Counts,
    num_folds: int,
    groups: ArrayLike | None = None,
    whole_rows: bool = False,
) -> FoldedCounts:
    """Assigns every unit to a fold at random.

    Args:
      rng: decides the folds.
      counts: any counts, merged or not.
      num_folds: at least 2.
      groups: of each row, a label; rows of a group lie in one fold.
      whole_rows: keep the units of a row in one fold, as a row that stands for one unit
        with a weight; otherwise a count of c is c units, each with a fold of its own.

    Returns:
      The counts by covariates and fold; rows of a fold that share covariates are merged.

    Raises:
      TooFewRowsError: if a fold lacks units of the observational source or of an arm.
    """
    if num_folds < 2:
        raise ValueError(f"num_folds must be at least 2, got {num_folds}.")
    check_counts(counts)
    if groups is None and not whole_rows:
        folded = _thin(rng, merge_counts(counts), num_folds)
    else:
        labels = _checked_labels(groups, len(counts.z))
        folded = _merge(counts, _assign_labels(rng, labels, num_folds))
    _check_folds(folded, num_folds)
    return folded


def _checked_labels(groups: ArrayLike | None, size: int) -> Shaped[np.ndarray, " n"]:
    """Returns a label of each row; without groups each has one of its own."""
    if groups is None:
        return np.arange(size)
    labels = np.asarray(groups)
    if labels.shape != (size,):
        raise ValueError(
            f"groups must hold {size} labels, one per row of counts, got shape "
            f"{list(labels.shape)}."
        )
    return labels


def _thin(rng: np.random.Generator, counts: Counts, num_folds: int) -> FoldedCounts:
    """Gives every unit a fold of its own, on counts: a multinomial for each count."""
    weights = flat_weights(counts)
    whole = np.floor(weights).astype(int)
    shares = np.full(num_folds, 1 / num_folds)
    parts = np.moveaxis(rng.multinomial(whole, shares), -1, 0).astype(np.float32)
    # A fraction of a unit lies in one fold.
    place = rng.integers(0, num_folds, whole.shape)
    parts += (np.arange(num_folds)[:, None, None] == place) * (weights - whole)
    fold, cell = np.nonzero(parts.sum(axis=2) > 0)
    cells = parts[fold, cell].reshape(-1, 2, 2, 2)
    z = np.asarray(counts.z)[cell]
    return FoldedCounts(Counts(z, cells[:, 0], cells[:, 1]), fold, cell)


def _assign_labels(
    rng: np.random.Generator, labels: Shaped[np.ndarray, " n"], num_folds: int
) -> Int[np.ndarray, " n"]:
    """Puts the largest groups first, each into the fold that has the fewest rows."""
    _, group, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if sizes.max() == 1:
        fold = np.arange(len(labels)) % num_folds
        return rng.permutation(fold)
    fold_of, load = np.zeros(len(sizes), int), np.zeros(num_folds)
    order = rng.permutation(len(sizes))
    for number in order[np.argsort(-sizes[order], kind="stable")]:
        fold_of[number] = int(np.argmin(load))
        load[fold_of[number]] += sizes[number]
    return fold_of[group]


def _merge(counts: Counts, fold: Int[np.ndarray, " n"]) -> FoldedCounts:
    """Merges rows that share covariates and fold."""
    z = np.asarray(counts.z, np.float32)
    joined = np.concatenate([z, fold[:, None].astype(np.float32)], axis=1)
    merged = merge_counts(Counts(joined, counts.observational, counts.experimental))
    z, fold = merged.z[:, :-1], merged.z[:, -1].astype(int)
    _, cell = group_rows(z)
    return FoldedCounts(merged._replace(z=z), fold, cell)


def _check_folds(folded: FoldedCounts, num_folds: int) -> None:
    """Raises if a fold lacks units of the observational source or of an arm."""
    weights = flat_weights(folded.counts)
    sums = np.stack([np.bincount(folded.fold, w, num_folds) for w in weights.T], axis=1)
    parts = {
        "observational units": sums[:, :4].sum(axis=1),
        "experimental units in the control arm": sums[:, 4:6].sum(axis=1),
        "experimental units in the treatment arm": sums[:, 6:].sum(axis=1),
    }
    for name, by_fold in parts.items():
        if by_fold.min() <= 0:
            first = int(by_fold.argmin())
            raise TooFewRowsError(
                f"fold {first + 1} of {num_folds} has no {name}; give more data, fewer "
                "folds, or smaller groups.",
                part="fold",
                observational=float(sums[first, :4].sum()),
                experimental=float(sums[first, 4:].sum()),
            )
