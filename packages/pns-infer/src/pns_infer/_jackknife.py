"""How much the members of a cross-fitted ensemble should differ, by sampling theory.

Members of fold j were trained without it, each with its own random weights. The mean over
all members errs by the sampling error of the data, plus a share of the members' own noise.
Fold means differ because each lacks other data: that is a delete-group jackknife, whose
variance estimates the sampling error; what the members' noise adds to it is known from
their differences within a fold, and is taken off. No neighbors are needed, so it works for
covariates that never repeat. It knows nothing of bias that all members share.
"""

import numpy as np
import pns_bounds as pb
from jaxtyping import Int


def jackknife_scale(members: pb.Atoms, fold: Int[np.ndarray, " num_members"]) -> float:
    """Computes the factor for the members' deviations that gives the error of their mean.

    Args:
      members: [num_members, num_points] atoms of every member at the same points.
      fold: the fold that each member did not see; every fold has as many members, 2 at
        least.

    Returns:
      A factor for deviations with the members' covariance.
    """
    values = np.asarray(pb.pack_atoms(members), np.float64)
    fold = np.asarray(fold)
    num_folds = int(fold.max()) + 1
    groups = np.stack([values[fold == j] for j in range(num_folds)])
    per_fold = groups.shape[1]
    within = groups.var(axis=1, ddof=1).mean()
    between = groups.mean(axis=1).var(axis=0, ddof=1).mean()
    sampling = (num_folds - 1) ** 2 / num_folds * (between - within / per_fold)
    # Weights of mean 1 and variance 1 on a share f of the data vary by 1 / f of the
    # sampling variance, so that is at most f times what members of a fold vary by.
    most = (1 - 1 / num_folds) * within
    error = np.clip(sampling, 0, most) + within / len(values)
    return float(np.sqrt(error / values.var(axis=0, ddof=1).mean()))
