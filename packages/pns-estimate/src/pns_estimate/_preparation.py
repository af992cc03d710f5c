"""Everything about two tables that can be checked before anything is learned."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
import pns_infer as pi

from pns_estimate._assignment import check_trial, split_assignment
from pns_estimate._files import read_table
from pns_estimate._table_checks import TableWarning, find_problems
from pns_estimate._training_data import Roles, TrainingData, read_training_data
from pns_estimate.methods import get_method


class PreparedTables(NamedTuple):
    """Two tables that a method can learn from.

    Attributes:
      observational: people who chose, as they were given.
      experimental: people assigned at random, as they were given.
      data: both, checked and encoded.
      trial: how the trial assigned.
      problems: why tables and columns may not be what they are taken for.
    """

    observational: pd.DataFrame
    experimental: pd.DataFrame
    data: TrainingData
    trial: pi.AssignmentCheck
    problems: list[str]


def prepare_tables(
    tables: tuple[Any, Any],
    roles: Roles,
    covariates: Sequence[str] | None,
    assignment: float | str | None,
    settings: dict[str, Any],
) -> PreparedTables:
    """Reads, checks and encodes two tables; warns of what looks wrong.

    Args:
      tables: the observational and the experimental one; DataFrames or paths.
      roles: what columns mean.
      covariates: as for `PnsEstimator.fit`.
      assignment: as for `PnsEstimator.fit`.
      settings: of the estimator, checked.
    """
    get_method(settings["method"])  # raises for a name that is no method
    first, second, probability = split_assignment(
        read_table(tables[0], "observational"),
        read_table(tables[1], "experimental"),
        assignment,
    )
    policies = (settings["missing"], settings["unseen"], int(settings["seed"]))
    data = read_training_data(first, second, roles, covariates, *policies)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pi.AssignmentWarning)
        trial = check_trial(data, probability)
    found = [pi.AssignmentWarning(str(w.message)) for w in caught]
    found += [TableWarning(t) for t in find_problems((first, second), data, trial)]
    for warning in found:
        warnings.warn(warning, stacklevel=3)
    return PreparedTables(first, second, data, trial, [str(w) for w in found])
