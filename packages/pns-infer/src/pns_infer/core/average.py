"""Intervals for a mean over units: a population, or a weighted subgroup."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float

from pns_infer.core.critical import (
    Side,
    corrected_minimum,
    find_maxima,
    order_statistic,
    select_terms,
)
from pns_infer.core.inputs import (
    Draws,
    check_alpha,
    check_at_least,
    cut_draws,
    make_sides,
)

Array = Any  # NumPy or JAX


class AverageInterval(NamedTuple):
    """An interval for the mean of an estimand over units, or over each of some groups.

    `bound_lower` and `bound_upper` are means of half-median-unbiased bounds; `is_empty`
    says whether lower > upper.
    """

    lower: Float[np.ndarray, "*groups"]
    upper: Float[np.ndarray, "*groups"]
    bound_lower: Float[np.ndarray, "*groups"]
    bound_upper: Float[np.ndarray, "*groups"]
    is_empty: Bool[np.ndarray, "*groups"]


def average_interval(
    draws: Draws | Iterable[Draws],
    alpha: float = 0.05,
    *,
    sample_size: float,
    weights: Float[Array, "*groups num_points"] | None = None,
    estimand: pb.Estimand = pb.PNS,
    center: Draws | None = None,
    points_per_chunk: int = 256,
) -> AverageInterval:
    """Computes an interval for the weighted mean of an estimand over the points.

    The mean of the bounds of all points is the sharp bound of the mean. Each bound is
    estimated half-median-unbiased, after adaptive selection, so that the winner's curse
    does not add up over units. The noise of the mean is that of the selected terms:
    within a draw their deviations are averaged over units, and the quantiles of that
    average over the draws give the interval. It contains the identified set of the mean
    with probability at least 1 - alpha, asymptotically; the points are taken as given.

    Arguments are as for `intervals_from_draws`; within a draw the points must be
    coherent. Weights are not negative, and equal if None. A mask selects a subgroup;
    with weights [num_groups, num_points] every field of the result is [num_groups].

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from scipy.special import ndtri
      >>> noise = 0.01 * ndtri((np.arange(1000) + 0.5) / 1000)
      >>> lower = np.stack([0.2 + noise, 0.4 + noise], axis=1)[..., None]
      >>> draws = pb.BoundTerms(lower, lower + 0.3)
      >>> found = average_interval(draws, sample_size=1000)
      >>> [round(float(end), 3) for end in found[:2]]  # 0.3, 0.6 and 1.96 * 0.01
      [0.28, 0.62]
    """
    check_alpha(alpha)
    check_at_least("sample_size", sample_size, 2)
    if weights is not None:
        weights = _checked_weights(weights)
    ends: list[Any] = [0.0, 0.0]
    noise: list[Any] = [0.0, 0.0]
    start = 0
    total: Any = 0.0
    limits = (-estimand.floor, estimand.ceiling)
    for block in cut_draws(draws, points_per_chunk, center):
        pair = make_sides(block, estimand)
        size = len(pair[0].center)
        portion = np.ones(size)
        if weights is not None:
            portion = weights[..., start : start + size]
        start += size
        if portion.shape[-1] < size:
            break
        total = total + portion.sum(axis=-1)
        for i in (0, 1):
            values, deviations = _selected(pair[i], limits[i], sample_size)
            # A side without terms and limits is infinite; 0 times that counts nothing.
            ends[i] = ends[i] + np.sum(
                portion * np.where(portion > 0, values, 0), axis=-1
            )
            noise[i] = noise[i] + portion @ deviations
    if weights is not None and start != weights.shape[-1]:
        raise pb.InputError(
            "weights",
            f"must be one per point, got {weights.shape[-1]} for {start} or more points.",
        )
    ends = [end / total for end in ends]
    place = order_statistic(noise[0].shape[-1], 1 - alpha / 2)
    margins = [np.sort(values, axis=-1)[..., place] / total for values in noise]
    lower = np.maximum(-ends[0] - margins[0], estimand.floor)
    upper = np.minimum(ends[1] + margins[1], estimand.ceiling)
    return AverageInterval(lower, upper, -ends[0], ends[1], lower > upper)


def _checked_weights(
    weights: Float[Array, "*groups num_points"],
) -> Float[np.ndarray, "*groups num_points"]:
    weights = np.asarray(weights, float)
    sums = np.sum(weights, axis=-1)
    usable = np.all(np.isfinite(weights) & (weights >= 0)) and np.all(sums > 0)
    if not usable or weights.ndim not in (1, 2):
        raise pb.InputError(
            "weights",
            "must be finite, not negative and not all 0: a subgroup is empty, or a weight "
            "is missing.",
        )
    return weights


def _selected(
    side: Side, limit: float, sample_size: float
) -> tuple[Float[np.ndarray, " num_points"], Float[np.ndarray, "num_points num_draws"]]:
    """Estimates each minimum, with draws of how far the attaining term falls below.

    Returns:
      Estimates, and tails on the terms' scale; 0 where the known limit is attained.
    """
    side = Side(*(np.asarray(leaf, np.float64) for leaf in side))
    if not side.center.shape[-1]:
        return np.full(len(side.center), limit), np.zeros(
            (len(side.center), side.tails.shape[-1])
        )
    active = select_terms(side, find_maxima(side), sample_size, limit)
    maxima = find_maxima(side, active)
    value, _, term = corrected_minimum(side, maxima, 0.5)
    rows = np.arange(len(term))
    tails = side.tails[rows, term] * side.standard_error[rows, term][:, None]
    binds = value >= limit
    return np.where(binds, limit, value), np.where(binds[:, None], 0, tails)
