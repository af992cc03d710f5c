"""Averages of many subgroups at once, and of units sorted by predicted benefit."""

import itertools
from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Shaped
from scipy import stats

from pns_infer.averages.debiased import (
    bound_means,
    check_average,
    effect_means,
    normal_tails,
)
from pns_infer.averages.held_out import (
    HeldOutUnits,
    IntPerRow,
    LinearMeans,
    PerRow,
    Source,
    stack_means,
    target_weights,
)
from pns_infer.core.critical import order_statistic
from pns_infer.core.inputs import check_at_least

PerGroup = float | Float[np.ndarray, " num_groups"]


class GroupAverages(NamedTuple):
    """Intervals of averages that hold for all groups at once, and estimated bounds.

    `kappa` is the number of standard errors between bound and end, beside what skewness
    adds.
    """

    lower: Float[np.ndarray, " num_groups"]
    upper: Float[np.ndarray, " num_groups"]
    bound_lower: Float[np.ndarray, " num_groups"]
    bound_upper: Float[np.ndarray, " num_groups"]
    standard_error_lower: Float[np.ndarray, " num_groups"]
    standard_error_upper: Float[np.ndarray, " num_groups"]
    kappa: float


class SortedGroups(NamedTuple):
    """Averages of units sorted by held-out predicted benefit, the least first.

    All intervals of benefit and harm hold at once. The p-values are of the hypotheses
    that the last group's average PNS is no greater than the first's (small only if their
    bounds are apart), and that the effects of both are equal.
    """

    benefit: GroupAverages  # average PNS of each group
    harm: GroupAverages
    member: Float[np.ndarray, "num_groups n"]  # share of each row in each group
    effect: Float[np.ndarray, " num_groups"]  # mean mu1 - mu0
    effect_error: Float[np.ndarray, " num_groups"]
    gap_lower: float  # of the interval of the last group's PNS minus the first's
    gap_upper: float
    p_value: float
    effect_p_value: float


def group_averages(
    units: HeldOutUnits,
    members: Shaped[np.ndarray, "num_groups n"],
    alpha: float = 0.05,
    *,
    estimand: pb.Estimand = pb.PNS,
    source: Source = "both",
) -> GroupAverages:
    """Computes debiased averages of subgroups with simultaneous intervals.

    All intervals contain their identified sets with probability 1 - alpha: one critical
    value, the quantile of the greatest error of any end in a multiplier bootstrap over
    clusters with normal multipliers. Members are weights of the rows in each group, or
    booleans; see `linear_means`.

    Example:
      >>> from pns_infer.averages.held_out import example_units
      >>> first = np.arange(16) < 8  # rows of the first stratum
      >>> found = group_averages(example_units(), [first, ~first])
      >>> found.bound_lower.round(3).tolist(), found.bound_upper.round(3).tolist()
      ([0.45, 0.15], [0.6, 0.35])
    """
    check_average(estimand, alpha)
    members = np.atleast_2d(np.asarray(members, float))
    if not len(members):
        raise pb.InputError("members", "are empty: there are no subgroups.")
    parts = [bound_means(units, estimand, member, source) for member in members]
    return pair_intervals(parts, alpha, (estimand.floor, estimand.ceiling))


def sorted_groups(
    units: HeldOutUnits,
    fold: IntPerRow | None = None,
    alpha: float = 0.05,
    *,
    num_groups: int = 5,
    source: Source = "both",
) -> SortedGroups:
    """Sorts units by held-out predicted benefit and averages each group.

    The prediction is the middle of a row's estimated bounds on PNS; units are sorted
    within folds. The models that predict a unit did not see it, so a difference between
    groups is an honest one. Groups have equal weight in the target population, and all
    their intervals hold with probability 1 - alpha.

    Example:
      >>> from pns_infer.averages.held_out import example_units
      >>> found = sorted_groups(example_units(), num_groups=2)
      >>> found.effect.round(3).tolist()  # mu1 - mu0, the least predicted benefit first
      [-0.05, 0.45]
    """
    check_average(pb.PNS, alpha)
    check_at_least("num_groups", num_groups, 2)
    score = np.add(*predicted_bounds(units, pb.PNS))
    limits = rank_limits(score, target_weights(units, source), fold)
    edges = np.linspace(0, 1, num_groups + 1)
    pairs = itertools.pairwise(edges)
    member = np.stack([share_between(limits, *pair) for pair in pairs])
    parts = [
        bound_means(units, estimand, each, source)
        for estimand in (pb.PNS, pb.HARM)
        for each in member
    ]
    both = pair_intervals(parts, alpha, (0.0, 1.0))
    benefit, harm = (
        GroupAverages(*(field[part] for field in both[:-1]), kappa=both.kappa)
        for part in (slice(num_groups), slice(num_groups, None))
    )
    effect = stack_means([effect_means(units, each, source) for each in member])
    gap = effect.combine(np.eye(num_groups)[-1:] - np.eye(num_groups)[:1])
    gap_ratio = abs(gap.estimate[0]) / gap.standard_error[0]
    ends = _compare_ends(parts[0], parts[num_groups - 1], alpha)
    return SortedGroups(
        benefit=benefit,
        harm=harm,
        member=member,
        effect=np.clip(effect.estimate, -1, 1),
        effect_error=effect.standard_error,
        gap_lower=ends[0],
        gap_upper=ends[1],
        p_value=ends[2],
        effect_p_value=float(2 * stats.norm.sf(gap_ratio)),
    )


