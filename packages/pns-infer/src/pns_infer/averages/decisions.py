"""Whom to treat: recommendations from bounds of a benefit, and what a rule is worth."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Num
from scipy import stats

from pns_infer.averages.debiased import bound_means
from pns_infer.averages.groups import (
    pair_intervals,
    predicted_bounds,
    rank_limits,
    share_between,
)
from pns_infer.averages.held_out import (
    BoolPerRow,
    HeldOutUnits,
    IntPerRow,
    PerRow,
    Source,
    target_weights,
)
from pns_infer.core.inputs import check_alpha, check_option, check_shape

Criterion = Literal["maximin", "minimax_regret"]


class Recommendation(NamedTuple):
    """What to do with each unit."""

    label: np.ndarray  # 'treat' if the interval lies above 0, 'do not', 'undecided'
    score: PerRow  # by which units are preferred; the criterion treats above 0
    treat: BoolPerRow  # what the criterion does within the budget, undecided units too


class PolicyValue(NamedTuple):
    """What a rule gains per unit over treating none, as estimated bounds and interval.

    `share_treated` is that of the target population.
    """

    lower: float
    upper: float
    bound_lower: float
    bound_upper: float
    share_treated: float


class ValueCurve(NamedTuple):
    """Value per unit of treating those with the greatest score, by the share treated.

    Estimated bounds of the value, and a band that holds for all shares at once.
    """

    share: Float[np.ndarray, " num_shares"]
    bound_lower: Float[np.ndarray, " num_shares"]
    bound_upper: Float[np.ndarray, " num_shares"]
    lower: Float[np.ndarray, " num_shares"]
    upper: Float[np.ndarray, " num_shares"]


def net_benefit(gains: Sequence[float], cost: float = 0.0) -> pb.Estimand:
    """Makes the mean gain of treating a unit, less the cost of treating one.

    Gains are of treating one who responds only if treated, either way, neither way, and
    only if untreated.

    Example:
      >>> net_benefit((1, 0, 0, -1), cost=0.25).floor
      -1.25
    """
    try:
        numbers = np.array([*gains, cost], float)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if len(numbers) != 5 or not np.isfinite(numbers).all():
        raise pb.InputError(
            "gains",
            "must be four numbers (of treating one who responds only if treated, either "
            f"way, neither way, only if untreated) and cost one, got {gains!r} and "
            f"{cost!r}.",
        )
    return pb.benefit(*(numbers[:-1] - numbers[-1]).tolist(), name="net benefit")


def recommend(
    lower: PerRow,
    upper: PerRow,
    criterion: Criterion = "maximin",
    budget: float | None = None,
) -> Recommendation:
    """Recommends a treatment from intervals of its benefit; not to treat is worth 0.

    'maximin' treats where the least possible benefit is above 0. 'minimax_regret'
    treats where the greatest loss of treating, -lower, is less than that of not
    treating, upper: where lower + upper > 0. The budget is the greatest share of units
    that can be treated; those with the greatest score come first.

    Example:
      >>> found = recommend(np.array([-0.2, 0.1]), np.array([0.3, 0.4]))
      >>> found.label.tolist()
      ['undecided', 'treat']
    """
    check_option("criterion", criterion, ("maximin", "minimax_regret"))
    check_budget(budget)
    lower, upper = np.asarray(lower, float), np.asarray(upper, float)
    label = np.select([lower > 0, upper < 0], ["treat", "do not"], "undecided")
    score = lower if criterion == "maximin" else lower + upper
    treat = score > 0
    if budget is not None:
        most = int(np.floor(budget * len(score) + 1e-9))
        first = np.argsort(-score, kind="stable")[:most]
        treat = treat & np.isin(np.arange(len(score)), first)
    return Recommendation(label, score, treat)


def check_budget(budget: float | None) -> None:
    """Raises unless a budget is a share of units."""
    if budget is not None and not 0 <= budget <= 1:
        raise pb.InputError(
            "budget",
            f"must be a share of units in [0, 1], got {budget}; None treats "
            "all that the criterion selects.",
        )


def held_out_rule(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    criterion: Criterion = "maximin",
    budget: float | None = None,
    fold: IntPerRow | None = None,
    source: Source = "both",
) -> PerRow:
    """Treats by each row's held-out bounds: the rule whose value can be estimated.

    Criterion and budget are as for `recommend`, the estimand is from `net_benefit`.
    Units are ranked within folds, and the budget is a share of the units of the source.
    Returns the share of each row that is treated: between 0 and 1 for rows that tie at
    the edge of the budget.

    Example:
      >>> from pns_infer.averages.held_out import example_units
      >>> effect = net_benefit((1, 0, 0, -1), cost=0.1)  # mu1 - mu0 - 0.1
      >>> held_out_rule(example_units(), effect, budget=0.25)[[0, 8]].tolist()
      [0.5, 0.0]
    """
    choice = recommend(*predicted_bounds(units, estimand), criterion)
    treat = choice.treat.astype(float)
    check_budget(budget)
    if budget is not None:
        limits = rank_limits(choice.score, target_weights(units, source), fold)
        treat *= share_between(limits, 1 - budget, 1.0)
    return treat


def policy_value(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    rule: Num[np.ndarray, " n"],
    alpha: float = 0.05,
    source: Source = "both",
) -> PolicyValue:
    """Estimates the value per unit of a rule over treating none, debiased.

    The rule is the share of each row that is treated, from held-out atoms or covariates
    alone; the estimand, from `net_benefit`, is the benefit of treating one unit.

    Example:
      >>> from pns_infer.averages.held_out import example_units
      >>> effect = net_benefit((1, 0, 0, -1), cost=0.1)  # 0.35 or -0.15
      >>> value = policy_value(example_units(), effect, rule=np.repeat([1, 0], 8))
      >>> round(value.bound_lower, 3), round(value.bound_upper, 3), value.share_treated
      (0.175, 0.175, 0.5)
    """
    check_alpha(alpha)
    rule = np.asarray(rule, float)
    check_shape("rule", rule, (units.num_rows,))
    if not np.all((rule >= 0) & (rule <= 1)):
        raise pb.InputError("rule", "must be shares in [0, 1], one for each row.")
    means = bound_means(units, estimand, None, source, rule)
    kappa = float(stats.norm.ppf(1 - alpha / 2))
    share = float(np.average(rule, weights=target_weights(units, source)))
    limits = (share * estimand.floor, share * estimand.ceiling)
    value = pair_intervals([means], alpha, limits, kappa)
    return PolicyValue(*(part.item() for part in value[:4]), share_treated=share)


def value_curve(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    *,
    shares: Sequence[float] = tuple(np.linspace(0, 1, 21)),
    criterion: Criterion = "maximin",
    fold: IntPerRow | None = None,
    alpha: float = 0.05,
    source: Source = "both",
) -> ValueCurve:
    """Estimates what treating the best share of units gains, for many shares.

    Units are sorted, within folds, by the criterion's score of their held-out bounds.
    All within the share are treated, also those with a score below 0, as in uplift
    curves. The band misses anywhere with probability alpha.

    Example:
      >>> from pns_infer.averages.held_out import example_units
      >>> effect = net_benefit((1, 0, 0, -1), cost=0.1)  # 0.35 or -0.15
      >>> curve = value_curve(example_units(), effect, shares=(0, 0.5, 1))
      >>> curve.bound_lower.round(3).tolist()
      [0.0, 0.175, 0.1]
    """
    check_alpha(alpha)
    points = np.asarray(shares, float)
    if points.ndim != 1 or not np.all((points >= 0) & (points <= 1)):
        raise pb.InputError("shares", "must be numbers in [0, 1].")
    score = recommend(*predicted_bounds(units, estimand), criterion).score
    limits = rank_limits(score, target_weights(units, source), fold)
    rules = [share_between(limits, 1 - share, 1.0) for share in points]
    means = [bound_means(units, estimand, None, source, rule) for rule in rules]
    limits = (points * estimand.floor, points * estimand.ceiling)
    found = pair_intervals(means, alpha, limits)
    bounds = (found.bound_lower, found.bound_upper)
    return ValueCurve(points, *bounds, found.lower, found.upper)
