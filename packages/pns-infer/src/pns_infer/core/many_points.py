"""Statements about many points: intervals for their mean, and bands that hold at all.

A band has one critical value for every point and term (thm:uniform-pns). Its guarantee is
simultaneous over the points it was computed for: with probability at least 1 - alpha,
asymptotically, the identified sets of all of them lie inside.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float
from scipy import optimize

from pns_infer.core.critical import (
    Side,
    corrected_minimum,
    find_maxima,
    order_statistic,
    select_terms,
)
from pns_infer.core.inputs import (
    Draws,
    Which,
    check_alpha,
    check_at_least,
    check_option,
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


Statistic = Literal["absolute", "one_sided"]


class Band(NamedTuple):
    """A simultaneous band, with the critical values of all lower and all upper terms.

    `lower` is the floor for side='upper', `upper` the ceiling for side='lower';
    `is_empty` says whether lower > upper.
    """

    lower: Float[np.ndarray, " num_points"]
    upper: Float[np.ndarray, " num_points"]
    kappa_lower: float
    kappa_upper: float
    is_empty: Bool[np.ndarray, " num_points"]


class ThresholdSet(NamedTuple):
    """Where an estimand lies above or below a threshold, with the band's confidence."""

    above: Bool[np.ndarray, " num_points"]
    below: Bool[np.ndarray, " num_points"]
    undecided: Bool[np.ndarray, " num_points"]


class HeterogeneityTest(NamedTuple):
    """Result of `heterogeneity_test`.

    Attributes:
      p_value: of the hypothesis that one value fits every point.
      statistic: the least critical value at which the band would leave room for one.
      highest: the point whose lower bound is in the way.
      lowest: the point whose upper bound is.
    """

    p_value: float
    statistic: float
    highest: int
    lowest: int


class _Process(NamedTuple):
    """All terms of all points, and draws of the greatest tails over them."""

    lower: Side  # negated; without tails
    upper: Side
    lower_max: Float[np.ndarray, " num_draws"]  # one-sided
    upper_max: Float[np.ndarray, " num_draws"]
    absolute_max: Float[np.ndarray, " num_draws"]


def uniform_band(
    draws: Draws | Iterable[Draws],
    alpha: float = 0.05,
    *,
    estimand: pb.Estimand = pb.PNS,
    statistic: Statistic = "absolute",
    side: Which = "both",
    center: Draws | None = None,
    points_per_chunk: int = 256,
) -> Band:
    """Computes a band that covers the identified sets of all points at once.

    Any point is missed with probability at most alpha. statistic='absolute' takes one
    kappa over all terms of both sides in absolute value (eq:uniform-bootstrap), which
    covers every term from both sides; 'one_sided' takes alpha / 2 for each side, in the
    direction in which it can miss (with side='lower' or 'upper' all of alpha for that
    side), and is narrower. One side needs statistic='one_sided'. Other arguments are as
    for `intervals_from_draws`; within a draw the points must be coherent.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> noise = 0.01 * np.random.default_rng(0).normal(size=(10_000, 2, 1))
      >>> draws = pb.BoundTerms(0.3 + noise, 0.5 + noise)  # two independent points
      >>> band = uniform_band(draws)
      >>> round(band.kappa_lower, 1)  # of the greater of two |N(0, 1)|: 2.24
      2.2
    """
    check_alpha(alpha)
    check_option("statistic", statistic, ("absolute", "one_sided"))
    check_option("side", side, ("both", "lower", "upper"))
    if side != "both" and statistic == "absolute":
        raise pb.InputError("side", f"{side!r} needs statistic='one_sided'.")
    process = _gather(draws, estimand, points_per_chunk, center)
    miss = alpha / 2 if side == "both" and statistic == "one_sided" else alpha
    maxima = [process.lower_max, process.upper_max]
    if statistic == "absolute":
        maxima = [process.absolute_max] * 2
    kappas = [
        float(np.sort(values)[order_statistic(len(values), 1 - miss)])
        for values in maxima
    ]
    lower = np.maximum(-_least(process.lower, kappas[0]), estimand.floor)
    upper = np.minimum(_least(process.upper, kappas[1]), estimand.ceiling)
    if side == "lower":
        upper = np.full_like(upper, estimand.ceiling)
    if side == "upper":
        lower = np.full_like(lower, estimand.floor)
    return Band(lower, upper, kappas[0], kappas[1], lower > upper)


