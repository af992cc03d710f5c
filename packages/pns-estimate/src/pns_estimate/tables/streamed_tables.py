"""Two streams as tables of distinct rows: once to check, once more with folds.

The first pass finds the distinct rows, from which everything is checked and the encoder
learned as from tables in memory. Folds are dealt to rows, so rows that agree may lie in
different ones: the second pass tells them apart.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from pns_estimate._errors import Setting, UserError
from pns_estimate.methods import get_method
from pns_estimate.tables.columns import COPIES, TwoValues
from pns_estimate.tables.distinct_rows import (
    FOLD,
    MemoryLimit,
    find_distinct_rows,
    read_rows,
)
from pns_estimate.tables.streams import Stream, as_stream
from pns_estimate.tables.training_data import Roles, choose_covariates

NAMES = ("observational", "experimental")


class StreamedTables(NamedTuple):
    """Two streams, and what is read of them.

    Attributes:
      streams: the observational and the experimental one.
      covariates: names of the columns.
      columns: in which rows of each must agree to be one.
      weights: the column of weights, or None.
      memory_gb: what a fit may take.
    """

    streams: tuple[Stream, Stream]
    covariates: list[str]
    columns: tuple[list[str], list[str]]
    weights: str | None
    memory_gb: float

    def distinct_rows(
        self,
        fold: Int[np.ndarray, " n"] | None = None,
        num_values: int | None = None,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Reads both streams.

        Args:
          fold: of each row, the observational ones first; None if there are none yet.
          num_values: encoded values of each row; as many as columns if None.
        """
        log, trial = self.streams
        folds = (None, None) if fold is None else np.split(fold, [log.num_rows()])
        limit = MemoryLimit(self.memory_gb, num_values or len(self.columns[0]))
        first = find_distinct_rows(log, self.columns[0], limit, self.weights, folds[0])
        limit = limit._replace(num_held=len(first))
        second = find_distinct_rows(
            trial, self.columns[1], limit, self.weights, folds[1]
        )
        return first, second

    def parts(self, treatment: TwoValues) -> Int[np.ndarray, " n"]:
        """Returns 0 for observational rows, 1 and 2 for the arms of experimental ones."""
        log, trial = self.streams
        encode: Callable[[pd.DataFrame], np.ndarray] = lambda table: (
            1 + treatment.encode(table, trial.name)
        )
        arms = read_rows(trial, treatment.column, encode)
        return np.concatenate([np.zeros(log.num_rows(), np.int8), arms])


def open_streams(
    tables: Sequence[pd.DataFrame | Stream],
    roles: Roles,
    covariates: Sequence[str] | None,
    assignment: Any,
    method: str,
    memory_gb: float,
) -> StreamedTables:
    """Checks what can be checked before anything is read.

    Args:
      tables: the observational and the experimental one, one of them a stream at least.
      roles: what columns mean.
      covariates: as for `PnsEstimator.fit`.
      assignment: as for `PnsEstimator.fit`.
      method: name of the method.
      memory_gb: what a fit may take.
    """
    roles.check()
    if not hasattr(get_method(method), "deal"):
        raise UserError(
            Setting("method", method),
            " needs tables that fit into memory; only 'crossfit' reads them as a stream.",
        )
    if roles.groups is not None or roles.weights_are == "sampling":
        raise UserError(
            Setting("weights_are", "sampling")
            if roles.groups is None
            else Setting("groups"),
            " needs tables that fit into memory, not streams; give a sample of the rows "
            "as one file.",
        )
    log, trial = (
        as_stream(table, name) for table, name in zip(tables, NAMES, strict=True)
    )
    heads = {stream.name: stream.head() for stream in (log, trial)}
    own = []
    if isinstance(assignment, str):
        if assignment not in heads["experimental"].columns:
            raise UserError(
                f"the experimental table has no column {assignment!r} of assignment "
                "probabilities."
            )
        own = [assignment]
        heads = {n: h.drop(columns=own, errors="ignore") for n, h in heads.items()}
    chosen = choose_covariates(heads, roles, covariates)
    for name, head in heads.items():
        absent = [column for column in chosen if column not in head.columns]
        if absent:
            shown = ", ".join(map(repr, list(head.columns)[:8]))
            raise UserError(
                f"the {name} table has no column {absent[0]!r}; it has {shown}."
            )
    columns = [*chosen, roles.treatment, roles.outcome]
    return StreamedTables(
        (log, trial), chosen, (columns, [*columns, *own]), roles.weights, memory_gb
    )


def roles_of_distinct(roles: Roles) -> Roles:
    """Returns the roles in tables of distinct rows, whose copies are counted."""
    return roles if roles.weights is not None else roles._replace(weights=COPIES)


def split_folds(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> tuple[list[pd.DataFrame], Int[np.ndarray, " n"]]:
    """Takes the folds out of tables of distinct rows, the observational ones first."""
    fold = np.concatenate([table[FOLD].to_numpy(int) for table in tables])
    return [table.drop(columns=[FOLD]) for table in tables], fold
