"""The rows of both tables as numbers: distinct rows, and how many each stands for.

Every table takes the same road, batch by batch. In memory a table is one batch. Of a
stream only the distinct rows are held, so memory grows with their number, not with the
number of rows.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pns_models as pm
from jaxtyping import Float, Int

from pns_estimate._errors import Setting, UserError, require
from pns_estimate.tables.columns import Encoder, TwoValues
from pns_estimate.tables.readers import Frame, Stream

_PENDING = 2**20  # rows that wait to be merged, at least
_SAMPLE = 1000  # people to report on
_BASE = 2e9  # bytes of a process that has imported and compiled everything, and draws
_PER_ROW = 1200  # bytes that a fit and its averages take for a distinct row
_PER_VALUE = 75  # and for each of its values; together, 2,700 were measured for 20

WeightsAre = Literal["frequency", "sampling"]


class Roles(NamedTuple):
    """Columns that are no covariates, and what their values mean."""

    treatment: str  # the column with the treatment
    outcome: str  # the column with the outcome
    weights: str | None = None  # the column with weights, or None
    weights_are: WeightsAre = "frequency"  # what they mean
    groups: str | None = None  # the column with groups, or None
    treatment_reference: Any = None  # the value that means "not treated", or None
    outcome_reference: Any = None  # the value that means "did not happen", or None
    # The probability of the treated arm: a number, the column of the trial that holds
    # it, or None.
    assignment: Any = None
    id: str | None = None  # the column that names people, or None

    @property
    def assignment_column(self) -> str | None:
        """The column with the assignment probability, if it is one."""
        return self.assignment if isinstance(self.assignment, str) else None

    @property
    def columns(self) -> list[str]:
        """The columns that are named and must be in both tables."""
        named = (self.treatment, self.outcome, self.weights)
        return [column for column in named if column is not None]

    def check(self) -> None:
        """Raises unless the roles fit together."""
        special = [*self.columns, *([] if self.groups is None else [self.groups])]
        if len(set(special)) < len(special):
            raise UserError(
                "treatment, outcome, weights and groups must be different columns, got "
                f"{special}."
            )
        is_known = self.weights_are in ("frequency", "sampling")
        known = "'frequency' or 'sampling'"
        require(is_known, "weights_are", known, self.weights_are)
        if self.weights is None and self.weights_are != "frequency":
            raise UserError(
                Setting("weights_are", self.weights_are),
                " needs weights: name their column.",
            )


class MemoryLimit(NamedTuple):
    """What a fit may take, given the encoded values of a row."""

    memory_gb: float
    num_values: int

    def check(self, name: str, num_rows: int) -> None:
        """Raises if so many distinct rows, with those of this table, take too much."""
        row = _PER_ROW + _PER_VALUE * self.num_values
        need = (_BASE + row * num_rows) / 1e9
        if need > self.memory_gb:
            raise UserError(
                f"with the {name} table there are at least {num_rows:,} rows that differ "
                f"from each other, for which a fit takes about {need:.1f} GB or more, and "
                "it may take ",
                Setting("memory_gb", self.memory_gb),
                "; round or bin covariates so that more rows agree, leave some covariates "
                "out, give a sample of the rows, or raise ",
                Setting("memory_gb"),
                ".",
            )


class Meaning(NamedTuple):
    """What the values of the columns mean."""

    treatment: TwoValues  # which value is which
    outcome: TwoValues  # which value is which
    encoder: Encoder  # turns covariates into numbers


@dataclasses.dataclass(frozen=True, eq=False)
class People:
    """Covariates as they were given, column by column; nothing is copied."""

    parts: Sequence[pd.DataFrame]  # of one table after the other
    columns: list[str]

    def __len__(self) -> int:
        """Returns the number of rows."""
        return sum(map(len, self.parts))

    def __getitem__(self, column: str) -> pd.Series:
        """Returns the values of a column in all tables."""
        parts = [part[column] for part in self.parts]
        if len({part.dtype for part in parts}) > 1:  # 1, 1.0, True: one value
            parts = [_as_numbers(part) for part in parts]
        return pd.concat(parts, ignore_index=True)

    def frame(self) -> pd.DataFrame:
        """Returns all columns."""
        return pd.DataFrame({column: self[column] for column in self.columns})


def _as_numbers(values: pd.Series) -> pd.Series:
    try:
        return values.astype(float)
    except (TypeError, ValueError):
        return values.astype(object)


class TrainingRows(NamedTuple):
    """What is read of the tables."""

    rows: pm.Rows  # of all tables, distinct
    # Of each row that was given, its place among them; None for streams.
    place: Int[np.ndarray, " n"] | None
    # Covariates of the rows that were given; of streams, of the distinct rows.
    people: People
    weights: Float[np.ndarray, " n"]  # units that each of them counts as
    copies: Float[np.ndarray, " n"]  # independent units that each of them stands for
    sample: pd.DataFrame  # covariates of some rows that were given, to report on
    num_rows: dict[str, int]  # by name of the table, how many were given


def find_parts(
    tables: Sequence[Frame | Stream], treatment: TwoValues
) -> Int[np.ndarray, " n"]:
    """Returns 0 for rows of a log, and 1 plus the arm for rows of a trial."""
    parts = []
    for source, table in zip(pm.SOURCES, tables, strict=True):
        if source.role == "log":
            parts.append(np.zeros(table.num_rows(), np.int8))
            continue
        frames = table.frames([treatment.column], "dealing folds")
        parts += [1 + treatment.encode(f, table.name).astype(np.int8) for f in frames]
    return np.concatenate(parts)


def read_rows(
    tables: Sequence[Frame | Stream],
    roles: Roles,
    meaning: Meaning,
    fold: Int[np.ndarray, " n"],
    group: Int[np.ndarray, " n"] | None,
    seed: int,
    memory_gb: float,
) -> TrainingRows:
    """Encodes all rows and merges those that agree.

    Tables are one for each source; folds and groups are of each row, one table after the
    other. The seed decides who is in the sample.
    """
    encoder = meaning.encoder
    sizes = [table.num_rows() for table in tables]
    keeps_weights = roles.weights_are == "sampling"
    in_memory = all(isinstance(table, Frame) for table in tables)
    z = pm.empty_table(sum(sizes), encoder.width) if in_memory else None
    chosen, sample = choose_sample(sum(sizes), seed), []
    limit = MemoryLimit(memory_gb, encoder.width)
    held = _Held(limit, keeps_weights, encoder.columns)
    start = 0
    for number, table in enumerate(tables):
        columns = [*encoder.columns, *roles.columns]
        if pm.SOURCES[number].role == "trial" and roles.assignment_column is not None:
            columns.append(roles.assignment_column)
        for given in table.frames(columns, "counting rows"):
            frame = encoder.with_numbers(given)
            rows = slice(start, start + len(frame))
            batch = pm.Rows(
                z=encoder.encode(frame, table.name, None if z is None else z[rows])[0],
                source=np.full(len(frame), number),
                treatment=meaning.treatment.encode(frame, table.name),
                outcome=meaning.outcome.encode(frame, table.name),
                **_weights(frame, roles, table.name),
                cell=np.zeros(len(frame), int),
                fold=fold[rows],
                group=None if group is None else group[rows],
                assignment=_read_assignment(frame, roles, number),
            )
            inside = (chosen >= start) & (chosen < rows.stop)
            kept = _take_sample(frame, chosen[inside] - start, encoder)
            # In the order in which they were chosen, table by table.
            order = pd.MultiIndex.from_product([[number], np.flatnonzero(inside)])
            sample.append(kept.set_index(order))
            held.add(table.name, batch, None if in_memory else frame)
            start = rows.stop
    if z is not None:
        given = _join(held.batches, z)
        rows, place, _ = given.merged(keeps_weights)
        frames = [table.frame for table in tables if isinstance(table, Frame)]
        parts = [encoder.with_numbers(frame) for frame in frames]
    else:
        given = rows = held.merge(tables[-1].name)
        place, parts = None, held.people
    weights = given.weights
    if keeps_weights:
        rows = rows._replace(weights=_effective_weights(rows))
        weights = rows.weights if place is None else (rows.weights / rows.copies)[place]
    return TrainingRows(
        rows._replace(covariate=encoder.covariate),
        place,
        People(parts, encoder.columns),
        weights,
        given.copies,
        pd.concat(sample).sort_index().reset_index(drop=True),
        {table.name: size for table, size in zip(tables, sizes, strict=True)},
    )


class _Held:
    """Batches of rows; those of streams are merged, with their covariates as given."""

    def __init__(self, limit: MemoryLimit, keeps_weights: bool, columns: list[str]):
        self._limit, self._keeps_weights, self._columns = limit, keeps_weights, columns
        self.batches: list[pm.Rows] = []
        self.people: list[pd.DataFrame] = []

    def add(self, name: str, batch: pm.Rows, frame: pd.DataFrame | None) -> None:
        """Adds a batch, with its table if it is a stream's."""
        self.batches.append(batch)
        if frame is None:
            return
        self.people.append(frame[self._columns])
        pending = sum(len(rows.z) for rows in self.batches[1:])
        if pending > max(_PENDING, len(self.batches[0].z)):
            self.merge(name)

    def merge(self, name: str) -> pm.Rows:
        """Merges all batches; raises if what is left takes too much memory."""
        joined = _join(self.batches)
        rows, _, first = joined.merged(self._keeps_weights)
        people = pd.concat(self.people, ignore_index=True).iloc[first]
        self.batches, self.people = [rows], [people.reset_index(drop=True)]
        self._limit.check(name, len(rows.z))
        return rows


