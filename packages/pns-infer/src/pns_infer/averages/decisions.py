"""Whom to treat: recommendations from bounds of a benefit, and what a rule is worth."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int

from pns_infer.averages.debiased import bound_means
from pns_infer.averages.group_averages import predicted_bounds, simultaneous_value
from pns_infer.averages.held_out import HeldOutUnits
from pns_infer.averages.linear_means import (
    LinearMeans,
    Source,
    stack_means,
    target_weights,
)
from pns_infer.averages.ranking import rank_limits, share_between
from pns_infer.core.inputs import check_alpha, check_option

Criterion = Literal["maximin", "minimax_regret"]


class Recommendation(NamedTuple):
    """What to do with each person.

    Attributes:
      label: 'treat' if the whole interval lies above 0, 'do not' if below, else
        'undecided': the data do not say.
      score: by which people are preferred: above 0, the criterion is for treating.
      treat: what the criterion does, undecided people included, within the budget.
    """

    label: np.ndarray
    score: Float[np.ndarray, " n"]
    treat: Bool[np.ndarray, " n"]


class PolicyValue(NamedTuple):
    """What a rule gains per person over treating nobody, between two bounds.

    Attributes:
      lower: lower end of the interval.
      upper: upper end.
      bound_lower: estimated bounds.
      bound_upper: estimated bounds.
      share_treated: of the target population.
    """

    lower: float
    upper: float
    bound_lower: float
    bound_upper: float
    share_treated: float


class ValueCurve(NamedTuple):
    """Value per person of treating the best of a score, by the share treated.

    Attributes:
      share: treated.
      bound_lower: estimated bounds of the value.
      bound_upper: estimated bounds of the value.
      lower: band that holds for all shares at once.
      upper: band that holds for all shares at once.
    """

    share: Float[np.ndarray, " num_shares"]
    bound_lower: Float[np.ndarray, " num_shares"]
    bound_upper: Float[np.ndarray, " num_shares"]
    lower: Float[np.ndarray, " num_shares"]
    upper: Float[np.ndarray, " num_shares"]


def net_benefit(gains: Sequence[float], cost: float = 0.0) -> pb.Estimand:
    """Makes the mean gain of treating a person, less the cost of treating one.

    Args:
      gains: of treating one who responds only if treated, either way, neither way, and
        only if untreated.
      cost: of a treatment, in the same units.

    Example:
      >>> net_benefit((1, 0, 0, -1), cost=0.25).floor
      -1.25
    """
    try:
        numbers = [float(gain) for gain in gains]
        price = float(cost)
    except (TypeError, ValueError):
        numbers, price = [], 0.0
    if len(numbers) != 4 or not np.isfinite([*numbers, price]).all():
        raise ValueError(
            "gains must be four numbers (of treating one who responds only if treated, "
            f"either way, neither way, only if untreated) and cost one, got {gains!r} and "
            f"{cost!r}."
        )
    return pb.benefit(*(number - price for number in numbers), name="net benefit")


def recommend(
    lower: Float[np.ndarray, " n"],
    upper: Float[np.ndarray, " n"],
    criterion: Criterion = "maximin",
    budget: float | None = None,
) -> Recommendation:
    """Recommends a treatment from intervals of its benefit; not to treat is worth 0.

    'maximin' treats where the least possible benefit is above 0. 'minimax_regret' treats
    where the greatest loss of treating, -lower, is less than that of not treating,
    upper: where lower + upper > 0.

    Args:
      lower: ends of intervals.
      upper: ends of intervals.
      criterion: what to do with the undecided.
      budget: greatest share of people who can be treated; those with the greatest score
        come first.

    Example:
      >>> import numpy as np
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
    """Raises unless a budget is a share of people."""
    if budget is not None and not 0 <= budget <= 1:
        raise ValueError(
            f"budget must be a share of people in [0, 1], got {budget}; None treats "
            "whomever the criterion would."
        )


def held_out_rule(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    criterion: Criterion = "maximin",
    budget: float | None = None,
    fold: Int[np.ndarray, " n"] | None = None,
    source: Source = "both",
) -> Float[np.ndarray, " n"]:
    """Treats by each row's held-out bounds: the rule whose value can be estimated.

    Args:
      units: rows of both sources.
      estimand: the benefit, from `net_benefit`.
      criterion: as for `recommend`.
      budget: as for `recommend`.
      fold: people are ranked within folds.
      source: whose people the budget is a share of.

    Returns:
      The share of each row that is treated: 0 or 1, but between them for rows that tie
      at the edge of the budget.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from pns_infer import make_held_out_units
      >>> x, y, source = np.tile([[0, 1, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]], 2)
      >>> mu = np.repeat([[0.35, 0.8], [0.55, 0.5]], 4, axis=0)
      >>> atoms = pb.Atoms(np.tile([[0.2, 0.3], [0.1, 0.4]], (8, 1, 1)), mu)
      >>> units = make_held_out_units(atoms, source == 1, x, y, assignment=0.5)
      >>> effect = net_benefit((1, 0, 0, -1), cost=0.1)  # mu1 - mu0 - 0.1
      >>> held_out_rule(units, effect)[[0, 4]].tolist()
      [1.0, 0.0]
      >>> held_out_rule(units, effect, budget=0.25)[[0, 4]].tolist()  # ties share
      [0.5, 0.0]
    """
    lower, upper = predicted_bounds(units, estimand)
    choice = recommend(lower, upper, criterion)
    treat = choice.treat.astype(float)
    check_budget(budget)
    if budget is not None:
        limits = rank_limits(choice.score, target_weights(units, source), fold)
        treat *= share_between(limits, 1 - budget, 1.0)
    return treat


