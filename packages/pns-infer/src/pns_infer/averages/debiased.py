"""Averages of bounds over the units of the tables, without draws.

For each unit a held-out model says which term binds. The mean of the chosen terms never
exceeds the mean of the greatest, so it is a valid lower bound of the average, whatever was
chosen; likewise above. It is linear in the atoms, so `linear_means` estimates it without
the model's bias, and the choice needs no critical value. Semenova
(2023, arXiv:2004.03751) studies such debiased means of set-identified functionals.
"""

import functools
from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float
from scipy import special, stats

from pns_infer.averages.held_out import (
    HeldOutUnits,
    LinearMeans,
    Member,
    PerRow,
    Source,
    linear_means,
    stack_means,
)
from pns_infer.core.critical import Side, corrected_minimum, select_terms, sorted_maxima
from pns_infer.core.inputs import check_alpha
from pns_infer.core.many_points import AverageInterval


class DebiasedAverage(NamedTuple):
    """An interval for the average of an estimand over units of the tables.

    As `AverageInterval`, with the estimated means of the chosen lower and upper terms.
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
    member: Member = None,
    source: Source = "both",
    with_frequencies: bool = True,
) -> DebiasedAverage:
    """Computes an interval for the average over a target population.

    It contains the identified set of the average with probability at least 1 - alpha,
    asymptotically: each end misses with at most alpha / 2. The mean of the chosen terms
    is one bound of the average, and every term of the plain frequencies is another; the
    best of them is taken, with a critical value for their number after adaptive
    selection, so a poor choice of terms costs no more than one further term. With
    `with_frequencies=False` the mean of the chosen terms stands alone.

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
    member: Member = None,
    source: Source = "both",
    rule: PerRow | None = None,
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


_NUM_DRAWS = 20_000  # of the normal law of the terms, always the same
_EFFECT = np.eye(pb.BINARY.num_raw)[0] - np.eye(pb.BINARY.num_raw)[1]  # mu1 - mu0


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
    member: Member = None,
    source: Source = "both",
    trial_alone: bool = False,
) -> AverageInterval:
    """Computes precision-corrected bounds of an average from weighted frequencies.

    Terms are corrected for the winner's curse; `trial_alone` keeps those that the
    experiment alone identifies. Held-out atoms are not read, unless the sources' laws
    differ (`units.ratio`): then frequencies are of two populations, and each term is
    the debiased mean over the target. Other arguments are as for `debiased_average`.

    Example:
      >>> from pns_infer.averages.held_out import example_units
      >>> found = frequency_interval(example_units())
      >>> round(found.bound_lower, 2), round(found.bound_upper, 2)
      (0.22, 0.58)
    """
    check_average(estimand, alpha)
    ends = []
    for side in bound_sides(estimand):
        parts = counted_means(units, estimand, side, member, source, trial_alone)
        known = (side.limit, side.limit)
        ends.append(corrected_extreme(parts[0], side, alpha) if parts else known)
    (lower, bound_lower), (upper, bound_upper) = ends
    return AverageInterval(lower, upper, bound_lower, bound_upper, lower > upper)


def trial_difference(
    units: HeldOutUnits, alpha: float = 0.05, member: Member = None
) -> Difference:
    """Computes the experiment's difference in means, weighted by inverse probability.

    Example:
      >>> from pns_infer.averages.held_out import example_units
      >>> found = trial_difference(example_units())
      >>> round(found.estimate, 3)  # 0.65 - 0.45
      0.2
    """
    check_alpha(alpha)
    means = effect_means(units.without_atoms(), member, "experimental")
    estimate, error = means.estimate.item(), means.standard_error.item()
    margin = float(stats.norm.ppf(1 - alpha / 2)) * error
    ends = np.clip([estimate - margin, estimate + margin], -1, 1)  # of a difference
    return Difference(estimate, error, *ends.tolist())


def effect_means(units: HeldOutUnits, member: Member, source: Source) -> LinearMeans:
    """Estimates the mean of mu1 - mu0."""
    matrix = np.broadcast_to(_EFFECT, (units.num_rows, 1, len(_EFFECT)))
    return linear_means(units, matrix, np.zeros((units.num_rows, 1)), member, source)


def check_average(estimand: pb.Estimand, alpha: float) -> None:
    """Raises unless the estimand's average can be debiased."""
    check_alpha(alpha)
    if estimand.function is not None:
        raise pb.InputError(
            "estimand",
            f"{estimand.name!r} has terms that are neither linear in the atoms nor "
            "ratios of linear forms, so its average cannot be debiased; use "
            "average_interval.",
        )


