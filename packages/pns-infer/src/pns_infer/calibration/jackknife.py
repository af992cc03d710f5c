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
from jaxtyping import Float, Int


def jackknife_scale(members: pb.Atoms, fold: Int[np.ndarray, " num_members"]) -> float:
    """Computes the factor for the members' deviations that gives the error of their mean.

    Args:
      members: [num_members, num_points] atoms of every member at the same points.
      fold: the fold that each member did not see; two folds or more, every one with as
        many members, 2 at least.

    Returns:
      A factor for deviations with the members' covariance, the same at all points: it
      compares variances that are averaged over them. 0 if the members do not differ.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> mu = 0.5 + np.array([[0.1, 0], [-0.1, 0], [0.1, 0], [-0.1, 0]])[:, None]
      >>> members = pb.Atoms(np.full((4, 1, 2, 2), 0.25), mu)
      >>> # Within a fold the variance is 0.02; the means of the folds agree.
      >>> scale = jackknife_scale(members, fold=np.array([0, 0, 1, 1]))
      >>> round(scale * float(mu[..., 0].std(ddof=1)), 4)  # sqrt(0.02 / 4)
      0.0707
    """
    values = np.asarray(pb.pack_atoms(members), np.float64)
    groups = _by_fold(values, np.asarray(fold))
    num_folds, per_fold = groups.shape[:2]
    within = groups.var(axis=1, ddof=1).mean()
    between = groups.mean(axis=1).var(axis=0, ddof=1).mean()
    sampling = (num_folds - 1) ** 2 / num_folds * (between - within / per_fold)
    # Weights of mean 1 and variance 1 on a share f of the data vary by 1 / f of the
    # sampling variance, so that is at most f times what members of a fold vary by.
    most = (1 - 1 / num_folds) * within
    error = np.clip(sampling, 0, most) + within / len(values)
    total = values.var(axis=0, ddof=1).mean()
    return float(np.sqrt(error / total)) if total > 0 else 0.0


def _by_fold(
    values: Float[np.ndarray, "num_members num_points 6"],
    fold: Int[np.ndarray, " num_members"],
) -> Float[np.ndarray, "num_folds per_fold num_points 6"]:
    """Arranges members by fold; raises unless every fold has as many, 2 at least."""
    if values.ndim != 3 or 0 in values.shape:
        raise ValueError(
            "members must be atoms of shape [num_members, num_points], got "
            f"{list(values.shape[:-1])}."
        )
    if fold.shape != values.shape[:1]:
        raise ValueError(
            f"fold must have shape [{len(values)}], one label for each member, got "
            f"{list(fold.shape)}."
        )
    labels, sizes = np.unique(fold, return_counts=True)
    if len(labels) < 2 or sizes.min() < 2 or sizes.min() != sizes.max():
        raise ValueError(
            "a jackknife needs two folds or more, all with the same number of members, "
            f"2 at least; got folds of {sizes.tolist()} members."
        )
    return np.stack([values[fold == label] for label in labels])
