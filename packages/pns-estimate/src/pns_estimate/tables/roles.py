"""What the columns of the tables mean."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from pns_estimate._errors import Setting, UserError
from pns_estimate.tables.readers import Frame, Stream

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
      assignment: the probability of the treated arm: a number, the column of the trial
        that holds it, or None.
    """

    treatment: str
    outcome: str
    weights: str | None = None
    weights_are: WeightsAre = "frequency"
    groups: str | None = None
    treatment_reference: Any = None
    outcome_reference: Any = None
    assignment: Any = None

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


def choose_covariates(
    tables: Sequence[Frame | Stream],
    roles: Roles,
    covariates: Sequence[str] | None,
) -> list[str]:
    """Returns the covariates' names; raises unless all columns are there as they should.

    Args:
      tables: only their columns are looked at.
      roles: of the other columns.
      covariates: as for `PnsEstimator.fit`.
    """
    special = [*roles.columns, roles.groups, roles.assignment_column]
    for table in tables:
        require_columns(table, roles.columns)
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
        own = [[c for c in table.columns if c not in special] for table in tables]
        shared = set.intersection(*(set(map(str, columns)) for columns in own))
        differ = sorted({str(c) for columns in own for c in columns} - shared)
        if differ:
            raise UserError(
                f"the columns {differ[:6]} are in one table only; name the covariates "
                "that both have."
            )
        chosen = sorted(own[0], key=str)
    if not chosen:
        raise UserError("there are no covariates; name at least one.")
    for table in tables:
        require_columns(table, chosen)
    return chosen


def require_columns(table: Frame | Stream, columns: Sequence[str]) -> None:
    """Raises if a table lacks one of the columns."""
    for column in columns:
        if column not in table.columns:
            shown = ", ".join(map(repr, table.columns[:8]))
            raise UserError(
                f"the {table.name} table has no column {column!r}; it has {shown}."
            )


def check_weights(
    weights: pd.Series, column: str, name: str
) -> Float[np.ndarray, " n"]:
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
            f"the weights {column!r} of the {name} table must be numeric."
        ) from error
    if not np.all(np.isfinite(values) & (values > 0)):
        raise UserError(
            f"the weights {column!r} of the {name} table must be positive numbers."
        )
    return values


def number_groups(
    tables: Sequence[Frame | Stream], column: str
) -> Int[np.ndarray, " n"]:
    """Numbers the groups of all rows; rows of a table without the column are alone.

    Args:
      tables: in memory.
      column: of groups.
    """
    labelled = [table for table in tables if column in table.columns]
    if not labelled:
        raise UserError(f"no table has the column {column!r} of groups.")
    parts = [table.column(column) for table in labelled]
    for part in parts:
        if part.num_missing:
            raise UserError(
                f"the groups {column!r} of the {part.table} table are missing in "
                f"{part.num_missing} rows; complete them, or give each such row a group "
                "of its own."
            )
    labels = [part.values.astype(object) for part in parts]
    codes, names = pd.factorize(pd.concat(labels, ignore_index=True))
    if len(labelled) == len(tables) and len(names) == 1:
        raise UserError(
            f"all people are in one group of {column!r}: nobody would be left to learn "
            "from while the group is held out."
        )
    numbers, start, next_group = [], 0, len(names)
    for table in tables:
        size = table.num_rows()
        if table in labelled:
            numbers.append(codes[start : start + size])
            start += size
        else:
            numbers.append(next_group + np.arange(size))
            next_group += size
    return np.concatenate(numbers)