def predicted_bounds(
    units: HeldOutUnits, estimand: pb.Estimand
) -> tuple[PerRow, PerRow]:
    """Returns each row's plug-in bounds by its held-out atoms, to sort by."""
    atoms = pb.project_to_compatible(units.atoms)
    interval = estimand.bounds(atoms, incompatible="allow")
    return interval.lower, interval.upper


def pair_intervals(
    parts: list[LinearMeans],
    alpha: float,
    limits: tuple[PerGroup, PerGroup] = (-np.inf, np.inf),
    kappa: float | None = None,
) -> GroupAverages:
    """Makes intervals of pairs (lower, upper) of means, by default for all at once.

    Then kappa is the quantile of the greatest one-sided error, in standard errors. The
    limits are what is possible, for all groups or for each.
    """
    means = stack_means(parts)
    error = means.standard_error
    signs = np.tile([1.0, -1.0], len(parts))
    if kappa is None:
        tails = signs[:, None] * normal_tails(means)
        greatest = np.sort(tails[error > 0].max(axis=0, initial=0.0))
        kappa = float(greatest[order_statistic(len(greatest), 1 - alpha)])
    ends = means.estimate - signs * (kappa * error + means.skew_margin(-signs, kappa))
    return GroupAverages(
        # Adding 0 makes -0.0 of a limit 0.
        lower=np.clip(ends[::2], *limits) + 0.0,
        upper=np.clip(ends[1::2], *limits) + 0.0,
        bound_lower=np.clip(means.estimate[::2], *limits) + 0.0,
        bound_upper=np.clip(means.estimate[1::2], *limits) + 0.0,
        standard_error_lower=error[::2],
        standard_error_upper=error[1::2],
        kappa=kappa,
    )


def _compare_ends(
    first: LinearMeans, last: LinearMeans, alpha: float
) -> tuple[float, float, float]:
    """Compares the bounds of the last group with those of the first.

    Terms may be chosen better in one group than in the other, so that chosen bounds of
    the same name differ though the truth does not: only opposite bounds are compared.
    """
    # The last lower minus the first upper bound, and the other way around.
    opposite = np.array([[0.0, -1, 1, 0], [-1, 0, 0, 1]])
    gaps = stack_means([first, last]).combine(opposite)
    error = gaps.standard_error
    z = stats.norm.ppf(1 - alpha / 2)
    # A difference of two shares.
    ends = np.clip(gaps.estimate + z * error * np.array([-1, 1]), -1, 1)
    p_value = stats.norm.sf(gaps.estimate[0] / error[0]) if error[0] > 0 else 1.0
    return float(ends[0]), float(ends[1]), float(p_value)


def rank_limits(
    score: PerRow, weights: PerRow, fold: IntPerRow | None = None
) -> tuple[PerRow, PerRow]:
    """Returns the share of weight below each score, and below or equal to it.

    Rows of weight 0 are ranked among the others. Ranks are within folds, as models of
    different folds score differently.
    """
    below, upto = np.empty(len(score)), np.empty(len(score))
    fold = np.zeros(len(score), int) if fold is None else np.asarray(fold)
    for name in np.unique(fold):
        inside = fold == name
        _, place = np.unique(score[inside], return_inverse=True)
        mass = np.bincount(place, weights[inside])
        total = np.cumsum(mass)
        below[inside] = ((total - mass) / total[-1])[place]
        upto[inside] = (total / total[-1])[place]
    return below, upto


def share_between(limits: tuple[PerRow, PerRow], low: float, high: float) -> PerRow:
    """Returns how much of each row lies between two ranks; tied rows are split alike.

    A fraction is the chance that breaking ties at random would put the row there. It is
    a function of the score, so it means the same in both sources.
    """
    below, upto = limits
    overlap = np.minimum(upto, high) - np.maximum(below, low)
    mass = upto - below
    share = np.clip(overlap / np.where(mass > 0, mass, 1), 0, 1)
    share = np.where(share < 1e-12, 0.0, share)
    # A rank that only rows of weight 0 have is a point.
    is_inside = (below >= low) & ((below < high) | ((high >= 1) & (below >= 1)))
    return np.where(mass > 0, share, is_inside)
