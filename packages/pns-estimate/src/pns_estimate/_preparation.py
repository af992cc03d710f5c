"""Everything about two tables that can be checked before anything is learned."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
import pns_infer as pi

from pns_estimate._assignment import check_trial, split_assignment
from pns_estimate._files import read_table
from pns_estimate._training_data import Roles, TrainingData, read_training_data
from pns_estimate.methods import get_method


class PreparedTables(NamedTuple):
    """Two tables that a method can learn from.

    Attributes:
      observational: people who chose, as they were given.
      experimental: people assigned at random, as they were given.
      data: both, checked and encoded.
      trial: how the trial assigned.
    """

    observational: pd.DataFrame
    experimental: pd.DataFrame
    data: TrainingData
    trial: pi.AssignmentCheck


def prepare_tables(
    tables: tuple[Any, Any],
    roles: Roles,
    covariates: Sequence[str] | None,
    assignment: float | str | None,
    settings: dict[str, Any],
) -> PreparedTables:
    """Reads, checks and encodes two tables.

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
    return PreparedTables(first, second, data, check_trial(data, probability))