def policy_value(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    rule: Float[np.ndarray, " n"],
    alpha: float = 0.05,
    source: Source = "both",
) -> PolicyValue:
    """Estimates the value per person of a rule over treating nobody, debiased.

    Args:
      units: rows of both sources.
      estimand: the benefit of treating one, from `net_benefit`.
      rule: share of each row that is treated; from held-out atoms or covariates alone.
      alpha: the probability of missing.
      source: whose covariates the target population has.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from pns_infer import make_held_out_units
      >>> observed, first, second = [20, 30, 10, 40], [65, 35, 20, 80], [45, 55, 50, 50]
      >>> counts = np.array([*observed, *first, *observed, *second])
      >>> x, y = np.tile([[0, 0, 1, 1], [0, 1, 0, 1]], 4)
      >>> mu = np.repeat([[0.35, 0.8], [0.55, 0.5]], 8, axis=0)
      >>> atoms = pb.Atoms(np.tile([[0.2, 0.3], [0.1, 0.4]], (16, 1, 1)), mu)
      >>> options = {"assignment": 0.5, "weights": counts, "weights_are": "frequency"}
      >>> units = make_held_out_units(atoms, np.arange(16) % 8 > 3, x, y, **options)
      >>> effect = net_benefit((1, 0, 0, -1), cost=0.1)  # 0.35 or -0.15
      >>> value = policy_value(units, effect, rule=np.repeat([1, 0], 8))
      >>> round(value.bound_lower, 3), round(value.bound_upper, 3), value.share_treated
      (0.175, 0.175, 0.5)
      >>> value.lower < 0.175 < value.upper
      True
    """
    check_alpha(alpha)
    rule = np.asarray(rule, float)
    if rule.shape != (units.sample_size,) or not np.all((rule >= 0) & (rule <= 1)):
        raise ValueError(
            f"a rule must be {units.sample_size} shares in [0, 1], one for each row."
        )
    means = bound_means(units, estimand, None, source, rule)
    value = _curve([means], alpha / 2, simultaneous=False)
    share = float(np.average(rule, weights=target_weights(units, source)))
    return PolicyValue(*(float(end[0]) for end in value), share_treated=share)


def value_curve(
    units: HeldOutUnits,
    estimand: pb.Estimand,
    *,
    shares: Sequence[float] = tuple(np.linspace(0, 1, 21)),
    criterion: Criterion = "maximin",
    fold: Int[np.ndarray, " n"] | None = None,
    alpha: float = 0.05,
    source: Source = "both",
) -> ValueCurve:
    """Estimates what treating the best share of people gains, for many shares.

    People are sorted by the criterion's score of their held-out bounds. Here everybody
    within the share is treated, also those with a score below 0, as in uplift curves.

    Args:
      units: rows of both sources.
      estimand: the benefit of treating one, from `net_benefit`.
      shares: of people treated.
      criterion: as for `recommend`.
      fold: people are sorted within folds.
      alpha: the probability that the band misses anywhere.
      source: whose covariates the target population has.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from pns_infer import make_held_out_units
      >>> observed, first, second = [20, 30, 10, 40], [65, 35, 20, 80], [45, 55, 50, 50]
      >>> counts = np.array([*observed, *first, *observed, *second])
      >>> x, y = np.tile([[0, 0, 1, 1], [0, 1, 0, 1]], 4)
      >>> mu = np.repeat([[0.35, 0.8], [0.55, 0.5]], 8, axis=0)
      >>> atoms = pb.Atoms(np.tile([[0.2, 0.3], [0.1, 0.4]], (16, 1, 1)), mu)
      >>> options = {"assignment": 0.5, "weights": counts, "weights_are": "frequency"}
      >>> units = make_held_out_units(atoms, np.arange(16) % 8 > 3, x, y, **options)
      >>> effect = net_benefit((1, 0, 0, -1), cost=0.1)  # 0.35 or -0.15
      >>> value_curve(units, effect, shares=(0, 0.5, 1)).bound_lower.round(3).tolist()
      [0.0, 0.175, 0.1]
    """
    check_alpha(alpha)
    points = np.asarray(shares, float)
    if points.ndim != 1 or not np.all((points >= 0) & (points <= 1)):
        raise ValueError("shares must be numbers in [0, 1].")
    lower, upper = predicted_bounds(units, estimand)
    score = recommend(lower, upper, criterion).score
    limits = rank_limits(score, target_weights(units, source), fold)
    means = [
        bound_means(
            *(units, estimand, None, source, share_between(limits, 1 - share, 1.0))
        )
        for share in points
    ]
    ends = _curve(means, alpha, simultaneous=True)
    low, high, bound_lower, bound_upper = ends
    return ValueCurve(points, bound_lower, bound_upper, low, high)


def _curve(
    parts: list[LinearMeans], alpha: float, simultaneous: bool
) -> tuple[Float[np.ndarray, " num_shares"], ...]:
    """Returns ends and bounds of pairs of means; alpha is one-sided if not joint."""
    means = stack_means(parts)
    signs = np.tile([1.0, -1.0], len(parts))
    kappa = (
        simultaneous_value(means, signs, alpha)
        if simultaneous
        else NormalDist().inv_cdf(1 - alpha)
    )
    margin = kappa * means.standard_error + means.skew_margin(-signs, kappa)
    ends = means.estimate - signs * margin
    return ends[::2], ends[1::2], means.estimate[::2], means.estimate[1::2]
