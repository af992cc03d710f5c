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
from jaxtyping import Float, Shaped

from pns_infer.averages.frequencies import (
    bound_sides,
    check_average,
    corrected_extreme,
    counted_means,
    estimand_means,
)
from pns_infer.averages.held_out import HeldOutUnits
from pns_infer.averages.linear_means import LinearMeans, Source, stack_means


class DebiasedAverage(NamedTuple):
    """An interval for the average of an estimand over units of the tables.

    Attributes:
      lower: end of the interval; crossing ends are flagged by `is_empty`.
      upper: end of the interval.
      bound_lower: half-median-unbiased estimate of the lower bound.
      bound_upper: the same of the upper bound.
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
    member: Shaped[np.ndarray, " n"] | None = None,
    source: Source = "both",
    with_frequencies: bool = True,
) -> DebiasedAverage:
    """Computes an interval for the average over a target population.

    It contains the identified set of the average with probability at least 1 - alpha,
    asymptotically: each end misses with at most alpha / 2. The mean of the chosen terms
    is one bound of the average, and every term of the plain frequencies is another; the
    best of them is taken, with a critical value for their number after adaptive
    selection. Compared with plain frequencies, a poor choice of terms costs no more
    than one further term in the critical value. With `with_frequencies=False` the mean
    of the chosen terms stands alone.

    Terms must be linear in the atoms, or ratios of linear forms; the average of a ratio
    such as PN is that of its own population: the mean numerator over the mean
    denominator. See `linear_means` for `member` and `source`.

    Example:
      >>> from pns_infer.averages.held_out import example_units
      >>> found = debiased_average(example_units())
      >>> round(found.mean_lower, 3), round(found.mean_upper, 3)  # of 0.45, 0.15, ...
      (0.3, 0.475)
    """
    check_average(estimand, alpha)
    means = bound_means(units, estimand, member, source)
    ends = []
    for place, side in enumerate(bound_sides(estimand)):
        candidates = [means.combine(np.eye(2)[place : place + 1])]
        if with_frequencies:
            candidates += counted_means(units, estimand, side, member, source)
        ends.append(corrected_extreme(stack_means(candidates), side, alpha))
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
    member: Shaped[np.ndarray, " n"] | None = None,
    source: Source = "both",
    rule: Float[np.ndarray, " n"] | None = None,
) -> LinearMeans:
    """Estimates the mean lower and upper bound, each from the term chosen by row.

    The rule multiplies the rows' bounds, as who is treated does; like a subgroup it must
    mean the same in both sources.
    """
    eta = pb.pack_atoms(units.atoms)
    matrices, offsets = [], []
    for side in bound_sides(estimand):
        matrix, offset = side.matrix, side.offset
        if np.isfinite(side.limit):  # for ratios, the limit times the denominator
            below = np.array(estimand.denominator or np.zeros(eta.shape[1]))
            known = side.limit if estimand.denominator is None else 0.0
            matrix = np.concatenate([matrix, side.limit * below[None]])
            offset = np.append(offset, known)
        if not len(matrix):
            raise pb.InputError(
                "estimand", f"{estimand.name!r} has a side with neither term nor limit."
            )
        chosen = np.argmin(side.sign * (eta @ matrix.T + offset), axis=1)
        matrices.append(matrix[chosen])
        offsets.append(offset[chosen])
    matrix, offset = np.stack(matrices, axis=1), np.stack(offsets, axis=1)
    return estimand_means(units, estimand, matrix, offset, member, source, rule)
