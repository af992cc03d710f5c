"""How the trial assigned: a number or a column, checked against its arms."""

from typing import Any

import numpy as np
import pandas as pd
import pns_infer as pi

from pns_estimate._errors import UserError, as_user_errors
from pns_estimate.tables.training_data import TrainingData


def split_assignment(
    observational: pd.DataFrame, experimental: pd.DataFrame, assignment: Any
) -> tuple[pd.DataFrame, pd.DataFrame, Any]:
    """Takes the column of assignment probabilities out of the tables.

    Args:
      observational: people who chose; the column may be there, and is not read.
      experimental: people assigned at random.
      assignment: a number, the name of a column, or None.

    Returns:
      Both tables without the column, and None, a number, or one for each experimental
      row.
    """
    if not isinstance(assignment, str):
        return observational, experimental, assignment
    if assignment not in experimental.columns:
        raise UserError(
            f"the experimental table has no column {assignment!r} of assignment "
            "probabilities."
        )
    column = experimental[assignment]
    try:
        values = column.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"the assignment probabilities {assignment!r} are no numbers."
        ) from error
    return (
        observational.drop(columns=[assignment], errors="ignore"),
        experimental.drop(columns=[assignment]),
        values,
    )


def check_trial(data: TrainingData, assignment: Any) -> pi.AssignmentCheck:
    """Reads the probability of the treated arm and tests it against the trial."""
    z, x, _, weights = data.tables["experimental"]
    cluster = None
    if data.groups is not None:
        cluster = np.unique(data.groups[-len(x) :], return_inverse=True)[1]
    is_counted = data.weights_are == "frequency" and cluster is None
    copies = weights if is_counted else None
    with as_user_errors():
        return pi.check_assignment(
            x, np.asarray(z, float), assignment, weights, cluster, copies
        )
