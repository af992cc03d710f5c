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

from pns_infer.core import critical, inputs

Array = Any  # NumPy or JAX
Maxima = Float[np.ndarray, " num_draws"]


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
    draws: inputs.Draws | Iterable[inputs.Draws],
    alpha: float = 0.05,
    *,
    sample_size: float,
    weights: Float[Array, "*groups num_points"] | None = None,
    estimand: pb.Estimand = pb.PNS,
    center: inputs.Draws | None = None,
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
      >>> noise = 0.01 * np.random.default_rng(0).normal(size=(10_000, 1, 1))
      >>> lower = np.array([[0.2], [0.4]]) + noise
      >>> draws = pb.BoundTerms(lower, lower + 0.3)
      >>> found = average_interval(draws, sample_size=1000)
      >>> [round(float(end), 2) for end in found[:2]]  # 0.3, 0.6 and 1.96 * 0.01
      [0.28, 0.62]
    """
    inputs.check_alpha(alpha)
    inputs.check_at_least("sample_size", sample_size, 2)
    weights = None if weights is None else _checked_weights(weights)
    ends: list[Any] = [0.0, 0.0]
    noise: list[Any] = [0.0, 0.0]
    start, total = 0, np.zeros(())
    limits = (-estimand.floor, estimand.ceiling)
    for block in inputs.cut_draws(draws, points_per_chunk, center):
        pair = inputs.make_sides(block, estimand)
        size = len(pair[0].center)
        stop = start + size
        portion = np.ones(size) if weights is None else weights[..., start:stop]
        start = stop
        if portion.shape[-1] < size:
            break
        total = total + portion.sum(axis=-1)
        for i in (0, 1):
            values, deviations = _selected(pair[i], limits[i], sample_size)
            # A side without terms and limits is infinite; 0 times that counts nothing.
            counted = portion * np.where(portion > 0, values, 0)
            ends[i] = ends[i] + counted.sum(axis=-1)
            noise[i] = noise[i] + portion @ deviations
    if weights is not None and start != weights.shape[-1]:
        raise pb.InputError(
            "weights",
            f"must be one per point, got {weights.shape[-1]} for {start} or more points.",
        )
    ends = [end / total for end in ends]
    place = critical.order_statistic(noise[0].shape[-1], 1 - alpha / 2)
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
    side: critical.Side, limit: float, sample_size: float
) -> tuple[Float[np.ndarray, " num_points"], Float[np.ndarray, "num_points num_draws"]]:
    """Estimates each minimum, with draws of how far the attaining term falls below.

    These tails are on the terms' scale, and 0 where the known limit is attained.
    """
    side = critical.Side(*(np.asarray(leaf, np.float64) for leaf in side))
    if not side.center.shape[-1]:
        nothing = np.zeros((len(side.center), side.tails.shape[-1]))
        return np.full(len(nothing), limit), nothing
    active = critical.select_terms(side, critical.find_maxima(side), sample_size, limit)
    maxima = critical.find_maxima(side, active)
    value, _, term = critical.corrected_minimum(side, maxima, 0.5)
    rows = np.arange(len(term))
    tails = side.tails[rows, term] * side.standard_error[rows, term][:, None]
    binds = value >= limit
    return np.where(binds, limit, value), np.where(binds[:, None], 0, tails)


Statistic = Literal["absolute", "one_sided"]


class ThresholdSet(NamedTuple):
    """Where an estimand lies above or below a threshold, with the band's confidence."""

    above: Bool[np.ndarray, " num_points"]
    below: Bool[np.ndarray, " num_points"]
    undecided: Bool[np.ndarray, " num_points"]


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

    def threshold(self, value: float) -> ThresholdSet:
        """Finds the points where the band lies above a value, or below it.

        All points are classified correctly with the band's confidence. For one direction
        only, make the band with side='lower' or 'upper': it is narrower.

        Example:
          >>> ends = np.array([0.1, 0.3, 0.6]), np.array([0.2, 0.6, 0.8])
          >>> band = Band(*ends, 2.0, 2.0, is_empty=np.zeros(3, bool))
          >>> [part.tolist() for part in band.threshold(0.4)[:2]]
          [[False, False, True], [True, False, False]]
        """
        if not np.isfinite(value):
            raise pb.InputError("threshold", f"must be finite, got {value}.")
        # Ends that cross contradict each other; they decide nothing.
        above = (self.lower > value) & ~self.is_empty
        below = (self.upper < value) & ~self.is_empty
        return ThresholdSet(above, below, ~(above | below))


class HeterogeneityTest(NamedTuple):
    """Whether one value fits every point, and which points are in the way."""

    p_value: float  # of the hypothesis that one value does
    statistic: float  # the least critical value at which the band leaves room for one
    highest: int  # the point whose lower bound is in the way
    lowest: int  # the point whose upper bound is