def choose_sample(total: int, seed: int) -> Int[np.ndarray, " m"]:
    """Chooses rows to report on, at random; all if they are few."""
    if total <= _SAMPLE:
        return np.arange(total)
    return np.random.default_rng(seed).choice(total, _SAMPLE, replace=False)


def _take_sample(
    frame: pd.DataFrame, place: Int[np.ndarray, " m"], encoder: Encoder
) -> pd.DataFrame:
    """Takes the covariates of rows of a batch, all numbers as floats."""
    kept = frame.iloc[place][encoder.columns].copy()
    for covariate in encoder.covariates:
        if covariate.kind == "number":
            numbers = kept[covariate.column].to_numpy(dtype=float, na_value=np.nan)
            kept[covariate.column] = numbers
    return kept


def _weights(
    frame: pd.DataFrame, roles: Roles, name: str
) -> dict[str, Float[np.ndarray, " n"]]:
    """Reads positive weights, and of how many independent units each is."""
    ones = np.ones(len(frame))
    if roles.weights is None:
        return {"weights": ones, "copies": ones}
    what = f"the weights {roles.weights!r} of the {name} table"
    weights = _numbers(frame[roles.weights], what)
    if not np.all(np.isfinite(weights) & (weights > 0)):
        raise UserError(f"{what} must be positive numbers.")
    is_counted = roles.weights_are == "frequency"
    return {"weights": weights, "copies": weights if is_counted else ones}


