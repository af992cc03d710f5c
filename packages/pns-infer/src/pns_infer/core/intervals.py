"""Precision-corrected intervals at each point from draws, and how good intervals are."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int
from scipy import special

from pns_infer.core import critical, inputs

Array = Any  # NumPy or JAX


class CorrectedIntervals(NamedTuple):
    """Intervals with a guarantee, one per point.

    Estimated bounds are half-median-unbiased: `bound_lower` lies above the lower bound
    with probability at most one half, asymptotically, and `bound_upper` below the upper
    one. A critical value kappa is 0 where nothing needed correction. `is_empty` says
    whether lower > upper: no value agrees with the terms.
    """

    lower: Float[Array, " num_points"]
    upper: Float[Array, " num_points"]
    bound_lower: Float[Array, " num_points"]
    bound_upper: Float[Array, " num_points"]
    kappa_lower: Float[Array, " num_points"]
    kappa_upper: Float[Array, " num_points"]
    binding_lower: Int[Array, " num_points"]  # the term at the end; -1 for the floor
    binding_upper: Int[Array, " num_points"]  # likewise; -1 for the ceiling
    is_empty: Bool[Array, " num_points"]


def intervals_from_draws(
    draws: inputs.Draws | Iterable[inputs.Draws],
    alpha: float = 0.05,
    *,
    sample_size: float | None = None,
    estimand: pb.Estimand = pb.PNS,
    target: inputs.Target = "set",
    selection: inputs.Selection = "adaptive",
    center: inputs.Draws | None = None,
    points_per_chunk: int = 64,
) -> CorrectedIntervals:
    """Turns draws of an estimator into precision-corrected intervals.

    The draws' distribution about their mean must approximate that of the estimator about
    the truth, as for a bootstrap. Then, asymptotically and at each point:

    - target='set': [lower, upper] contains the identified set with probability at least
      1 - alpha; each end misses with at most alpha / 2, so that one end alone with
      probability 1 - alpha is that of an interval with 2 alpha;
    - target='parameter': it contains the true value with probability at least 1 - alpha,
      and is narrower; ends use 1 - alpha Phi(tau D), D the estimated width of the set,
      which lies between 1 - alpha and 1 - alpha / 2.

    selection='none' is Algorithm 1 (alg:pns_bounds) to the letter, up to its floor 0,
    which is known and needs no correction. 'adaptive' is CLR's full procedure: kappa is
    taken over the terms that may attain the bound, so it is smaller.

    Draws are Atoms [num_draws, num_points] or BoundTerms [num_draws, num_points,
    num_terms], for which the estimand only gives floor and ceiling; or an iterable of
    those, one block of points after another, for draws that do not fit into memory. A
    term that does not vary is known. A draw in which the denominator of a quotient is 0,
    as of PN, counts as floor and ceiling. `center` holds the estimates [num_points] to
    correct; None for the draws' mean. `sample_size` counts the units behind the
    estimates, in both tables together; adaptive selection and target='parameter' need
    it, as their tuning depends on log n. A chunk of points takes about 100 bytes per
    draw and point.

    Example:
      >>> rng = np.random.default_rng(0)
      >>> joint = rng.dirichlet([20, 30, 10, 40], (1000, 1)).reshape(-1, 1, 2, 2)
      >>> mu = rng.beta([35, 80], [65, 20], (1000, 1, 2))
      >>> draws = pb.project_to_compatible(pb.Atoms(joint, mu))
      >>> found = intervals_from_draws(draws, sample_size=300)
      >>> bool(found.lower[0] < found.bound_lower[0] < found.bound_upper[0])
      True
    """
    inputs.check_alpha(alpha)
    inputs.check_option("target", target, ("set", "parameter"))
    inputs.check_option("selection", selection, ("adaptive", "none"))
    if sample_size is not None:
        inputs.check_at_least("sample_size", sample_size, 2)
    elif selection == "adaptive" or target == "parameter":
        raise pb.InputError(
            "sample_size",
            "is needed for selection='adaptive' and target='parameter': the number of "
            "units behind the estimates.",
        )
    size = math.nan if sample_size is None else sample_size

    def correct(block: inputs.Block) -> CorrectedIntervals:
        return _correct(block, alpha, size, estimand, target, selection)

    blocks = inputs.cut_draws(draws, points_per_chunk, center)
    return join_intervals(inputs.map_blocks(correct, blocks))


def join_intervals(parts: list[CorrectedIntervals]) -> CorrectedIntervals:
    """Joins the intervals of blocks of points."""
    xp = parts[0].lower.__array_namespace__()
    return CorrectedIntervals(*map(xp.concatenate, zip(*parts, strict=True)))


def _correct(
    block: inputs.Block,
    alpha: float,
    sample_size: float,
    estimand: pb.Estimand,
    target: inputs.Target,
    selection: inputs.Selection,
) -> CorrectedIntervals:
    """Corrects both ends of one block; the lower side holds negated terms."""
    sides = inputs.make_sides(block, estimand)
    limits = (-estimand.floor, estimand.ceiling)
    probability: Any = 1 - alpha / 2
    num_draws = sides[0].tails.shape[-1]
    critical.order_statistic(num_draws, probability)  # raises if there are too few
    find = critical.find_maxima if target == "set" else critical.sorted_maxima
    maxima = []
    for terms, limit in zip(sides, limits, strict=True):
        active = None
        if selection == "adaptive":
            active = critical.select_terms(
                terms, critical.find_maxima(terms), sample_size, limit
            )
        maxima.append(find(terms, active))

    def ends(probability: Any) -> list[critical.Corrected]:
        return [
            _limited(critical.corrected_minimum(terms, sorts, probability), limit)
            for terms, sorts, limit in zip(sides, maxima, limits, strict=True)
        ]

    estimates = ends(0.5)
    if target == "parameter":
        probability = _parameter_probability(ends, estimates, alpha, sample_size)
    negated, top = ends(probability)
    low, high = -negated.value, top.value
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


def _limited(end: critical.Corrected, limit: float) -> critical.Corrected:
    """Applies a known term, uncorrected."""
    xp = end.value.__array_namespace__()
    binds = end.value >= limit
    return end._replace(
        value=xp.where(binds, limit, end.value), term=xp.where(binds, -1, end.term)
    )


def _parameter_probability(
    ends: Callable[[float], list[critical.Corrected]],
    estimates: list[critical.Corrected],
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
    quartiles = zip(ends(0.25), ends(0.75), strict=True)
    ranges = [high.value - low.value for low, high in quartiles]
    noise = xp.maximum(*ranges) * np.log(sample_size)
    positive = noise > 0
    ratio = xp.where(positive, width / xp.where(positive, noise, 1), xp.inf)
    cdf = jax.scipy.stats.norm.cdf if inputs.is_traced(ratio) else special.ndtr
    return 1 - alpha * xp.asarray(cdf(ratio))


class Scores(NamedTuple):
    """Means over the points of one replicate."""

    valid: float  # fraction with compatible estimated atoms; NaN if none were given
    point_coverage: float  # fraction of intervals that contain the true value
    set_coverage: float  # fraction that contain the identified set
    width: float  # an empty interval has width 0
    score: float  # Winkler interval score of the true value; less is better
    oracle_width: float  # of the identified set: less cannot cover it
    empty: float  # fraction of intervals whose ends cross


def score_intervals(
    interval: Any,
    value: Float[Array, " num_points"],
    truth: pb.Interval,
    alpha: float = 0.05,
    atoms: pb.Atoms | None = None,
) -> Scores:
    """Scores the intervals of one replicate.

    The interval is anything with `lower` and `upper` [num_points], such as
    CorrectedIntervals, Band or pns_bounds.Interval. Estimated atoms, if given, are
    judged by their validity.

    Example:
      >>> truth = pb.Interval(np.array([0.2, 0.3]), np.array([0.4, 0.5]))
      >>> wide = pb.Interval(np.array([0.1, 0.35]), np.array([0.5, 0.6]))
      >>> score_intervals(wide, np.array([0.3, 0.4]), truth).set_coverage
      0.5
    """
    inputs.check_alpha(alpha)
    lower, upper, value, low, high = (
        np.asarray(part, float)
        for part in (interval.lower, interval.upper, value, truth.lower, truth.upper)
    )
    names = ("lower", "upper", "value", "truth.lower", "truth.upper")
    for name, part in zip(names, (lower, upper, value, low, high), strict=True):
        inputs.check_shape(name, part, (len(lower) if lower.ndim else 1,))
        if not len(part) or not np.all(np.isfinite(part)):
            raise pb.InputError(name, "must be finite numbers, one for each point.")
    miss = np.maximum(lower - value, 0) + np.maximum(value - upper, 0)
    return Scores(
        valid=np.nan if atoms is None else float(np.mean(pb.is_compatible(atoms))),
        point_coverage=float(np.mean((lower <= value) & (value <= upper))),
        set_coverage=float(np.mean((lower <= low) & (high <= upper))),
        width=float(np.mean(np.maximum(upper - lower, 0))),
        score=float(np.mean(upper - lower + 2 / alpha * miss)),
        oracle_width=float(np.mean(high - low)),
        empty=float(np.mean(lower > upper)),
    )