class BoundSide(NamedTuple):
    """One side of an estimand: an extreme of linear forms of eta, and a known limit.

    The sign is -1 for the greatest of lower bounds and 1 for the least of upper ones.
    For ratios the forms are numerators.
    """

    sign: int
    matrix: Float[np.ndarray, "num_terms eta"]
    offset: Float[np.ndarray, " num_terms"]
    limit: float


def bound_sides(estimand: pb.Estimand) -> list[BoundSide]:
    """Returns the lower and the upper side of an estimand."""
    sides = []
    for sign, matrix, offset, limit in (
        (-1, estimand.lower_matrix, estimand.lower_offset, estimand.floor),
        (1, estimand.upper_matrix, estimand.upper_offset, estimand.ceiling),
    ):
        matrix = np.array(matrix, float).reshape(-1, pb.BINARY.num_raw)
        sides.append(BoundSide(sign, matrix, np.array(offset, float), limit))
    return sides


def counted_means(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    side: BoundSide,
    member: Member,
    source: Source,
    trial_alone: bool = False,
) -> list[LinearMeans]:
    """Estimates every term of a side by frequencies; an empty list if it has none."""
    if units.ratio is None:
        units = units.without_atoms()
    matrix, offset = side.matrix, side.offset
    if trial_alone:
        known = ~matrix[:, pb.BINARY.num_free :].any(axis=1)
        known &= estimand.denominator is None
        matrix, offset = matrix[known], offset[known]
    if not len(matrix):
        return []
    matrix = np.broadcast_to(matrix, (units.num_rows, *matrix.shape))
    offset = np.broadcast_to(offset, matrix.shape[:2])
    return [estimand_means(units, estimand, matrix, offset, member, source)]


def estimand_means(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    matrix: Float[np.ndarray, "n k eta"],
    offset: Float[np.ndarray, "n k"],
    member: Member,
    source: Source,
    rule: PerRow | None = None,
) -> LinearMeans:
    """Estimates the means of an estimand's terms, by rows, times a rule if given.

    Those of a ratio are divided by the mean of its denominator.
    """
    if estimand.denominator is not None:
        below = np.broadcast_to(estimand.denominator, (len(matrix), 1, matrix.shape[2]))
        matrix = np.concatenate([matrix, below], axis=1)
        offset = np.concatenate([offset, np.zeros((len(offset), 1))], axis=1)
    if rule is not None:
        matrix, offset = matrix * rule[:, None, None], offset * rule[:, None]
    means = linear_means(units, matrix, offset, member, source)
    if estimand.denominator is None:
        return means
    if not means.estimate[-1] > 5 * means.standard_error[-1]:
        raise pb.InputError(
            "estimand",
            f"{estimand.name!r} has too few units in its own population: the denominator "
            "of the average is not clearly above 0 (five standard errors).",
        )
    return means.divide(-1).combine(np.eye(len(means.estimate))[:-1])


def corrected_extreme(
    means: LinearMeans, side: BoundSide, alpha: float
) -> tuple[float, float]:
    """Returns the corrected and the half-median-unbiased extreme of means and a limit.

    The corrected end misses with probability alpha / 2.
    """
    sign, limit = side.sign, side.sign * side.limit
    negated = means.combine(sign * np.eye(len(means.estimate)))
    terms = Side(negated.estimate, negated.standard_error, tails=normal_tails(negated))
    size = max(means.sample_size, 3.0)
    active = select_terms(terms, sorted_maxima(terms), size, limit)
    maxima = sorted_maxima(terms, active)
    margin = negated.skew_margin(1, float(stats.norm.ppf(1 - alpha / 2)))
    cautious = terms._replace(center=terms.center + margin)
    end = corrected_minimum(cautious, maxima, 1 - alpha / 2).value
    middle = corrected_minimum(terms, maxima, 0.5).value
    # Adding 0 makes -0.0, a negated floor, 0.
    return (sign * min(float(end), limit) + 0.0, sign * min(float(middle), limit) + 0.0)


def normal_tails(means: LinearMeans) -> Float[np.ndarray, "k num_draws"]:
    """Draws standardized normal errors with the correlation of the means.

    A multiplier bootstrap with normal multipliers of the clusters has exactly this law.
    """
    error = means.standard_error
    scale = np.where(error > 0, 1 / np.where(error > 0, error, 1), 0)
    values, vectors = np.linalg.eigh(means.covariance * np.outer(scale, scale))
    # The symmetric root, since vectors of the same values may turn by rounding.
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    return root @ _normals(len(error))


@functools.lru_cache(maxsize=4)
def _normals(count: int) -> Float[np.ndarray, "count num_draws"]:
    """Draws normals whose quantiles are exact in each row (a Latin hypercube)."""
    rng = np.random.default_rng(0)
    place = np.stack([rng.permutation(_NUM_DRAWS) for _ in range(count)])
    return special.ndtri((place + 0.5) / _NUM_DRAWS)
