"""Intervals from posterior draws: quantiles of the bounds themselves.

Sampling draws, such as a bootstrap's, vary about an estimate, and the extreme of several
estimates is biased: `intervals_from_draws` corrects for it. Posterior draws vary about
what is known of the truth, so each draw's bounds are a draw of the true bounds, and their
quantiles need no correction. What they promise is another thing: averaged over points whose
truths the prior describes, not at the worst point.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int
from scipy import special

from pns_infer._critical import order_statistic
from pns_infer._inputs import Draws, Target, check_alpha, check_option, draw_blocks
from pns_infer._intervals import CorrectedIntervals, join_intervals

_ONE_CASE = (
    1.5  # shape of the posterior of a rare proportion of which one case was seen
)


def credible_intervals(
    draws: Draws | Iterable[Draws],
    alpha: float = 0.05,
    *,
    estimand: pb.Estimand = pb.PNS,
    target: Target = "set",
    points_per_chunk: int = 256,
) -> CorrectedIntervals:
    """Turns posterior draws into intervals, point by point.

    For target='set' each end misses its bound with probability alpha / 2. For
    target='parameter' the interval is that of a value which lies anywhere in the set: a
    set that is wide beside its noise can be missed on one side only, so ends use
    1 - alpha Phi(D / noise), D the width of the set, as Imbens and Manski do.

    Args:
      draws: as for `intervals_from_draws`, but of a posterior.
      alpha: the probability of missing.
      estimand: what is bounded.
      target: 'set' or 'parameter'.
      points_per_chunk: points held as terms at a time.

    Returns:
      Intervals with medians as estimated bounds; kappas are 0.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> rng = np.random.default_rng(0)
      >>> joint = rng.dirichlet([20, 30, 10, 40], (1000, 1)).reshape(-1, 1, 2, 2)
      >>> mu = rng.beta([35, 80], [65, 20], (1000, 1, 2))
      >>> draws = pb.project_to_compatible(pb.Atoms(joint, mu))
      >>> found = credible_intervals(draws)
      >>> bool(found.lower[0] < found.bound_lower[0] < found.bound_upper[0])
      True
    """
    check_alpha(alpha)
    check_option("target", target, ("set", "parameter"))
    return join_intervals(
        [
            _of_block(block, alpha, estimand, target)
            for block in draw_blocks(draws, estimand, points_per_chunk)
        ]
    )


def _of_block(
    terms: pb.BoundTerms, alpha: float, estimand: pb.Estimand, target: Target
) -> CorrectedIntervals:
    sides = [
        _bound(-np.asarray(terms.lower, np.float64), -estimand.floor),
        _bound(np.asarray(terms.upper, np.float64), estimand.ceiling),
    ]
    num_draws = len(sides[0].values)
    order_statistic(num_draws, 1 - alpha / 2)  # raises if there are too few
    share = np.full(sides[0].values.shape[1], alpha / 2)
    if target == "parameter":
        share = alpha * _one_sided_share(sides)
    limits = (-estimand.floor, estimand.ceiling)
    low, high = (
        np.where(_is_at_limit(side, limit), limit, _quantile(side.values, 1 - share))
        for side, limit in zip(sides, limits, strict=True)
    )
    middle = [np.median(side.values, axis=0) for side in sides]
    zeros = np.zeros_like(low)
    return CorrectedIntervals(
        lower=-low,
        upper=high,
        bound_lower=-middle[0],
        bound_upper=middle[1],
        kappa_lower=zeros,
        kappa_upper=zeros,
        binding_lower=sides[0].binding,
        binding_upper=sides[1].binding,
        is_empty=-low > high,
    )


class _Side(NamedTuple):
    """Sorted draws of a minimum, and the term that attains it most often."""

    values: Float[np.ndarray, "draws points"]
    binding: Int[np.ndarray, " points"]


def _bound(terms: Float[np.ndarray, "draws points terms"], limit: float) -> _Side:
    """Takes the least term of each draw, and the known limit."""
    limits = np.full((*terms.shape[:2], 1), limit)
    everything = np.concatenate([terms, limits], axis=-1)
    # The limit comes last and counts as -1; ties go to it, since it is known.
    order = np.argmin(everything[..., ::-1], axis=-1)
    counts = np.stack([np.mean(order == i, axis=0) for i in range(terms.shape[-1] + 1)])
    binding = terms.shape[-1] - np.argmax(counts, axis=0)
    binding = np.where(binding == terms.shape[-1], -1, binding)
    return _Side(np.sort(everything.min(axis=-1), axis=0), binding)


def _is_at_limit(side: _Side, limit: float) -> Float[np.ndarray, " points"]:
    """Tells where draws do not keep a bound away from its limit.

    A bound that lies at its limit is met by no quantile of draws that come near it without
    reaching it. Draws that vary as those of a proportion of which one case was seen at
    the most do not tell it from the limit.
    """
    distance = limit - side.values
    return distance.mean(axis=0) ** 2 < _ONE_CASE * distance.var(axis=0)


def _quantile(
    ordered: Float[np.ndarray, "draws points"],
    probability: Float[np.ndarray, " points"],
) -> Float[np.ndarray, " points"]:
    places = [order_statistic(len(ordered), p) for p in np.unique(probability)]
    where = np.searchsorted(np.unique(probability), probability)
    return ordered[np.array(places)[where], np.arange(ordered.shape[1])]


def _one_sided_share(sides: list[_Side]) -> Float[np.ndarray, " points"]:
    """Computes Phi(D / noise), between one half for a point and 1 for a wide set."""
    middle = [np.median(side.values, axis=0) for side in sides]
    width = np.maximum(middle[0] + middle[1], 0)
    noise = np.maximum(*(side.values.std(axis=0) for side in sides))
    ratio = np.divide(width, noise, out=np.full_like(width, np.inf), where=noise > 0)
    return special.ndtr(ratio)
