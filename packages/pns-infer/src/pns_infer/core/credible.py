"""Intervals from posterior draws: quantiles of the bounds themselves.

Sampling draws, such as a bootstrap's, vary about an estimate, and the extreme of several
estimates is biased: `intervals_from_draws` corrects for it. Posterior draws vary about
what is known of the truth, so each draw's bounds are a draw of the true bounds, and their
quantiles need no correction. What they promise is another thing: averaged over points whose
truths the prior describes, not at the worst point.
"""

import functools
from collections.abc import Iterable

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int
from scipy import special

from pns_infer.core import inputs
from pns_infer.core.critical import order_statistic, put_in_place
from pns_infer.core.intervals import CorrectedIntervals, join_intervals

_ONE_CASE = 1.5  # shape of the posterior of a proportion with one observed case


def credible_intervals(
    draws: inputs.Draws | Iterable[inputs.Draws],
    alpha: float = 0.05,
    *,
    estimand: pb.Estimand = pb.PNS,
    target: inputs.Target = "set",
    points_per_chunk: int = 64,
) -> CorrectedIntervals:
    """Turns posterior draws into intervals, point by point.

    For target='set' each end misses its bound with probability alpha / 2. For
    target='parameter' the interval is that of a value which lies anywhere in the set: a
    set that is wide beside its noise can be missed on one side only, so ends use
    1 - alpha Phi(D / noise), D the width of the set, as Imbens and Manski do.

    Arguments are as for `intervals_from_draws`, with draws of a posterior. Estimated
    bounds are medians; kappas are 0.

    Example:
      >>> draws = np.linspace(0, 1, 1001)[:, None, None] * [0.2, 0.4]  # of two terms
      >>> found = credible_intervals(pb.BoundTerms(draws, 1 - draws), alpha=0.1)
      >>> round(float(found.upper[0]), 2), round(float(found.bound_upper[0]), 2)
      (0.98, 0.8)
    """
    inputs.check_alpha(alpha)
    inputs.check_option("target", target, ("set", "parameter"))
    settings = {"alpha": alpha, "estimand": estimand, "target": target}
    blocks = inputs.cut_draws(draws, points_per_chunk)
    found = inputs.map_blocks(functools.partial(_of_block, **settings), blocks)
    return join_intervals(found)


def _of_block(
    block: inputs.Block, alpha: float, estimand: pb.Estimand, target: inputs.Target
) -> CorrectedIntervals:
    terms = inputs.checked_terms(block.draws, estimand)
    limits = (-estimand.floor, estimand.ceiling)
    negated, binding_lower = _bound(-np.asarray(terms.lower), limits[0])
    top, binding_upper = _bound(np.asarray(terms.upper), limits[1])
    num_points, num_draws = top.shape
    order_statistic(num_draws, 1 - alpha / 2)  # raises if there are too few
    middle = [np.median(values, axis=1) for values in (negated, top)]
    share = np.full(num_points, alpha / 2)
    if target == "parameter":  # Phi(D / noise): 1/2 for a point, 1 for a wide set
        width = np.maximum(middle[0] + middle[1], 0)
        noise = np.maximum(negated.std(axis=1), top.std(axis=1))
        wide = np.full_like(width, np.inf)
        share = alpha * special.ndtr(np.divide(width, noise, out=wide, where=noise > 0))
    low, high = (
        np.where(_is_at_limit(values, limit), limit, _quantile(values, 1 - share))
        for values, limit in zip((negated, top), limits, strict=True)
    )
    zeros = np.zeros_like(low)
    return CorrectedIntervals(
        lower=-low,
        upper=high,
        bound_lower=-middle[0],
        bound_upper=middle[1],
        kappa_lower=zeros,
        kappa_upper=zeros,
        binding_lower=binding_lower,
        binding_upper=binding_upper,
        is_empty=-low > high,
    )


def _bound(
    terms: Float[np.ndarray, "draws points terms"], limit: float
) -> tuple[Float[np.ndarray, "points draws"], Int[np.ndarray, " points"]]:
    """Takes the least of terms and limit in each draw, and what attains it most often."""
    num_terms = terms.shape[-1]
    terms = np.moveaxis(terms, 0, -1)  # [points, terms, draws]
    least = np.full((len(terms), terms.shape[-1]), limit, terms.dtype)
    # Ties go to the limit, since it is known, then to the last term.
    order = [-1, *reversed(range(num_terms))]
    attains = np.zeros(least.shape, np.int8)  # a place in `order`
    for place, term in enumerate(order[1:], start=1):
        attains[terms[:, term] < least] = place
        least = np.minimum(least, terms[:, term])
    counts = [np.count_nonzero(attains == i, axis=1) for i in range(len(order))]
    binding = np.array(order)[np.argmax(counts, axis=0)]
    return least.astype(np.float64), binding


def _is_at_limit(
    values: Float[np.ndarray, "points draws"], limit: float
) -> Bool[np.ndarray, " points"]:
    """Tells where draws do not distinguish a bound from its limit.

    They do not if they vary as the posterior of a proportion with at most one observed
    case; no quantile of such draws reaches the limit.
    """
    distance = limit - values
    return distance.mean(axis=1) ** 2 < _ONE_CASE * distance.var(axis=1)


def _quantile(
    values: Float[np.ndarray, "points draws"], probability: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    chosen, which = np.unique(probability, return_inverse=True)
    places = np.array([order_statistic(values.shape[1], p) for p in chosen])
    if len(places) == 1:
        return put_in_place(values, places.item())[:, places.item()]
    return np.sort(values, axis=1)[np.arange(len(values)), places[which]]
