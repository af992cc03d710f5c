"""Precision-corrected intervals at each point: from draws, or from a covariance."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int, PRNGKeyArray
from scipy import special

from pns_infer.core.critical import (
    Corrected,
    TooFewDrawsError,
    corrected_minimum,
    find_maxima,
    order_statistic,
    select_terms,
    sorted_maxima,
)
from pns_infer.core.inputs import (
    Block,
    Draws,
    Selection,
    Target,
    Which,
    check_alpha,
    check_at_least,
    check_option,
    check_shape,
    cut_draws,
    is_traced,
    make_sides,
    map_blocks,
)

Array = Any  # NumPy or JAX


class CorrectedIntervals(NamedTuple):
    """Intervals with a guarantee, one per point.

    Attributes:
      lower: the floor for side='upper'.
      upper: the ceiling for side='lower'.
      bound_lower: half-median-unbiased estimate of the lower bound: it lies above the
        bound with probability at most one half, asymptotically.
      bound_upper: the same for the upper bound, which it lies below.
      kappa_lower: critical value; 0 where nothing needed correction.
      kappa_upper: critical value.
      binding_lower: which lower term attains the end; -1 for the floor.
      binding_upper: which upper term does; -1 for the ceiling.
      is_empty: whether lower > upper: no value agrees with the terms.
    """

    lower: Float[Array, " num_points"]
    upper: Float[Array, " num_points"]
    bound_lower: Float[Array, " num_points"]
    bound_upper: Float[Array, " num_points"]
    kappa_lower: Float[Array, " num_points"]
    kappa_upper: Float[Array, " num_points"]
    binding_lower: Int[Array, " num_points"]
    binding_upper: Int[Array, " num_points"]
    is_empty: Bool[Array, " num_points"]


def intervals_from_draws(
    draws: Draws | Iterable[Draws],
    alpha: float = 0.05,
    *,
    sample_size: float | None = None,
    estimand: pb.Estimand = pb.PNS,
    target: Target = "set",
    side: Which = "both",
    selection: Selection = "adaptive",
    center: Draws | None = None,
    points_per_chunk: int = 64,
) -> CorrectedIntervals:
    """Turns draws of an estimator into precision-corrected intervals.

    The draws' distribution about their mean must approximate that of the estimator about
    the truth, as for a bootstrap. Then, asymptotically and at each point:

    - target='set', side='both': [lower, upper] contains the identified set with
      probability at least 1 - alpha (each end misses with at most alpha / 2);
    - target='parameter', side='both': it contains the true value with probability at
      least 1 - alpha, and is narrower; ends use 1 - alpha Phi(tau D), D the estimated
      width of the set, which lies between 1 - alpha and 1 - alpha / 2;
    - side='lower' or 'upper': that end alone, with probability at least 1 - alpha.

    selection='none' is Algorithm 1 (alg:pns_bounds) to the letter, up to its floor 0,
    which is known and needs no correction. 'adaptive' is CLR's full procedure: kappa is
    taken over the terms that may attain the bound, so it is smaller.

    Args:
      draws: Atoms [num_draws, num_points] or BoundTerms [num_draws, num_points,
        num_terms]; or an iterable of those, one block of points after another, for
        draws that do not fit into memory. A term that does not vary is known. A draw in
        which the denominator of a quotient is 0, as of PN, counts as floor and ceiling.
      alpha: the probability of missing.
      sample_size: sample size behind the estimates, both tables together; for
        selection='adaptive' and target='parameter', whose tuning depends on log n.
      estimand: one of pns_bounds, or your own; for BoundTerms it only gives floor and
        ceiling.
      target: 'set' or 'parameter'.
      side: 'both', 'lower' or 'upper'.
      selection: 'adaptive' or 'none'.
      center: estimates [num_points] to correct, of the type of the draws; the draws'
        mean if None.
      points_per_chunk: points held as terms at a time; memory beside the draws is about
        100 bytes per draw and point of a chunk.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> rng = np.random.default_rng(0)
      >>> joint = rng.dirichlet([20, 30, 10, 40], (1000, 1)).reshape(-1, 1, 2, 2)
      >>> mu = rng.beta([35, 80], [65, 20], (1000, 1, 2))
      >>> draws = pb.project_to_compatible(pb.Atoms(joint, mu))
      >>> found = intervals_from_draws(draws, sample_size=300)
      >>> bool(found.lower[0] < found.bound_lower[0] < found.bound_upper[0])
      True
    """
    check_alpha(alpha)
    check_option("target", target, ("set", "parameter"))
    check_option("side", side, ("both", "lower", "upper"))
    check_option("selection", selection, ("adaptive", "none"))
    if sample_size is None:
        if selection == "adaptive" or target == "parameter":
            raise pb.InputError(
                "sample_size",
                "is needed for selection='adaptive' and target='parameter': the number "
                "of units behind the estimates.",
            )
        sample_size = math.nan
    else:
        check_at_least("sample_size", sample_size, 2)
    correct = functools.partial(
        _correct,
        alpha=alpha,
        sample_size=sample_size,
        estimand=estimand,
        target=target,
        side=side,
        selection=selection,
    )
    return join_intervals(
        map_blocks(correct, cut_draws(draws, points_per_chunk, center))
    )


def intervals_from_estimates(
    key: PRNGKeyArray,
    terms: pb.BoundTerms,
    covariance: Float[Array, "num_points num_terms num_terms"],
    alpha: float = 0.05,
    *,
    num_draws: int = 10_000,
    **options: Any,
) -> CorrectedIntervals:
    """Computes CLR intervals from estimated terms and their covariance.

    The Gaussian process of the estimator is simulated; points share its normal draws.
    The covariance is that of lower and upper terms together, on the scale of the
    estimates (it includes 1 / n); `term_covariance` makes it from the covariance of
    atoms. Options are as for `intervals_from_draws`.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> terms = pb.BoundTerms(np.array([[0.45, 0.1]]), np.array([[0.6]]))
      >>> covariance = 0.01**2 * np.eye(3)[None]
      >>> key = jax.random.key(0)
      >>> found = intervals_from_estimates(key, terms, covariance, sample_size=1000)
      >>> found.lower.round(2).tolist(), found.upper.round(2).tolist()  # 1.96 errors
      ([0.43], [0.62])
    """
    lower, upper = (np.asarray(part, float) for part in terms)
    covariance = np.asarray(covariance, float)
    size = lower.shape[-1] + upper.shape[-1]
    check_shape("lower terms", lower, ("num_points", "num_lower"))
    check_shape("upper terms", upper, (len(lower), "num_upper"))
    check_at_least("the number of points", len(lower), 1)
    what = ", one matrix over lower and upper terms per point"
    check_shape("covariance", covariance, (len(lower), size, size), what)
    if not np.all(np.isfinite(covariance)):
        raise pb.InputError("covariance", "must be finite.")
    if num_draws <= size:
        raise TooFewDrawsError(num_draws, size + 1, f"the covariance of {size} terms")
    normals = np.asarray(jax.random.normal(key, (num_draws, size)), float)
    # The sample moments are made exact, so that the covariance given is the one used.
    normals -= normals.mean(axis=0)
    root = np.linalg.cholesky(np.cov(normals.T).reshape(size, size))
    normals = np.linalg.solve(root, normals.T).T
    step = max(1, options.get("points_per_chunk", 64))
    parts = []
    for start in range(0, len(lower), step):
        part = slice(start, start + step)
        noise = np.einsum("pij,dj->dpi", _root(covariance[part]), normals)
        middle = pb.BoundTerms(lower[part], upper[part])
        drawn = pb.BoundTerms(
            middle.lower + noise[..., : lower.shape[1]],
            middle.upper + noise[..., lower.shape[1] :],
        )
        parts.append(intervals_from_draws(drawn, alpha, center=middle, **options))
    return join_intervals(parts)


def _root(
    covariance: Float[np.ndarray, "num_points num_terms num_terms"],
) -> Float[np.ndarray, "num_points num_terms num_terms"]:
    """Computes a square root of each matrix; they may be singular, not indefinite."""
    symmetric = np.allclose(covariance, np.swapaxes(covariance, -1, -2), atol=1e-10)
    values, vectors = np.linalg.eigh(covariance)
    least = values.min(axis=-1)
    if not symmetric or np.any(least < -1e-8 * np.maximum(values.max(axis=-1), 1e-30)):
        raise pb.InputError(
            "covariance",
            "must be symmetric without negative eigenvalues; the least is "
            f"{least.min():.3g}.",
        )
    root = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
    # Exactly 0 for a known term, whatever eigh rounded.
    known = np.diagonal(covariance, axis1=-2, axis2=-1) == 0
    return np.where(known[..., None], 0, root)


def join_intervals(parts: list[CorrectedIntervals]) -> CorrectedIntervals:
    """Joins the intervals of blocks of points."""
    xp = parts[0].lower.__array_namespace__()
    return CorrectedIntervals(
        *(xp.concatenate(leaves) for leaves in zip(*parts, strict=True))
    )


def _correct(
    block: Block,
    alpha: float,
    sample_size: float,
    estimand: pb.Estimand,
    target: Target,
    side: Which,
    selection: Selection,
) -> CorrectedIntervals:
    """Corrects both ends of one block; the lower side holds negated terms."""
    sides = make_sides(block, estimand)
    limits = (-estimand.floor, estimand.ceiling)
    miss = alpha / 2 if side == "both" else alpha
    order_statistic(sides[0].tails.shape[-1], 1 - miss)  # raises if there are too few
    find = find_maxima if target == "set" else sorted_maxima
    maxima = []
    for terms, limit in zip(sides, limits, strict=True):
        active = None
        if selection == "adaptive":
            active = select_terms(terms, find_maxima(terms), sample_size, limit)
        maxima.append(find(terms, active))

    def ends(probability: Any) -> list[Corrected]:
        return [
            _limited(corrected_minimum(terms, sorts, probability), limit)
            for terms, sorts, limit in zip(sides, maxima, limits, strict=True)
        ]

    estimates = ends(0.5)
    probability: Any = 1 - miss
    if target == "parameter" and side == "both":
        probability = _parameter_probability(ends, estimates, alpha, sample_size)
    negated, top = ends(probability)
    xp = top.value.__array_namespace__()
    low, high = -negated.value, top.value
    nothing = xp.full_like(top.term, -1)
    if side == "lower":
        high, top = xp.full_like(high, estimand.ceiling), top._replace(term=nothing)
    if side == "upper":
        low, negated = xp.full_like(low, estimand.floor), negated._replace(term=nothing)
    return CorrectedIntervals(
        lower=low,
        upper=high,
        bound_lower=-estimates[0].value,
        bound_upper=estimates[1].value,
        kappa_lower=negated.kappa,
        kappa_upper=top.kappa,
        binding_lower=negated.term,
        binding_upper=top.term,
        is_empty=low > high,
    )


def _limited(end: Corrected, limit: float) -> Corrected:
    """Applies a known term, uncorrected."""
    xp = end.value.__array_namespace__()
    binds = end.value >= limit
    return end._replace(
        value=xp.where(binds, limit, end.value), term=xp.where(binds, -1, end.term)
    )


def _parameter_probability(
    ends: Callable[[float], list[Corrected]],
    estimates: list[Corrected],
    alpha: float,
    sample_size: float,
) -> Float[Array, " num_points"]:
    """Computes 1 - alpha Phi(tau D), as CLR do for the parameter itself.

    D is the estimated width of the identified set, and 1 / tau = log n times the
    interquartile range of the corrected ends. A set that is wide beside its noise can be
    missed on one side only, so Phi is 1; for a point it is 1/2.
    """
    negated, top = estimates
    xp = top.value.__array_namespace__()
    width = xp.maximum(top.value + negated.value, 0)
    quartiles = [
        high.value - low.value for low, high in zip(ends(0.25), ends(0.75), strict=True)
    ]
    noise = xp.maximum(quartiles[0], quartiles[1]) * np.log(sample_size)
    positive = noise > 0
    ratio = xp.where(positive, width / xp.where(positive, noise, 1), xp.inf)
    cdf = jax.scipy.stats.norm.cdf if is_traced(ratio) else special.ndtr
    return 1 - alpha * xp.asarray(cdf(ratio))
