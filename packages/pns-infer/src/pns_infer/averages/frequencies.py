"""What counting gives: bounds of the average from frequencies without covariates."""

import functools
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float
from scipy import special

from pns_infer.averages.held_out import HeldOutUnits
from pns_infer.averages.linear_means import LinearMeans, Source, linear_means
from pns_infer.core.average import AverageInterval
from pns_infer.core.critical import Side, corrected_minimum, select_terms, sorted_maxima
from pns_infer.core.inputs import check_alpha

_NUM_DRAWS = 20_000  # of the normal law of the terms, always the same


class Difference(NamedTuple):
    """A point estimate with its standard error and normal interval."""

    estimate: float
    standard_error: float
    lower: float
    upper: float


def frequency_interval(
    units: HeldOutUnits,
    alpha: float = 0.05,
    *,
    estimand: pb.Estimand = pb.PNS,
    member: Float[np.ndarray, " n"] | None = None,
    source: Source = "both",
    trial_alone: bool = False,
) -> AverageInterval:
    """Computes precision-corrected bounds of an average from plain weighted frequencies.

    The terms of the averaged atoms, corrected for the winner's curse as
    `intervals_from_estimates` does. Held-out atoms are not read, unless the sources'
    laws differ (`units.ratio`): then frequencies are of two populations, and each
    term is the debiased mean over the target instead.

    Args:
      units: rows of both sources.
      alpha: the probability of missing.
      estimand: as for `debiased_average`.
      member: weight of each row in a subgroup.
      source: whose covariates the target population has.
      trial_alone: keep the terms that the experiment alone identifies.

    Returns:
      Numbers; the bounds are half-median-unbiased.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from pns_infer import make_held_out_units
      >>> counts = 100 * np.array([20, 30, 10, 40, 65, 35, 20, 80])
      >>> x, y = np.tile([[0, 0, 1, 1], [0, 1, 0, 1]], 2)
      >>> unread = pb.Atoms(np.zeros((8, 2, 2)), np.zeros((8, 2)))
      >>> options = {"assignment": 0.5, "weights": counts, "weights_are": "frequency"}
      >>> units = make_held_out_units(unread, np.arange(8) > 3, x, y, **options)
      >>> found = frequency_interval(units)
      >>> round(found.bound_lower, 2)  # mu1 - mu0
      0.45
      >>> round(found.bound_upper, 2)  # p11 + p00
      0.6
      >>> round(frequency_interval(units, trial_alone=True).bound_upper, 2)  # 1 - mu0
      0.65
    """
    check_average(estimand, alpha)
    ends = []
    for side, sign in (("lower", -1), ("upper", 1)):
        limit = estimand.floor if side == "lower" else estimand.ceiling
        parts = counted_means(units, estimand, side, member, source, trial_alone)
        pair = (limit, limit)
        if parts:
            pair = corrected_extreme(parts[0], sign, limit, alpha)
        ends.append(pair)
    (lower, bound_lower), (upper, bound_upper) = ends
    return AverageInterval(lower, upper, bound_lower, bound_upper, lower > upper)


def counted_means(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    side: str,
    member: Float[np.ndarray, " n"] | None,
    source: Source,
    trial_alone: bool = False,
) -> list[LinearMeans]:
    """Estimates every term of a side by frequencies; an empty list if it has none."""
    if units.ratio is None:
        nothing = pb.Atoms(*(np.zeros_like(part) for part in units.atoms))
        units = units._replace(atoms=nothing)
    matrix, offset = term_rows(estimand, side, with_limit=False)
    if trial_alone:
        known = ~matrix[:, 2:].any(axis=1) & (estimand.denominator is None)
        matrix, offset = matrix[known], offset[known]
    if not len(matrix):
        return []
    return [_fixed_means(units, estimand, matrix, offset, member, source)]


def trial_difference(
    units: HeldOutUnits,
    alpha: float = 0.05,
    member: Float[np.ndarray, " n"] | None = None,
) -> Difference:
    """Computes the experiment's difference in means, weighted by inverse probability.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from pns_infer import make_held_out_units
      >>> x, y = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], [650, 350, 200, 800], axis=1)
      >>> unread = pb.Atoms(np.zeros((2000, 2, 2)), np.zeros((2000, 2)))
      >>> units = make_held_out_units(unread, x >= 0, x, y, assignment=0.5)
      >>> found = trial_difference(units)
      >>> round(found.estimate, 3)  # 0.8 - 0.35
      0.45
      >>> round(found.standard_error, 3)  # sqrt((0.8 * 0.2 + 0.35 * 0.65) / 1000)
      0.02
    """
    check_alpha(alpha)
    nothing = pb.Atoms(*(np.zeros_like(part) for part in units.atoms))
    matrix = np.broadcast_to([1.0, -1, 0, 0, 0, 0], (units.sample_size, 1, 6))
    means = linear_means(
        units._replace(atoms=nothing, ratio=None),
        matrix,
        np.zeros((units.sample_size, 1)),
        member,
        "experimental",
    )
    estimate, error = means.estimate[0], means.standard_error[0]
    z = NormalDist().inv_cdf(1 - alpha / 2)
    return Difference(
        *(
            float(v)
            for v in (estimate, error, estimate - z * error, estimate + z * error)
        )
    )


