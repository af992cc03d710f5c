"""Critical values and corrected minima: the core of intersection bounds.

The vocabulary, after Chernozhukov, Lee and Rosen (2013). A bound is the least of several
terms. Each has an estimate and a spread (its standard error); known terms have spread 0.
`tails` are draws of how far an estimate falls *below* its term, in units of its spread:
[..., num_terms, num_draws]. The corrected minimum is the least of estimate + kappa *
spread, kappa a quantile of the greatest tail, so that it falls below the least term with
no more than the probability asked for. A maximum is the minimum of negated terms.
"""

import math
from typing import Any, NamedTuple

import numpy as np

Array = Any  # NumPy or JAX


class Side(NamedTuple):
    """One side of a bound, as a minimum over terms.

    Attributes:
      centre: [..., num_terms] estimates.
      spread: [..., num_terms] standard errors; 0 for a known term.
      tails: [..., num_terms, num_draws]; 0 for a known term.
    """

    centre: Array
    spread: Array
    tails: Array


class Maxima(NamedTuple):
    """Sorted draws [..., num_draws] of the greatest tail among some terms."""

    values: Array
    is_empty: Array  # [...] whether no term was left


class Corrected(NamedTuple):
    """A corrected minimum [...], its critical value, and the term that attains it."""

    value: Array
    kappa: Array
    term: Array


def make_side(draws: Array, centre: Array | None = None) -> Side:
    """Standardises draws [..., num_terms, num_draws] by their own mean and spread.

    Args:
      draws: of each term of a minimum.
      centre: [..., num_terms] estimates to correct; the draws' mean if None.
    """
    xp = draws.__array_namespace__()
    shifted = draws - draws[..., :1]  # a constant becomes exactly 0
    mean = xp.mean(shifted, axis=-1, keepdims=True)
    deviation = shifted - mean
    num_draws = draws.shape[-1]
    spread = xp.sqrt(xp.sum(deviation * deviation, axis=-1) / (num_draws - 1))
    if centre is None:
        centre = (draws[..., :1] + mean)[..., 0]
    return Side(centre, spread, _divide(-deviation, spread[..., None]))


def _divide(values: Array, spread: Array) -> Array:
    """Divides where the spread is positive; 0 elsewhere, and no NaN in gradients."""
    xp = spread.__array_namespace__()
    positive = spread > 0
    return xp.where(positive, values / xp.where(positive, spread, 1), 0)


def sorted_maxima(side: Side, active: Array | None = None) -> Maxima:
    """Sorts the draws of the greatest tail over the active terms that are not known."""
    xp = side.spread.__array_namespace__()
    use = side.spread > 0
    if active is not None:
        use = use & active
    if not side.tails.shape[-2]:  # a side without terms
        shape = (*side.tails.shape[:-2], side.tails.shape[-1])
        return Maxima(xp.zeros(shape, dtype=side.tails.dtype), ~xp.any(use, axis=-1))
    greatest = xp.max(xp.where(use[..., None], side.tails, -xp.inf), axis=-2)
    return Maxima(xp.sort(greatest, axis=-1), ~xp.any(use, axis=-1))


def critical_value(maxima: Maxima, probability: Any) -> Array:
    """Takes the quantile kappa [...] of the greatest tail.

    It is the order statistic number (num_draws + 1) * probability, rounded up: a further
    draw lies below it with at least this probability, however few draws there are.
    Without a term that needs correction kappa is 0.

    Args:
      maxima: from `sorted_maxima`.
      probability: a number, or one for each of [...].
    """
    values, is_empty = maxima
    xp = values.__array_namespace__()
    num_draws = values.shape[-1]
    if isinstance(probability, float):
        kappa = values[..., order_statistic(num_draws, probability)]
    else:
        place = xp.ceil((num_draws + 1) * probability - 1e-4) - 1
        place = xp.clip(place, 0, num_draws - 1).astype(int)
        kappa = xp.take_along_axis(values, place[..., None], axis=-1)[..., 0]
    return xp.where(is_empty, 0, kappa)


def order_statistic(num_draws: int, probability: float) -> int:
    """Returns the zero-based place of a quantile among sorted draws.

    Raises:
      ValueError: if there are too few draws to have one.
    """
    place = math.ceil((num_draws + 1) * probability - 1e-9)
    if place > num_draws:
        needed = math.ceil(probability / (1 - probability) - 1e-9)
        raise ValueError(
            f"{num_draws} draws are too few for the {probability:.6g} quantile; give "
            f"{needed} or more (ten times as many keep its noise small)."
        )
    return max(place, 1) - 1


def corrected_minimum(side: Side, maxima: Maxima, probability: Any) -> Corrected:
    """Computes min over terms of centre + kappa * spread, over all terms."""
    xp = side.centre.__array_namespace__()
    kappa = critical_value(maxima, probability)
    if not side.centre.shape[-1]:
        nothing = xp.full(side.centre.shape[:-1], xp.inf, dtype=side.centre.dtype)
        return Corrected(nothing, kappa, xp.full(nothing.shape, -1))
    values = side.centre + kappa[..., None] * side.spread
    return Corrected(xp.min(values, axis=-1), kappa, xp.argmin(values, axis=-1))


def selection_probability(num_rows: float) -> float:
    """Returns CLR's gamma_n = 1 - 0.1 / log n."""
    return 1 - 0.1 / math.log(num_rows)


def select_terms(side: Side, num_rows: float, limit: float = np.inf) -> Array:
    """Finds the terms that may attain the minimum: adaptive inequality selection.

    A term is kept if centre <= min(centre + k * spread) + 2 k * spread, k the critical
    value of all terms at probability gamma_n, which tends to 1 with the sample size.

    Args:
      side: all terms.
      num_rows: the sample size n.
      limit: a known term, such as the ceiling.

    Returns:
      [..., num_terms] booleans; at least one term, or the limit, is kept.
    """
    gamma = selection_probability(num_rows)
    least, kappa, _ = corrected_minimum(side, sorted_maxima(side), gamma)
    xp = side.centre.__array_namespace__()
    least = xp.minimum(least, limit)
    return may_attain(side.centre, side.spread, least[..., None], kappa[..., None])


def may_attain(centre: Array, spread: Array, least: Array, kappa: Array) -> Array:
    """Whether a term is near enough to the corrected minimum to attain it."""
    return centre <= least + 2 * kappa * spread
