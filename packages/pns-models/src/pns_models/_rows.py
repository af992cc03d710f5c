"""Rows of all sources in one record: distinct rows, and how many units each counts as.

Nothing that a fit learns from tells rows apart that agree in covariates, source, treatment,
outcome and fold. So one of them is kept, in the place where the first of them stood. Every row of the data
lies in one fold, whatever its weight.
"""

from typing import Literal, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from pns_models._data import (
    Counts,
    FoldedCounts,
    check_finite,
    distinct_rows,
    empty_table,
    pick_rows,
)
from pns_models._errors import TooFewRowsError, require

Role = Literal["log", "trial"]
Table = tuple[ArrayLike, ArrayLike, ArrayLike]
_PARTS = (
    "observational units",
    "experimental units in the control arm",
    "experimental units in the treatment arm",
)


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
      covariate: of each column of z, the covariate that it belongs to; None if each is one.
        Of two columns, the first says whether the second, a number, is missing; three or
        more are the levels of a category, of which a row has one or none.
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
    covariate: Int[np.ndarray, " d"] | None = None

    @property
    def is_trial(self) -> np.ndarray:
        """Which rows belong to a trial."""
        return np.array([source.role == "trial" for source in SOURCES])[self.source]

    @property
    def part(self) -> Int[np.ndarray, " n"]:
        """Which part of the data: 0 for a log, 1 plus the arm for a trial."""
        return np.where(self.is_trial, 1 + self.treatment, 0)

    def deal(
        self, rng: np.random.Generator, num_folds: int, groups: ArrayLike | None = None
    ) -> "Rows":
        """Deals the rows to folds, see `deal_folds`."""
        return self._replace(fold=deal_folds(rng, self.part, num_folds, groups))

    def take(self, chosen: np.ndarray) -> "Rows":
        """Keeps some rows, by place or as booleans."""
        places = np.arange(len(self.z))[chosen]
        parts = [
            None if part is None else pick_rows(part, places) for part in self[:-1]
        ]
        return Rows._make([*parts, self.covariate])

    def counts(self, merge: bool | None = True) -> Counts:
        """Adds up the rows that share covariates.

        Args:
          merge: False keeps a row for each unit; None does so unless merging at least
            halves them.
        """
        first, place = distinct_rows(self.cell)
        if merge is None:
            merge = 2 * len(first) <= self.copies.sum()
        if merge:
            return self._summed(first, place)
        times = np.maximum(self.copies, 1).astype(int)  # parts of a unit stay whole
        units = self._replace(weights=self.weights / times).take(
            np.repeat(np.arange(len(times)), times)
        )
        every = np.arange(len(units.z))
        return units._summed(every, every)

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
        counts = self._summed(first, place)
        _, cell = distinct_rows(self.cell[first])
        fold = self.fold[first].astype(int)
        return FoldedCounts(counts, fold, cell, self.covariate), place

    def merged(
        self, keeps_weights: bool = False
    ) -> tuple["Rows", Int[np.ndarray, " n"], Int[np.ndarray, " m"]]:
        """Merges rows that agree in everything but weights, copies and cell.

        Rows of groups are not merged: they are not independent copies of each other.

        Args:
          keeps_weights: whether rows of different weights differ, too, as those of
            sampling weights do.

        Returns:
          The distinct rows with their cells; for each row that was given, its place among
          them; and for each distinct row, the first that was given.

        Example:
          >>> import numpy as np
          >>> z, ones = np.array([[5.0], [5.0], [6.0]], np.float32), np.ones(3)
          >>> source = treatment = outcome = np.zeros(3, int)
          >>> rows = Rows(z, source, treatment, outcome, ones, ones, cell=source)
          >>> merged, place, first = rows.merged()
          >>> merged.z.ravel().tolist(), merged.copies.tolist(), place.tolist()
          ([5.0, 6.0], [2.0, 1.0], [0, 0, 1])
        """
        _, cell = distinct_rows(self.z)
        rows = self._replace(cell=cell)
        if self.group is not None:
            every = np.arange(len(cell))
            return rows, every, every
        weight = self.weights / self.copies if keeps_weights else None
        labels = (self.source, self.treatment, self.outcome, self.fold, self.assignment)
        first, place = distinct_rows(cell, *labels, weight)
        if len(first) == len(cell):
            return rows, place, first
        weights, copies = (
            np.bincount(place, part, len(first)) for part in (self.weights, self.copies)
        )
        merged = rows.take(first)._replace(weights=weights, copies=copies)
        return merged, place, first

    def _summed(
        self, first: Int[np.ndarray, " k"], place: Int[np.ndarray, " n"]
    ) -> Counts:
        """Adds the weights of rows by their place, source, treatment and outcome."""
        shape = (len(first), len(SOURCES), *pb.BINARY.joint_shape)
        index = np.ravel_multi_index(
            (place, self.source, self.treatment, self.outcome), shape
        )
        # Of the precision of counts, so that sums do not depend on what was merged before.
        weights = self.weights.astype(np.float32)
        sums = np.bincount(index, weights, int(np.prod(shape))).reshape(shape)
        z = pick_rows(self.z, first)
        return Counts(z, *np.moveaxis(sums.astype(np.float32), 1, 0))


