"""What was said of each row of the tables by networks that did not see it."""

from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int

from pns_estimate.methods import MethodFit
from pns_estimate.tables.training_data import TrainingData


class HeldOutRows(NamedTuple):
    """Rows of both tables, the observational ones first, with held-out answers.

    Training data: it lives as long as the estimator, and is not saved.

    Attributes:
      source: 0 observational, 1 experimental.
      x: treatment.
      y: outcome.
      weights: as the fit counted them.
      group: number of each row's group; None if there are no groups.
      fold: in which the row was held out.
      cell: a number that rows of one fold with the same encoded covariates share.
      atoms: of each row, by networks that did not see its fold.
    """

    source: Int[np.ndarray, " n"]
    x: Int[np.ndarray, " n"]
    y: Int[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]
    group: Int[np.ndarray, " n"] | None
    fold: Int[np.ndarray, " n"]
    cell: Int[np.ndarray, " n"]
    atoms: pb.Atoms


def collect_held_out_rows(data: TrainingData, learned: MethodFit) -> HeldOutRows | None:
    """Joins tables and held-out answers; None unless every row was held out once."""
    row, fold, atoms = learned.held_out_row, learned.fold, learned.held_out_atoms
    if row is None or fold is None or atoms is None:
        return None
    tables = list(data.tables.values())
    return HeldOutRows(
        source=np.repeat([0, 1], [len(table.x) for table in tables]),
        x=np.concatenate([table.x for table in tables]),
        y=np.concatenate([table.y for table in tables]),
        weights=np.concatenate([table.weights for table in tables]),
        group=data.groups,
        fold=fold,
        cell=row,
        atoms=pb.Atoms(*(np.asarray(part)[row] for part in atoms)),
    )