def threshold_set(band: Band, threshold: float) -> ThresholdSet:
    """Finds the points where the band lies above a threshold, or below it.

    All points are classified correctly with the band's confidence. For one direction
    only, give a band with side='lower' or 'upper': it is narrower.

    Example:
      >>> import numpy as np
      >>> ends = np.array([0.1, 0.3, 0.6]), np.array([0.2, 0.6, 0.8])
      >>> found = threshold_set(Band(*ends, 2.0, 2.0, is_empty=np.zeros(3, bool)), 0.4)
      >>> [part.tolist() for part in (found.above, found.below, found.undecided)]
      [[False, False, True], [True, False, False], [False, True, False]]
    """
    if not isinstance(band, Band):
        raise pb.InputError(
            "band",
            f"must be a Band from uniform_band, got {type(band).__name__}: pointwise "
            "intervals do not hold at all points simultaneously.",
        )
    if not np.isfinite(threshold):
        raise pb.InputError("threshold", f"must be finite, got {threshold}.")
    above, below = band.lower > threshold, band.upper < threshold
    # Ends that cross contradict each other; they decide nothing.
    above, below = above & ~band.is_empty, below & ~band.is_empty
    return ThresholdSet(above, below, ~(above | below))


def heterogeneity_test(
    draws: Draws | Iterable[Draws],
    *,
    estimand: pb.Estimand = pb.PNS,
    center: Draws | None = None,
    points_per_chunk: int = 256,
) -> HeterogeneityTest:
    """Tests whether one value of the estimand fits every point.

    The hypothesis is that some number lies in the identified sets of all points. The
    two-sided band is inverted: the p-value is the greatest alpha at which the highest
    lower end still lies below the lowest upper end. The test is conservative. Arguments
    are as for `intervals_from_draws`.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> noise = np.random.default_rng(0).normal(size=(1000, 1, 1))
      >>> noise = 0.01 * (noise - noise.mean()) / noise.std(ddof=1)
      >>> lower = np.array([[0.1], [0.4]]) + noise  # two points, one term
      >>> test = heterogeneity_test(pb.BoundTerms(lower, lower + 0.1))
      >>> round(test.statistic, 3)  # 0.4 - 10 * 0.01 meets 0.2 + 10 * 0.01
      10.0
    """
    process = _gather(draws, estimand, points_per_chunk, center)

    def gap(kappa: float) -> float:
        low = max(np.max(-_least(process.lower, kappa)), estimand.floor)
        high = min(np.min(_least(process.upper, kappa)), estimand.ceiling)
        return float(low - high)

    statistic = 0.0
    if gap(0.0) > 0:
        high = 1.0
        while gap(high) > 0 and high < 1e9:  # the gap falls with kappa
            high *= 2
        statistic = high if gap(high) > 0 else optimize.brentq(gap, 0.0, high)
    beyond = int(np.sum(process.absolute_max >= statistic))
    return HeterogeneityTest(
        p_value=(1 + beyond) / (1 + len(process.absolute_max)),
        statistic=statistic,
        highest=int(np.argmin(_least(process.lower, statistic))),
        lowest=int(np.argmin(_least(process.upper, statistic))),
    )


def _least(side: Side, kappa: float) -> Float[np.ndarray, " num_points"]:
    if not side.center.shape[-1]:
        return np.full(len(side.center), np.inf)
    return np.min(side.center + kappa * side.standard_error, axis=-1)


def _gather(
    draws: Draws | Iterable[Draws],
    estimand: pb.Estimand,
    points_per_chunk: int,
    center: Draws | None,
) -> _Process:
    """Reads all blocks once; keeps moments, and maxima over points for each draw."""
    kept: tuple[list[Side], list[Side]] = ([], [])
    maxima: list[np.ndarray] | None = None
    for block in cut_draws(draws, points_per_chunk, center):
        one_sided, absolute = [], []
        for side, store in zip(make_sides(block, estimand), kept, strict=True):
            side = Side(*(np.asarray(leaf) for leaf in side))
            store.append(side._replace(tails=np.zeros(0)))
            # Known terms have tails of 0, which matter to no maximum over others.
            tails = np.where((side.standard_error > 0)[..., None], side.tails, -np.inf)
            one_sided.append(np.max(tails, axis=(0, 1), initial=-np.inf))
            absolute.append(np.max(np.abs(side.tails), axis=(0, 1), initial=0.0))
        found = [*one_sided, np.maximum(*absolute)]
        maxima = found if maxima is None else list(map(np.maximum, maxima, found))
    assert maxima is not None
    joined = [
        Side(*(np.concatenate(leaves) for leaves in zip(*store, strict=True)))
        for store in kept
    ]
    # A side on which nothing is estimated needs no correction.
    lower_max, upper_max = (
        np.where(np.isfinite(values), values, 0.0) for values in maxima[:2]
    )
    return _Process(joined[0], joined[1], lower_max, upper_max, maxima[2])