def uniform_band(
    draws: inputs.Draws | Iterable[inputs.Draws],
    alpha: float = 0.05,
    *,
    estimand: pb.Estimand = pb.PNS,
    statistic: Statistic = "absolute",
    side: inputs.Which = "both",
    center: inputs.Draws | None = None,
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
      >>> noise = 0.01 * np.random.default_rng(0).normal(size=(10_000, 2, 1))
      >>> draws = pb.BoundTerms(0.3 + noise, 0.5 + noise)  # two independent points
      >>> band = uniform_band(draws)
      >>> round(band.kappa_lower, 1)  # of the greater of two |N(0, 1)|: 2.24
      2.2
    """
    inputs.check_alpha(alpha)
    inputs.check_option("statistic", statistic, ("absolute", "one_sided"))
    inputs.check_option("side", side, ("both", "lower", "upper"))
    if side != "both" and statistic == "absolute":
        raise pb.InputError("side", f"{side!r} needs statistic='one_sided'.")
    sides, maxima, absolute = _gather(draws, estimand, points_per_chunk, center)
    miss = alpha / 2 if side == "both" and statistic == "one_sided" else alpha
    if statistic == "absolute":
        maxima = [absolute] * 2
    place = critical.order_statistic(len(absolute), 1 - miss)
    kappas = [float(np.sort(values)[place]) for values in maxima]
    lower = np.maximum(-_least(sides[0], kappas[0]), estimand.floor)
    upper = np.minimum(_least(sides[1], kappas[1]), estimand.ceiling)
    if side == "lower":
        upper = np.full_like(upper, estimand.ceiling)
    if side == "upper":
        lower = np.full_like(lower, estimand.floor)
    return Band(lower, upper, kappas[0], kappas[1], lower > upper)


def heterogeneity_test(
    draws: inputs.Draws | Iterable[inputs.Draws],
    *,
    estimand: pb.Estimand = pb.PNS,
    center: inputs.Draws | None = None,
    points_per_chunk: int = 256,
) -> HeterogeneityTest:
    """Tests whether one value of the estimand fits every point.

    The hypothesis is that some number lies in the identified sets of all points. The
    two-sided band is inverted: the p-value is the greatest alpha at which the highest
    lower end still lies below the lowest upper end. The test is conservative. Arguments
    are as for `intervals_from_draws`.

    Example:
      >>> noise = np.random.default_rng(0).normal(size=(1000, 1, 1))
      >>> noise = 0.01 * (noise - noise.mean()) / noise.std(ddof=1)
      >>> lower = np.array([[0.1], [0.4]]) + noise  # two points, one term
      >>> test = heterogeneity_test(pb.BoundTerms(lower, lower + 0.1))
      >>> round(test.statistic, 3)  # 0.4 - 10 * 0.01 meets 0.2 + 10 * 0.01
      10.0
    """
    (lower, upper), _, absolute = _gather(draws, estimand, points_per_chunk, center)

    def gap(kappa: float) -> float:
        low = max(np.max(-_least(lower, kappa)), estimand.floor)
        high = min(np.min(_least(upper, kappa)), estimand.ceiling)
        return float(low - high)

    statistic = 0.0
    if gap(0.0) > 0:
        high = 1.0
        while gap(high) > 0 and high < 1e9:  # the gap falls with kappa
            high *= 2
        statistic = high if gap(high) > 0 else optimize.brentq(gap, 0.0, high)
    beyond = int(np.sum(absolute >= statistic))
    return HeterogeneityTest(
        p_value=(1 + beyond) / (1 + len(absolute)),
        statistic=statistic,
        highest=int(np.argmin(_least(lower, statistic))),
        lowest=int(np.argmin(_least(upper, statistic))),
    )


def _least(side: critical.Side, kappa: float) -> Float[np.ndarray, " num_points"]:
    values = side.center + kappa * side.standard_error
    return np.min(values, axis=-1, initial=np.inf)


def _gather(
    draws: inputs.Draws | Iterable[inputs.Draws],
    estimand: pb.Estimand,
    points_per_chunk: int,
    center: inputs.Draws | None,
) -> tuple[list[critical.Side], list[Maxima], Maxima]:
    """Reads all blocks once.

    Returns all terms of the lower (negated) and the upper side, without tails; for each
    draw the greatest tail of each side; and the greatest of both in absolute value.
    """
    kept: tuple[list[critical.Side], list[critical.Side]] = ([], [])
    maxima: list[Maxima] = []
    for block in inputs.cut_draws(draws, points_per_chunk, center):
        one_sided, absolute = [], []
        for side, store in zip(inputs.make_sides(block, estimand), kept, strict=True):
            side = critical.Side(*(np.asarray(leaf) for leaf in side))
            store.append(side._replace(tails=np.zeros(0)))
            # Known terms have tails of 0, which matter to no maximum over others.
            tails = np.where((side.standard_error > 0)[..., None], side.tails, -np.inf)
            one_sided.append(np.max(tails, axis=(0, 1), initial=-np.inf))
            absolute.append(np.max(np.abs(side.tails), axis=(0, 1), initial=0.0))
        found = [*one_sided, np.maximum(*absolute)]
        maxima = list(map(np.maximum, maxima, found)) if maxima else found
    joined = [
        critical.Side(*map(np.concatenate, zip(*store, strict=True))) for store in kept
    ]
    # A side on which nothing is estimated needs no correction.
    finite = [np.where(np.isfinite(values), values, 0.0) for values in maxima[:2]]
    return joined, finite, maxima[2]
