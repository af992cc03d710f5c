"""Critical values and corrected minima: the core of intersection bounds.

The vocabulary, after Chernozhukov, Lee and Rosen (2013). A bound is the least of several
terms. Each has an estimate and a standard error, which is 0 for a known term. `tails` are
draws of how far an estimate falls *below* its term, in standard errors: [..., num_terms,
num_draws]. The corrected minimum is the least of estimate + kappa * standard error, kappa
a quantile of the greatest tail, so that it falls below the least term with no more than
the probability asked for. A maximum is the minimum of negated terms.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int

Array = Any  # NumPy or JAX; every function keeps the namespace and dtype of its input


class TooFewDrawsError(pb.InputError):
    """There are too few draws for a quantile or a standard error; `purpose` says which."""

    def __init__(self, num_draws: int, needed: int, purpose: str):
        """Keeps the numbers, so that callers need not read the message."""
        super().__init__(
            "num_draws",
            f"must be at least {needed} for {purpose}, got {num_draws}; ten times as "
            "many keep its Monte Carlo error small.",
        )
        self.num_draws = num_draws
        self.needed = needed
        self.purpose = purpose

    def __reduce__(self) -> tuple[Any, ...]:
        """Keeps the numbers when it crosses processes."""
        return type(self), (self.num_draws, self.needed, self.purpose)


class Side(NamedTuple):
    """One side of a bound, as a minimum over terms."""

    center: Float[Array, "... num_terms"]  # estimates
    standard_error: Float[Array, "... num_terms"]  # 0 for a known term
    tails: Float[Array, "... num_terms num_draws"]  # 0 for a known term


class Maxima(NamedTuple):
    """Draws of the greatest tail among some terms; one quantile needs no sorting."""

    values: Float[Array, "... num_draws"]
    is_empty: Bool[Array, "..."]
    is_sorted: bool = True


class Corrected(NamedTuple):
    """A corrected minimum, its critical value, and the term that attains it."""

    value: Float[Array, "..."]
    kappa: Float[Array, "..."]
    term: Int[Array, "..."]


def make_side(
    draws: Float[Array, "... num_terms num_draws"],
    center: Float[Array, "... num_terms"] | None = None,
) -> Side:
    """Standardizes draws by their own mean and deviation; the mean is the center."""
    xp = draws.__array_namespace__()
    shifted = draws - draws[..., :1]  # a constant becomes exactly 0
    mean = xp.mean(shifted, axis=-1, keepdims=True)
    deviation = shifted - mean
    num_draws = draws.shape[-1]
    error = xp.sqrt(xp.sum(deviation * deviation, axis=-1) / (num_draws - 1))
    if center is None:
        center = (draws[..., :1] + mean)[..., 0]
    # 0 for a term that does not vary, and no NaN in gradients.
    positive = error > 0
    precision = xp.where(positive, 1 / xp.where(positive, error, 1), 0)
    return Side(center, error, -deviation * precision[..., None])


def sorted_maxima(
    side: Side, active: Bool[Array, "... num_terms"] | None = None
) -> Maxima:
    """Sorts the draws of the greatest tail, to read many quantiles."""
    values, is_empty, _ = find_maxima(side, active)
    return Maxima(values.__array_namespace__().sort(values, axis=-1), is_empty)


def find_maxima(
    side: Side, active: Bool[Array, "... num_terms"] | None = None
) -> Maxima:
    """Finds the greatest tail of each draw over the active terms that are not known."""
    xp = side.standard_error.__array_namespace__()
    use = side.standard_error > 0
    if active is not None:
        use = use & active
    tails = xp.where(use[..., None], side.tails, -xp.inf)
    values = xp.max(tails, axis=-2, initial=-xp.inf)  # also of a side without terms
    return Maxima(values, ~xp.any(use, axis=-1), is_sorted=False)


def critical_value(
    maxima: Maxima, probability: float | Float[Array, "..."]
) -> Float[Array, "..."]:
    """Takes the quantile kappa [...] of the greatest tail.

    It is the order statistic number (num_draws + 1) * probability, rounded up: a further
    draw lies below it with at least this probability, however few draws there are.
    Without a term that needs correction kappa is 0. A probability for each of [...]
    needs sorted maxima.
    """
    values, is_empty, is_sorted = maxima
    xp = values.__array_namespace__()
    num_draws = values.shape[-1]
    if isinstance(probability, float):
        place = order_statistic(num_draws, probability)
        if not is_sorted:
            values = put_in_place(values, place)
        kappa = values[..., place]
    else:
        assert is_sorted
        place = xp.ceil((num_draws + 1) * probability - 1e-4) - 1
        place = xp.clip(place, 0, num_draws - 1).astype(int)
        kappa = xp.take_along_axis(values, place[..., None], axis=-1)[..., 0]
    return xp.where(is_empty, 0, kappa)


def put_in_place(
    values: Float[Array, "... num_draws"], place: int
) -> Float[Array, "... num_draws"]:
    """Reorders draws so that one place holds what sorting would put there."""
    xp = values.__array_namespace__()
    if xp is np:
        return np.partition(values, place, axis=-1)
    return xp.sort(values, axis=-1)


def draws_needed(probability: float) -> int:
    """Returns the least number of draws that have a quantile.

    An interval with alpha = 0.05 needs the quantile 0.975 on each side.

    Example:
      >>> draws_needed(0.975)
      39
    """
    return math.ceil(probability / (1 - probability) - 1e-9)


def order_statistic(num_draws: int, probability: float) -> int:
    """Returns the zero-based place of a quantile among sorted draws, if there is one."""
    place = math.ceil((num_draws + 1) * probability - 1e-9)
    if place > num_draws:
        needed = draws_needed(probability)
        raise TooFewDrawsError(num_draws, needed, f"the {probability:.6g} quantile")
    return max(place, 1) - 1


def corrected_minimum(
    side: Side, maxima: Maxima, probability: float | Float[Array, "..."]
) -> Corrected:
    """Computes min over terms of center + kappa * standard error, over all terms."""
    xp = side.center.__array_namespace__()
    kappa = critical_value(maxima, probability)
    if not side.center.shape[-1]:
        nothing = xp.full(side.center.shape[:-1], xp.inf, dtype=side.center.dtype)
        return Corrected(nothing, kappa, xp.full(nothing.shape, -1))
    values = side.center + kappa[..., None] * side.standard_error
    return Corrected(xp.min(values, axis=-1), kappa, xp.argmin(values, axis=-1))


def select_terms(
    side: Side, maxima: Maxima, sample_size: float, limit: float = np.inf
) -> Bool[Array, "... num_terms"]:
    """Finds the terms that may attain the minimum: adaptive inequality selection.

    A term is kept if center <= min(center + k * error) + 2 k * error, k the critical
    value of all terms at probability gamma_n = 1 - 0.1 / log n, which tends to 1.
    Tails are not read; the limit is a known term, such as the ceiling.
    """
    gamma = 1 - 0.1 / math.log(sample_size)
    least, kappa, _ = corrected_minimum(side, maxima, gamma)
    xp = side.center.__array_namespace__()
    least, kappa = xp.minimum(least, limit)[..., None], kappa[..., None]
    return side.center <= least + 2 * kappa * side.standard_error