def check_average(estimand: pb.Estimand, alpha: float) -> None:
    """Raises unless the estimand's average can be debiased."""
    check_alpha(alpha)
    if estimand.function is not None:
        raise ValueError(
            f"the terms of {estimand.name!r} are no linear forms of the atoms, nor ratios "
            "of those, so their average cannot be debiased; use average_interval."
        )


def term_rows(
    estimand: pb.Estimand, side: str, with_limit: bool = True
) -> tuple[Float[np.ndarray, "num_terms 6"], Float[np.ndarray, " num_terms"]]:
    """Returns the terms of a side as numerators, the limit that needs no data last."""
    matrix = np.array(getattr(estimand, f"{side}_matrix"), float).reshape(-1, 6)
    offset = np.array(getattr(estimand, f"{side}_offset"), float)
    limit = estimand.floor if side == "lower" else estimand.ceiling
    if with_limit and np.isfinite(limit):
        below = estimand.denominator
        row = np.zeros(6) if below is None else limit * np.array(below)
        matrix = np.concatenate([matrix, row[None]])
        offset = np.append(offset, limit if below is None else 0.0)
    if with_limit and not len(matrix):
        raise ValueError(f"{estimand.name!r} has neither {side} terms nor a limit.")
    return matrix, offset


def _fixed_means(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    matrix: Float[np.ndarray, "num_terms 6"],
    offset: Float[np.ndarray, " num_terms"],
    member: Float[np.ndarray, " n"] | None,
    source: Source,
) -> LinearMeans:
    """Estimates the mean of each term, the same for every row."""
    if estimand.denominator is not None:
        matrix = np.concatenate([matrix, [estimand.denominator]])
        offset = np.append(offset, 0.0)
    shape = (units.sample_size, len(matrix))
    means = linear_means(
        units,
        np.broadcast_to(matrix, (*shape, 6)),
        np.broadcast_to(offset, shape),
        member,
        source,
    )
    return means if estimand.denominator is None else divide_safely(means)


def divide_safely(means: LinearMeans) -> LinearMeans:
    """Divides by the last mean; raises unless it is well above 0."""
    if not means.estimate[-1] > 5 * means.standard_error[-1]:
        raise ValueError(
            "the denominator of the average is not clearly above 0 (five standard "
            "errors): too few units are in its population."
        )
    return means.divide(-1).combine(np.eye(len(means.estimate))[:-1])


def corrected_extreme(
    means: LinearMeans, sign: int, limit: float, alpha: float
) -> tuple[float, float]:
    """Returns the corrected and the half-median-unbiased extreme of means and a limit.

    Args:
      means: estimates of several bounds.
      sign: -1 for the greatest of lower bounds, 1 for the least of upper ones.
      limit: a bound that needs no data.
      alpha: the end misses with alpha / 2.
    """
    negated = means.combine(sign * np.eye(len(means.estimate)))
    side = Side(negated.estimate, negated.standard_error, tails=normal_tails(negated))
    size = max(means.sample_size, 3.0)
    active = select_terms(side, sorted_maxima(side), size, sign * limit)
    maxima = sorted_maxima(side, active)
    margin = negated.skew_margin(1, NormalDist().inv_cdf(1 - alpha / 2))
    ends = (
        corrected_minimum(side._replace(center=center), maxima, probability)[0]
        for center, probability in (
            (side.center + margin, 1 - alpha / 2),
            (side.center, 0.5),
        )
    )
    # Adding 0 makes -0.0, a negated floor, 0.
    end, middle = (sign * min(float(value), sign * limit) + 0.0 for value in ends)
    return end, middle


def normal_tails(
    means: LinearMeans, num_draws: int = _NUM_DRAWS
) -> Float[np.ndarray, "k num_draws"]:
    """Draws standardized normal errors with the correlation of the means.

    A multiplier bootstrap with normal multipliers of the clusters has exactly this law.
    """
    error = means.standard_error
    scale = np.where(error > 0, 1 / np.where(error > 0, error, 1), 0)
    values, vectors = np.linalg.eigh(means.covariance * np.outer(scale, scale))
    # The symmetric root, since vectors of the same values may turn by rounding.
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    return root @ _normals(len(error), num_draws)


@functools.lru_cache(maxsize=4)
def _normals(count: int, num_draws: int) -> Float[np.ndarray, "count num_draws"]:
    """Draws normals whose quantiles are exact in each row (a Latin hypercube)."""
    rng = np.random.default_rng(0)
    place = np.stack([rng.permutation(num_draws) for _ in range(count)])
    return special.ndtri((place + 0.5) / num_draws)
