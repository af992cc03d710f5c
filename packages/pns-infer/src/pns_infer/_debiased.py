"""Averages of bounds over the units of the tables, without draws.

For each unit a held-out model says which term binds. The mean of the chosen terms never
exceeds the mean of the greatest, so it is a valid lower bound of the average, whatever was
chosen; likewise above. It is linear in the atoms, so `linear_means` estimates it without
the model's bias, and a normal interval needs no critical value for the choice. Semenova
(2023, arXiv:2004.03751) studies such debiased means of set-identified functionals.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float

from pns_infer._frequencies import (
    check_average,
    divide_safely,
    frequency_interval,
    term_rows,
)
from pns_infer._held_out import HeldOutUnits
from pns_infer._linear_means import LinearMeans, Source, linear_means


class DebiasedAverage(NamedTuple):
    """An interval for the average of an estimand over units of the tables.

    Attributes:
      lower: lower end, after the intersection with the frequencies' interval.
      upper: upper end.
      bound_lower: estimated mean of the chosen lower terms, or the bound of frequencies
        if that is greater, as with a poor model it is.
      bound_upper: likewise above.
      is_empty: whether lower > upper.
      standard_error_lower: of the mean of the chosen lower terms.
      standard_error_upper: of the mean of the chosen upper terms.
    """

    lower: float
    upper: float
    bound_lower: float
    bound_upper: float
    is_empty: bool
    standard_error_lower: float
    standard_error_upper: float


def debiased_average(
    units: HeldOutUnits,
    alpha: float = 0.05,
    *,
    estimand: pb.Estimand = pb.PNS,
    member: Float[np.ndarray, " n"] | None = None,
    source: Source = "both",
    frequency_share: float = 0.1,
) -> DebiasedAverage:
    """Computes an interval for the average over a target population.

    It contains the identified set of the average with probability at least 1 - alpha,
    asymptotically: each end misses with at most alpha / 2. The interval from frequencies
    without covariates, at `frequency_share * alpha`, is intersected with it, so up to
    that share the result is never wider than counting.

    For a ratio such as PN the average is that of the ratio's own population: the mean
    numerator over the mean denominator.

    Args:
      units: rows of both sources with held-out atoms.
      alpha: the probability of missing.
      estimand: with terms that are linear, or ratios of linear forms.
      member: weight of each row in a subgroup; see `linear_means`.
      source: whose covariates the target population has.
      frequency_share: share of alpha spent on the frequencies' interval; 0 leaves it out.
    """
    check_average(estimand, alpha)
    if not 0 <= frequency_share < 1:
        raise ValueError(f"frequency_share must lie in [0, 1), got {frequency_share}.")
    means = bound_means(units, estimand, member, source)
    error = means.standard_error
    z = NormalDist().inv_cdf(1 - (1 - frequency_share) * alpha / 2)
    ends = means.estimate + z * error * np.array([-1, 1])
    limits = estimand.floor, estimand.ceiling
    lower, upper = max(ends[0], limits[0]), min(ends[1], limits[1])
    bounds = np.clip(means.estimate, *limits)
    if frequency_share:
        counted = frequency_interval(
            units,
            frequency_share * alpha,
            estimand=estimand,
            member=member,
            source=source,
        )
        lower, upper = max(lower, counted.lower), min(upper, counted.upper)
        bounds = (
            max(bounds[0], counted.bound_lower),
            min(bounds[1], counted.bound_upper),
        )
    return DebiasedAverage(
        lower=float(lower),
        upper=float(upper),
        bound_lower=float(bounds[0]),
        bound_upper=float(bounds[1]),
        is_empty=bool(lower > upper),
        standard_error_lower=float(error[0]),
        standard_error_upper=float(error[1]),
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