def rows_from_tables(
    observational: Table,
    experimental: Table,
    weights: tuple[ArrayLike, ArrayLike] | None = None,
) -> Rows:
    """Puts two tables into one record, each row by itself.

    Args:
      observational: z [n, d], x [n], y [n] of units that chose for themselves.
      experimental: z [m, d], x [m], y [m] of units assigned at random.
      weights: positive weights [n] and [m], one each if None; a unit of weight w counts as
        w units.

    Example:
      >>> log = [[0.0], [0.0], [1.0]], [0, 1, 1], [0, 1, 1]
      >>> trial = [[0.0], [1.0]], [0, 1], [0, 1]
      >>> rows_from_tables(log, trial).source.tolist()
      [0, 0, 0, 1, 1]
    """
    tables = [
        _checked_table(source.name, table)
        for source, table in zip(SOURCES, (observational, experimental), strict=True)
    ]
    widths = [table[0].shape[1] for table in tables]
    require(
        widths[0] == widths[1],
        "experimental z",
        f"must have the covariates of observational z, got {widths[1]} and {widths[0]} "
        "columns.",
    )
    sizes = [len(table[0]) for table in tables]
    ones = np.ones(sum(sizes))
    units = ones if weights is None else _checked_weights(weights, sizes)
    z = empty_table(sum(sizes), widths[0])
    np.concatenate([table[0] for table in tables], out=z)
    return Rows(
        z=z,
        source=np.repeat(np.arange(len(sizes)), sizes),
        treatment=np.concatenate([table[1] for table in tables]),
        outcome=np.concatenate([table[2] for table in tables]),
        weights=units,
        copies=ones,
        cell=distinct_rows(z)[1],
    )


def _checked_table(
    name: str, table: Table
) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    z, x, y = (np.asarray(part) for part in table)
    require(
        z.ndim == 2 and len(z),
        f"{name} z",
        "must have shape [num_rows, num_covariates] with a row at least, got "
        f"{list(z.shape)}.",
    )
    z = z.astype(np.float32, copy=False)
    check_finite(f"{name} z", z)
    for column, values in (("x", x), ("y", y)):
        require(
            values.shape == (len(z),),
            f"{name} {column}",
            f"must hold {len(z)} values, one per row of z, got shape "
            f"{list(values.shape)}.",
        )
        if wrong := values[~np.isin(values, (0, 1))].tolist():
            raise pb.InputError(
                f"{name} {column}",
                f"must hold the numbers 0 and 1 alone, got {wrong[0]!r} among them.",
            )
    return z, x.astype(np.intp), y.astype(np.intp)


def _checked_weights(
    weights: tuple[ArrayLike, ArrayLike], sizes: list[int]
) -> Float[np.ndarray, " n"]:
    require(
        len(weights) == len(sizes),
        "weights",
        "must be a pair, those of the observational and those of the experimental rows, "
        f"got {len(weights)} of them.",
    )
    parts = [np.asarray(part, float) for part in weights]
    for part, size in zip(parts, sizes, strict=True):
        require(
            part.shape == (size,) and np.all((part > 0) & np.isfinite(part)),
            "weights",
            f"must be {size} positive finite numbers, got shape {list(part.shape)}.",
        )
    return np.concatenate(parts)


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
    part = np.asarray(part)
    require(num_folds >= 2, "num_folds", f"must be at least 2, got {num_folds}.")
    fold = np.full(len(part), -1, np.int16)  # small: there may be many millions of rows
    if groups is not None:
        group = _number_labels(groups, len(part))
        fold[:] = _deal_groups(rng, group, part, num_folds)[group]
    place = np.int32 if len(part) < 2**31 else np.int64
    alone = rng.permutation(np.flatnonzero(fold < 0).astype(place))
    alone = np.concatenate([alone[part[alone] == i] for i in range(3)])
    order = rng.permutation(num_folds).astype(fold.dtype)
    fold[alone] = np.resize(order, len(alone))
    sums = np.stack(
        [np.bincount(fold[part == i], minlength=num_folds) for i in range(3)]
    )
    if sums.min() == 0:
        i, first = np.argwhere(sums == 0)[0]
        raise TooFewRowsError(
            f"fold {first + 1} of {num_folds} has no {_PARTS[i]}; give more data, fewer "
            "folds, or smaller groups.",
            part="fold",
            observational=float(sums[0, first]),
            experimental=float(sums[1:, first].sum()),
        )
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
    group = _number_labels(groups, num_rows)
    drawn = rng.random(int(group.max()) + 1) < fraction
    return drawn[group].astype(np.int16)


def _number_labels(groups: ArrayLike, size: int) -> Int[np.ndarray, " {size}"]:
    """Numbers the labels of rows; raises unless there is one per row."""
    labels = np.asarray(groups)
    require(
        labels.shape == (size,),
        "groups",
        f"must hold {size} labels, one per row, got shape {list(labels.shape)}.",
    )
    return np.unique(labels, return_inverse=True)[1]


def _deal_groups(
    rng: np.random.Generator,
    group: Int[np.ndarray, " n"],
    part: Int[np.ndarray, " n"],
    num_folds: int,
) -> Int[np.ndarray, " num_groups"]:
    """Deals groups of several rows to folds; -1 for a row that is alone in its group.

    The largest groups come first, each goes where it adds least to the sum of squared
    shares that folds have in all rows and in each part.
    """
    sizes = np.bincount(group)
    parts = [np.bincount(group, part == i) for i in range(3)]
    content = np.stack([sizes, *parts], axis=1)
    content = content / np.maximum(content.sum(axis=0), 1)
    load = np.zeros((num_folds, 4))
    fold = np.full(len(sizes), -1)
    order = rng.permutation(np.flatnonzero(sizes > 1))
    for number in order[np.argsort(-sizes[order], kind="stable")]:
        fold[number] = np.argmin(load @ content[number])
        load[fold[number]] += content[number]
    return fold