def _effective_weights(rows: pm.Rows) -> Float[np.ndarray, " n"]:
    """Scales sampling weights of a source to add up to Kish's effective sample size.

    It is (sum w)^2 / sum w^2: the number of equally weighted units whose mean varies as
    much as the weighted one.
    """
    sums = np.bincount(rows.source, rows.weights)
    squares = np.bincount(rows.source, rows.weights**2 / rows.copies)
    return rows.weights * (sums / squares)[rows.source]


def _read_assignment(
    frame: pd.DataFrame, roles: Roles, number: int
) -> Float[np.ndarray, " n"] | None:
    """Reads the column of probabilities; rows of a log have none."""
    column = roles.assignment_column
    if column is None:
        return None
    if pm.SOURCES[number].role == "log":
        return np.zeros(len(frame))
    return _numbers(frame[column], f"the assignment probabilities {column!r}")


def _numbers(values: pd.Series, what: str) -> Float[np.ndarray, " n"]:
    try:
        return values.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} must be numeric.") from error


def _join(
    batches: Sequence[pm.Rows], z: Float[np.ndarray, "n d"] | None = None
) -> pm.Rows:
    """Puts batches below each other; z is their covariates, if they are joined already."""
    joined: list[Any] = [
        None if parts[0] is None else np.concatenate(parts)
        for parts in zip(*(batch[1:] for batch in batches), strict=True)
    ]
    if z is None:
        z = np.concatenate([batch.z for batch in batches])
    return pm.Rows(z, *joined)
