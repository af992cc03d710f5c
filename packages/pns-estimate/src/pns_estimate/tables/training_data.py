"""The two tables of a fit, checked and encoded."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pns_models as pm
from jaxtyping import Int

from pns_estimate._errors import Setting, UserError
from pns_estimate.tables.columns import (
    Encoder,
    Missing,
    TwoValues,
    Unseen,
    copies_of,
    find_two_values,
    make_encoder,
)
from pns_estimate.tables.files import read_table

WeightsAre = Literal["frequency", "sampling"]


class Roles(NamedTuple):
    """Columns that are no covariates, and what their values mean.

    Attributes:
      treatment: the column with the treatment.
      outcome: the column with the outcome.
      weights: the column with weights, or None.
      weights_are: what they mean.
      groups: the column with groups, or None.
      treatment_reference: the value that means "not treated", or None.
      outcome_reference: the value that means "did not happen", or None.
    """

    treatment: str
    outcome: str
    weights: str | None = None
    weights_are: WeightsAre = "frequency"
    groups: str | None = None
    treatment_reference: Any = None
    outcome_reference: Any = None

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
        if self.weights_are not in ("frequency", "sampling"):
            raise UserError(
                Setting("weights_are"),
                f" must be 'frequency' or 'sampling', got {self.weights_are!r}.",
            )
        if self.weights is None and self.weights_are != "frequency":
            raise UserError(
                Setting("weights_are", self.weights_are),
                " needs weights: name their column.",
            )


class EncodedTable(NamedTuple):
    """One table as numbers: covariates [n, d], and [n] of each of the others.

    Weights are those that the fit counts people by: sampling weights add up to the
    effective sample size.
    """

    z: np.ndarray
    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray


class TrainingData(NamedTuple):
    """What a fit learns from.

    Attributes:
      treatment: which value is which.
      outcome: which value is which.
      encoder: turns covariates into numbers.
      tables: by name, the numbers.
      people: some people of both tables as they were given, for the report.
      weights_are: what weights mean; None if there are none.
      num_rows: by name, the rows that were given.
      groups: of each row, the observational ones first, the number of its group; None
        without groups.
    """

    treatment: TwoValues
    outcome: TwoValues
    encoder: Encoder
    tables: dict[str, EncodedTable]
    people: pd.DataFrame
    weights_are: WeightsAre | None
    num_rows: dict[str, int]
    groups: np.ndarray | None = None

    def counts(self) -> pm.Counts:
        """Makes one row of counts per row of the tables, the observational ones first."""
        first, second = self.tables.values()
        weights = (first.weights, second.weights) if self.weights_are else None
        return pm.counts_from_tables(
            first[:3], second[:3], weights=weights, merge=False
        )

    def squared_weights(self) -> pm.Counts | None:
        """Makes `counts` with squared weights, if they are sampling weights."""
        if self.weights_are != "sampling":
            return None
        first, second = self.tables.values()
        squares = (first.weights**2, second.weights**2)
        return pm.counts_from_tables(
            first[:3], second[:3], weights=squares, merge=False
        )


def read_training_data(
    observational: Any,
    experimental: Any,
    roles: Roles,
    covariates: Sequence[str] | None,
    missing: Missing,
    unseen: Unseen,
    seed: int,
) -> TrainingData:
    """Reads, checks and encodes the two tables; see `PnsEstimator.fit`.

    The seed decides which people are kept for the report.
    """
    given = {
        "observational": read_table(observational, "observational"),
        "experimental": read_table(experimental, "experimental"),
    }
    roles.check()
    columns = choose_covariates(given, roles, covariates)
    treatment = find_two_values(
        given, roles.treatment, "treatment", roles.treatment_reference
    )
    outcome = find_two_values(given, roles.outcome, "outcome", roles.outcome_reference)
    encoder = make_encoder(given, columns, missing, unseen)
    tables = _encode(given, roles, treatment, outcome, encoder)
    arms = np.bincount(tables["experimental"].x, minlength=2)
    if arms.min() == 0:
        absent = (treatment.zero, treatment.one)[int(arms.argmin())]
        raise UserError(
            f"the experimental table has nobody with {roles.treatment} = {absent!r}; an "
            "experiment needs both arms."
        )
    people = _sample_people(list(given.values()), encoder, seed)
    return TrainingData(
        treatment=treatment,
        outcome=outcome,
        encoder=encoder,
        tables=tables,
        people=people,
        weights_are=None if roles.weights is None else roles.weights_are,
        num_rows={name: int(copies_of(t).sum()) for name, t in given.items()},
        groups=None if roles.groups is None else _number_groups(given, roles.groups),
    )


def encode_again(
    data: TrainingData, tables: dict[str, pd.DataFrame], roles: Roles
) -> TrainingData:
    """Encodes other tables of the same people as `data` was encoded."""
    encoded = _encode(tables, roles, data.treatment, data.outcome, data.encoder)
    return data._replace(tables=encoded)


def _encode(
    tables: dict[str, pd.DataFrame],
    roles: Roles,
    treatment: TwoValues,
    outcome: TwoValues,
    encoder: Encoder,
) -> dict[str, EncodedTable]:
    return {
        name: EncodedTable(
            encoder.encode(table, name)[0],
            treatment.encode(table, name),
            outcome.encode(table, name),
            _read_weights(table, roles, name),
        )
        for name, table in tables.items()
    }


def choose_rows(
    rng: np.random.Generator, copies: np.ndarray, most: int
) -> Int[np.ndarray, " m"]:
    """Chooses some of the rows that a table stands for, at random; all if they are few.

    Args:
      rng: decides which.
      copies: rows that each row of the table stands for.
      most: how many to choose, at most.

    Returns:
      The row of the table of each row that was chosen.
    """
    last = np.cumsum(copies)
    total = int(last[-1])
    rows = rng.choice(total, most, replace=False) if total > most else np.arange(total)
    return np.searchsorted(last, rows, side="right")


def _sample_people(
    tables: list[pd.DataFrame], encoder: Encoder, seed: int, most: int = 1000
) -> pd.DataFrame:
    numbers = [c.column for c in encoder.covariates if c.kind == "number"]
    copies = np.concatenate([copies_of(table) for table in tables])
    chosen = choose_rows(np.random.default_rng(seed), copies, most)
    parts = []
    for table, start in zip(tables, (0, len(tables[0])), strict=True):
        rows = chosen[(chosen >= start) & (chosen < start + len(table))] - start
        kept = table.iloc[rows][encoder.columns].copy()
        for column in numbers:
            kept[column] = kept[column].to_numpy(dtype=float, na_value=np.nan)
        parts.append(kept)
    return pd.concat(parts, ignore_index=True)


def choose_covariates(
    tables: dict[str, pd.DataFrame],
    roles: Roles,
    covariates: Sequence[str] | None,
) -> list[str]:
    """Returns the covariates' names; raises unless all columns are there as they should.

    Args:
      tables: by name; only their columns are looked at.
      roles: of the other columns.
      covariates: as for `PnsEstimator.fit`.
    """
    special = [*roles.columns, roles.groups]
    for name, table in tables.items():
        for column in roles.columns:
            if column not in table.columns:
                shown = ", ".join(map(repr, list(table.columns)[:8]))
                raise UserError(
                    f"the {name} table has no column {column!r}; it has {shown}."
                )
    if isinstance(covariates, str):
        raise UserError(
            Setting("covariates"), f" must be a list of names, got {covariates!r}."
        )
    if covariates is not None:
        chosen = list(covariates)
        both = [column for column in chosen if column in special]
        if both:
            raise UserError(f"{both} cannot be covariates: they have another role.")
        if len(set(chosen)) < len(chosen):
            raise UserError("covariates name a column twice.")
    else:
        left, right = (
            [c for c in table.columns if c not in special] for table in tables.values()
        )
        differ = sorted(set(map(str, left)) ^ set(map(str, right)))
        if differ:
            raise UserError(
                f"the columns {differ[:6]} are in one table only; name the covariates "
                "that both have."
            )
        chosen = sorted(left, key=str)
    if not chosen:
        raise UserError("there are no covariates; name at least one.")
    return chosen


def _read_weights(table: pd.DataFrame, roles: Roles, name: str) -> np.ndarray:
    if roles.weights is None:
        return np.ones(len(table))
    values = check_weights(table[roles.weights], roles.weights, name)
    return values if roles.weights_are == "frequency" else _effective_weights(values)


def check_weights(weights: pd.Series, column: str, name: str) -> np.ndarray:
    """Returns weights as numbers; raises unless all are positive.

    Args:
      weights: of each row.
      column: what the column is called.
      name: what the table is called.
    """
    try:
        values = weights.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"the weights {column!r} of the {name} table are no numbers."
        ) from error
    if not np.all(np.isfinite(values) & (values > 0)):
        raise UserError(
            f"the weights {column!r} of the {name} table must be positive numbers."
        )
    return values


def _effective_weights(weights: np.ndarray) -> np.ndarray:
    """Scales sampling weights to add up to Kish's effective sample size.

    It is (sum w)^2 / sum w^2: the number of equally weighted people whose mean varies as
    much as the weighted one.
    """
    return weights * (weights.sum() / np.sum(weights**2))


def _number_groups(tables: dict[str, pd.DataFrame], column: str) -> np.ndarray:
    """Numbers the groups of all rows; rows of a table without the column are alone."""
    labelled = {name: t for name, t in tables.items() if column in t.columns}
    if not labelled:
        raise UserError(f"no table has the column {column!r} of groups.")
    for name, table in labelled.items():
        missing = int(table[column].isna().sum())
        if missing:
            raise UserError(
                f"the groups {column!r} of the {name} table are missing in {missing} "
                "rows; complete them, or give each such row a group of its own."
            )
    labels = [table[column].astype(object) for table in labelled.values()]
    codes, names = pd.factorize(pd.concat(labels, ignore_index=True))
    if len(labelled) == len(tables) and len(names) == 1:
        raise UserError(
            f"all people are in one group of {column!r}: nobody would be left to learn "
            "from while the group is held out."
        )
    numbers, start, next_group = [], 0, len(names)
    for name, table in tables.items():
        size = len(table)
        if name in labelled:
            numbers.append(codes[start : start + size])
            start += size
        else:
            numbers.append(next_group + np.arange(size))
            next_group += size
    return np.concatenate(numbers)
