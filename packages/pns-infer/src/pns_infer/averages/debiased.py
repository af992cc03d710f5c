"""Averages of bounds over the units of the tables, without draws.

For each unit a held-out model says which term binds. The mean of the chosen terms never
exceeds the mean of the greatest, so it is a valid lower bound of the average, whatever was
chosen; likewise above. It is linear in the atoms, so `linear_means` estimates it without
the model's bias, and the choice needs no critical value. Semenova
(2023, arXiv:2004.03751) studies such debiased means of set-identified functionals.
"""

from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float

from pns_infer.averages.frequencies import (
    check_average,
    corrected_extreme,
    counted_means,
    divide_safely,
    term_rows,
)
from pns_infer.averages.held_out import HeldOutUnits
from pns_infer.averages.linear_means import (
    LinearMeans,
    Source,
    linear_means,
    stack_means,
)


class DebiasedAverage(NamedTuple):
    """An interval for the average of an estimand over units of the tables.

    Attributes:
      lower: lower end.
      upper: upper end.
      bound_lower: half-median-unbiased estimate of the lower bound.
      bound_upper: half-median-unbiased estimate of the upper bound.
      is_empty: whether lower > upper.
      mean_lower: estimated mean of the chosen lower terms.
      mean_upper: estimated mean of the chosen upper terms.
      standard_error_lower: of mean_lower.
      standard_error_upper: of mean_upper.
    """

    lower: float
    upper: float
    bound_lower: float
    bound_upper: float
    is_empty: bool
    mean_lower: float
    mean_upper: float
    standard_error_lower: float
    standard_error_upper: float


def debiased_average(
    units: HeldOutUnits,
    alpha: float = 0.05,
    *,
    estimand: pb.Estimand = pb.PNS,
    member: Float[np.ndarray, " n"] | None = None,
    source: Source = "both",
    with_frequencies: bool = True,
) -> DebiasedAverage:
    """Computes an interval for the average over a target population.

    It contains the identified set of the average with probability at least 1 - alpha,
    asymptotically: each end misses with at most alpha / 2. The mean of the chosen terms
    is one bound of the average, and every term of the plain frequencies is another; the
    best of them is taken, with a critical value for their number after adaptive
    selection. So a poor choice of terms costs no more, beside counting, than one term
    more in the critical value.

    For a ratio such as PN the average is that of the ratio's own population: the mean
    numerator over the mean denominator.

    Args:
      units: rows of both sources with held-out atoms.
      alpha: the probability of missing.
      estimand: with terms that are linear, or ratios of linear forms.
      member: weight of each row in a subgroup; see `linear_means`.
      source: whose covariates the target population has.
      with_frequencies: if False, the mean of the chosen terms stands alone.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from pns_infer import make_held_out_units
      >>> counts = np.array([200, 300, 100, 400, 650, 350, 200, 800])
      >>> x, y = np.tile([[0, 0, 1, 1], [0, 1, 0, 1]], 2)
      >>> joint, mu = [[0.25, 0.25], [0.15, 0.35]], [0.3, 0.7]  # a biased model
      >>> atoms = pb.Atoms(np.tile(joint, (8, 1, 1)), np.tile(mu, (8, 1)))
      >>> options = {"assignment": 0.5, "weights": counts, "weights_are": "frequency"}
      >>> units = make_held_out_units(atoms, np.arange(8) > 3, x, y, **options)
      >>> found = debiased_average(units)
      >>> round(found.mean_lower, 3), round(found.mean_upper, 3)  # sharp: 0.45 and 0.6
      (0.45, 0.6)
      >>> found.lower < 0.45 and 0.6 < found.upper
      True
    """
    check_average(estimand, alpha)
    means = bound_means(units, estimand, member, source)
    ends = []
    for place, (side, sign) in enumerate((("lower", -1), ("upper", 1))):
        candidates = [means.combine(np.eye(2)[place : place + 1])]
        if with_frequencies:
            candidates += counted_means(units, estimand, side, member, source)
        limit = estimand.floor if side == "lower" else estimand.ceiling
        pair = corrected_extreme(stack_means(candidates), sign, limit, alpha)
        ends.append(pair)
    (lower, bound_lower), (upper, bound_upper) = ends
    return DebiasedAverage(
        lower=lower,
        upper=upper,
        bound_lower=bound_lower,
        bound_upper=bound_upper,
        is_empty=lower > upper,
        mean_lower=float(means.estimate[0]),
        mean_upper=float(means.estimate[1]),
        standard_error_lower=float(means.standard_error[0]),
        standard_error_upper=float(means.standard_error[1]),
    )


def bound_means(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    member: Float[np.ndarray, " n"] | None = None,
    source: Source = "both",
    rule: Float[np.ndarray, " n"] | None = None,
) -> LinearMeans:
    """Estimates the mean lower and upper bound, each from the term chosen by row.

    Args:
      units: rows of both sources.
      estimand: what is bounded.
      member: weight of each row in a subgroup.
      source: whose covariates the target population has.
      rule: [n] factors of the rows' bounds, such as who is treated; 1 if None. Like a
        subgroup it must mean the same in both sources.
    """
    eta = pb.pack_atoms(units.atoms)
    matrices, offsets = [], []
    for side, pick in (("lower", np.argmax), ("upper", np.argmin)):
        matrix, offset = term_rows(estimand, side)
        chosen = pick(eta @ matrix.T + offset, axis=1)
        matrices.append(matrix[chosen])
        offsets.append(offset[chosen])
    if estimand.denominator is not None:
        below = np.array(estimand.denominator)
        matrices.append(np.broadcast_to(below, eta.shape))
        offsets.append(np.zeros(len(eta)))
    matrix, offset = np.stack(matrices, axis=1), np.stack(offsets, axis=1)
    if rule is not None:
        matrix, offset = matrix * rule[:, None, None], offset * rule[:, None]
    means = linear_means(units, matrix, offset, member, source)
    return means if estimand.denominator is None else divide_safely(means)
