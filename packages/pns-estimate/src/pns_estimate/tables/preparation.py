"""Everything about two tables that can be checked before anything is learned."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import pandas as pd
import pns_infer as pi

from pns_estimate.methods import DealtFolds, get_method
from pns_estimate.tables.assignment import check_trial, split_assignment
from pns_estimate.tables.checks import TableWarning, find_problems
from pns_estimate.tables.streamed_tables import (
    NAMES,
    StreamedTables,
    open_streams,
    roles_of_distinct,
    split_folds,
)
from pns_estimate.tables.streams import Stream, open_table
from pns_estimate.tables.training_data import (
    Roles,
    TrainingData,
    encode_again,
    read_training_data,
)


class PreparedTables(NamedTuple):
    """Two tables that a method can learn from.

    Attributes:
      observational: people who chose, as they were given; of a stream, distinct rows.
      experimental: people assigned at random, likewise.
      data: both, checked and encoded.
      trial: how the trial assigned.
      problems: why tables and columns may not be what they are taken for.
      roles: what their columns mean.
      assignment: as for `PnsEstimator.fit`.
      streamed: where they come from, if they were not given as a whole.
    """

    observational: pd.DataFrame
    experimental: pd.DataFrame
    data: TrainingData
    trial: pi.AssignmentCheck
    problems: list[str]
    roles: Roles
    assignment: float | str | None = None
    streamed: StreamedTables | None = None


def prepare_tables(
    tables: tuple[Any, Any],
    roles: Roles,
    covariates: Sequence[str] | None,
    assignment: float | str | None,
    settings: dict[str, Any],
    memory_gb: float = 4.0,
) -> PreparedTables:
    """Reads, checks and encodes two tables; warns of what looks wrong.

    Args:
      tables: the observational and the experimental one; DataFrames, paths or streams.
      roles: what columns mean.
      covariates: as for `PnsEstimator.fit`.
      assignment: as for `PnsEstimator.fit`.
      settings: of the estimator, checked.
      memory_gb: as for `PnsEstimator.fit`.
    """
    get_method(settings["method"])  # raises for a name that is no method
    opened = [
        open_table(table, name, memory_gb, settings["progress"])
        for table, name in zip(tables, NAMES, strict=True)
    ]
    streamed = None
    if any(isinstance(table, Stream) for table in opened):
        streamed = open_streams(
            opened, roles, covariates, assignment, settings["method"], memory_gb
        )
        opened = streamed.distinct_rows()
        roles, covariates = roles_of_distinct(roles), streamed.covariates
    first, second, probability = split_assignment(opened[0], opened[1], assignment)
    policies = (settings["missing"], settings["unseen"], int(settings["seed"]))
    data = read_training_data(first, second, roles, covariates, *policies)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pi.AssignmentWarning)
        trial = check_trial(data, probability)
    found = [pi.AssignmentWarning(str(w.message)) for w in caught]
    found += [TableWarning(t) for t in find_problems((first, second), data, trial)]
    for warning in found:
        warnings.warn(warning, stacklevel=3)
    problems = [str(w) for w in found]
    return PreparedTables(
        first, second, data, trial, problems, roles, assignment, streamed
    )


def deal_streams(
    prepared: PreparedTables, key: jax.Array, method: Any, recipe: Any
) -> tuple[PreparedTables, DealtFolds]:
    """Deals the rows of streams to folds and reads the streams once more.

    Args:
      prepared: tables that were streamed.
      key: of the fit.
      method: has `deal`.
      recipe: its settings.

    Returns:
      Tables of rows that are distinct in their fold, too, and the folds.
    """
    assert prepared.streamed is not None
    part = prepared.streamed.parts(prepared.data.treatment)
    dealt = method.deal(key, part, recipe)
    width = prepared.data.tables[NAMES[0]].z.shape[1]
    tables, fold = split_folds(prepared.streamed.distinct_rows(dealt.fold, width))
    first, second, probability = split_assignment(
        tables[0], tables[1], prepared.assignment
    )
    given: dict[str, pd.DataFrame] = {NAMES[0]: first, NAMES[1]: second}
    data = encode_again(prepared.data, given, prepared.roles)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pi.AssignmentWarning)  # it was told before
        trial = check_trial(data, probability)
    again = prepared._replace(
        observational=first, experimental=second, data=data, trial=trial
    )
    return again, dealt._replace(fold=fold)
