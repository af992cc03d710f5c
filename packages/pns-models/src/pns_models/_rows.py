"""Rows of all sources in one record: distinct rows, and how many units each counts as.

Nothing that a fit learns from tells rows apart that agree in covariates, source, treatment,
outcome and fold. So one of them is kept, in the place where the first of them stood.
"""

from typing import Literal, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int

from pns_models._data import Counts, group_rows
from pns_models._folds import FoldedCounts

Role = Literal["log", "trial"]


class Source(NamedTuple):
    """A table that units come from.

    Attributes:
      name: what it is called.
      role: in a log units chose the treatment, in a trial it was assigned at random.
    """

    name: str
    role: Role


SOURCES = (Source("observational", "log"), Source("experimental", "trial"))
"""The sources; a row names its own by its place here."""


class Rows(NamedTuple):
    """Distinct rows of all sources, in the order of their first appearance.

    Attributes:
      z: covariates, float32.
      source: of each row, its place in `SOURCES`.
      treatment: chosen in the log, assigned in the trial.
      outcome: its level.
      weights: units that a row counts as.
      copies: independent units that it stands for.
      cell: a number that rows share which agree in all covariates.
      fold: in which the row is held out; None if no folds were dealt.
      group: rows of a group may depend on each other; None if all are independent.
      assignment: probability of the treated arm; None where it is not known.
    """

    z: Float[np.ndarray, "n d"]
    source: Int[np.ndarray, " n"]
    treatment: Int[np.ndarray, " n"]
    outcome: Int[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]
    copies: Float[np.ndarray, " n"]
    cell: Int[np.ndarray, " n"]
    fold: Int[np.ndarray, " n"] | None = None
    group: Int[np.ndarray, " n"] | None = None
    assignment: Float[np.ndarray, " n"] | None = None

    @property
    def is_trial(self) -> np.ndarray:
        """Which rows belong to a trial."""
        return np.array([source.role == "trial" for source in SOURCES])[self.source]

    def take(self, chosen: np.ndarray) -> "Rows":
        """Keeps some rows, by place or as booleans."""
        parts = [None if part is None else part[chosen] for part in self]
        return Rows._make(parts)

    def counts(self, merge: bool | None = True) -> Counts:
        """Adds up the rows that share covariates.

        Args:
          merge: False keeps a row for each unit; None does so unless merging at least
            halves them.
        """
        first, place = distinct_rows(self.cell)
        if merge is None:
            merge = 2 * len(first) <= self.copies.sum()
        if not merge:
            times = np.maximum(self.copies, 1).astype(int)  # parts of a unit stay whole
            first = place = np.repeat(np.arange(len(times)), times)
            single = self._replace(weights=self.weights / times).take(first)
            sums = single._sums(np.arange(len(first)), len(first), single.weights)
        else:
            sums = self._sums(place, len(first), self.weights)
        return Counts(_pick(self.z, first), *np.moveaxis(sums, 1, 0))

    def squares(self) -> Counts:
        """Adds up the squared weights of the units of rows that share covariates."""
        return self._replace(weights=self.weights**2 / self.copies).counts()

    def folded(self) -> tuple[FoldedCounts, Int[np.ndarray, " n"]]:
        """Adds up the rows that share covariates and fold.

        Returns:
          The counts, and for each row its place among them.
        """
        assert self.fold is not None
        first, place = distinct_rows(self.cell, self.fold)
        sums = self._sums(place, len(first), self.weights)
        counts = Counts(_pick(self.z, first), *np.moveaxis(sums, 1, 0))
        _, cell = distinct_rows(self.cell[first])
        return FoldedCounts(counts, self.fold[first].astype(int), cell), place

    def _sums(
        self,
        place: Int[np.ndarray, " n"],
        size: int,
        weights: Float[np.ndarray, " n"],
    ) -> Float[np.ndarray, "size sources treatments levels"]:
        """Adds the weights of rows by their place, source, treatment and outcome."""
        shape = (size, len(SOURCES), *pb.BINARY.joint_shape)
        index = np.ravel_multi_index(
            (place, self.source, self.treatment, self.outcome), shape
        )
        sums = np.bincount(index, weights, int(np.prod(shape)))
        return sums.reshape(shape).astype(np.float32)


def distinct_rows(
    *labels: np.ndarray | None,
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " n"]]:
    """Finds which rows agree in all labels.

    Args:
      *labels: [n] each; None says nothing.

    Returns:
      The first row of each kind, in the order of appearance, and the kind of each row.

    Example:
      >>> import numpy as np
      >>> first, kind = distinct_rows(np.array([7, 5, 7, 7]), np.array([0, 0, 1, 0]))
      >>> first.tolist(), kind.tolist()
      ([0, 1, 2], [0, 1, 2, 0])
    """
    given = [np.asarray(label) for label in labels if label is not None]
    kind = np.zeros(len(given[0]), np.int64)
    size = 1
    for label in given:
        values, code = np.unique(label, return_inverse=True)
        if size * len(values) >= 2**62:
            kind = np.unique(kind, return_inverse=True)[1]
            size = int(kind.max()) + 1
        kind, size = kind * len(values) + code, size * len(values)
    _, first, kind = np.unique(kind, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[kind]


def merge_rows(
    rows: Rows, keeps_weights: bool = False
) -> tuple[Rows, Int[np.ndarray, " n"], Int[np.ndarray, " m"]]:
    """Merges rows that agree in everything but their weights and copies.

    Rows of groups are not merged: they are not independent copies of each other.

    Args:
      rows: any; their `cell` is not read.
      keeps_weights: whether rows of different weights differ, too, as those of sampling
        weights do.

    Returns:
      The distinct rows; for each row that was given, its place among them; and for each
      distinct row, the first that was given.

    Example:
      >>> import numpy as np
      >>> z, ones = np.array([[5.0], [5.0], [6.0]], np.float32), np.ones(3)
      >>> source = treatment = outcome = np.zeros(3, int)
      >>> rows = Rows(z, source, treatment, outcome, ones, ones, cell=source)
      >>> merged, place, first = merge_rows(rows)
      >>> merged.z.ravel().tolist(), merged.copies.tolist(), place.tolist()
      ([5.0, 6.0], [2.0, 1.0], [0, 0, 1])
    """
    _, cell = group_rows(rows.z)
    if rows.group is not None:
        every = np.arange(len(cell))
        return rows._replace(cell=cell), every, every
    first, place = distinct_rows(
        cell,
        rows.source,
        rows.treatment,
        rows.outcome,
        rows.fold,
        rows.assignment,
        rows.weights / rows.copies if keeps_weights else None,
    )
    if len(first) == len(cell):
        return rows._replace(cell=cell), place, first
    merged = rows._replace(cell=cell).take(first)
    weights, copies = (
        np.bincount(place, part, len(first)) for part in (rows.weights, rows.copies)
    )
    return merged._replace(weights=weights, copies=copies), place, first


def _pick(z: Float[np.ndarray, "n d"], rows: Int[np.ndarray, " m"]) -> np.ndarray:
    """Picks rows; all of them in their order are no copy."""
    if len(rows) == len(z) and np.array_equal(rows, np.arange(len(z))):
        return z
    return z[rows]
