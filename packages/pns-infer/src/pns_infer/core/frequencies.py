"""Inference from the frequencies of two tables: intervals, and a test of compatibility.

If both tables come from one population, eq:observational-constraints holds in every
stratum: p11 <= mu1 <= 1 - p10 and p01 <= mu0 <= 1 - p00. Four inequalities per stratum are
tested together, as the hypothesis that the least of all slacks is not negative.

Units of a stratum are similar, not equal. If the covariates of the sources have different
laws, so do their frequencies in the stratum, although the law given covariates is the same.
Overlap weights undo that: an observational unit counts by the chance that one with its
covariates is experimental, and the other way around; then both sources have the covariates'
law with density proportional to e (1 - e), e that chance.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int, Num, PRNGKeyArray
from scipy import optimize, stats

from pns_infer.core import critical, inputs
from pns_infer.core.intervals import (
    CorrectedIntervals,
    intervals_from_draws,
    join_intervals,
)

Array = Any  # NumPy or JAX
StratumCounts = Float[np.ndarray, "num_strata treatments levels"]


def frequency_covariance(
    observational: Num[Array, "num_points treatments levels"],
    experimental: Num[Array, "num_points treatments levels"],
    smoothing: float = 0.0,
) -> Float[np.ndarray, "num_points eta eta"]:
    """Computes the covariance of cell frequencies as estimates of the atoms.

    It is over eta = (mu1, mu0, p11, p10, p01, p00), as `pns_bounds.pack_atoms`. Units
    may be added to each cell for the variances alone: a smoothing of 0.5 or 1 keeps an
    empty cell from having no variance.

    Example:
      >>> tables = [[[20, 30], [10, 40]]], [[[50, 50], [20, 80]]]
      >>> covariance = frequency_covariance(*tables)[0]
      >>> round(float(covariance[0, 0]), 6)  # 0.8 (1 - 0.8) / 100
      0.0016
    """
    # Checks shapes and counts, and that every stratum has units in both arms.
    pb.atoms_from_counts(observational, experimental)
    log, trial = (np.asarray(t) + smoothing for t in (observational, experimental))
    eta = pb.pack_atoms(pb.atoms_from_counts(log, trial))
    num_units, arms = log.sum(axis=(-2, -1)), trial.sum(axis=-1)
    covariance = np.zeros((*eta.shape, eta.shape[-1]))
    # mu comes first in eta, the last arm before the others.
    size = pb.BINARY.num_free
    mu, joint = eta[..., :size], eta[..., size:]
    covariance[..., range(size), range(size)] = mu * (1 - mu) / arms[..., ::-1]
    column, row = joint[..., :, None], joint[..., None, :]
    multinomial = column * np.eye(joint.shape[-1]) - column * row
    covariance[..., size:, size:] = multinomial / num_units[..., None, None]
    return covariance


def intervals_from_estimates(
    key: PRNGKeyArray,
    estimates: inputs.Draws,
    covariance: Float[Array, "num_points size size"],
    alpha: float = 0.05,
    *,
    num_draws: int = 10_000,
    estimand: pb.Estimand = pb.PNS,
    **options: Any,
) -> CorrectedIntervals:
    """Computes CLR intervals from estimated atoms or terms and their covariance.

    The Gaussian process of the estimator is simulated; points share its normal draws.
    The covariance is on the scale of the estimates (it includes 1 / n). That of Atoms is
    over eta, as that of `frequency_covariance`, and gives the covariance of the terms by
    the delta method, which is exact where terms are linear in the atoms, such as those
    of PNS and HARM. That of BoundTerms is of lower and upper terms together. Options are
    as for `intervals_from_draws`.

    Example:
      >>> terms = pb.BoundTerms(np.array([[0.45, 0.1]]), np.array([[0.6]]))
      >>> covariance = 0.01**2 * np.eye(3)[None]
      >>> key = jax.random.key(0)
      >>> found = intervals_from_estimates(key, terms, covariance, sample_size=1000)
      >>> found.lower.round(2).tolist(), found.upper.round(2).tolist()  # 1.96 errors
      ([0.43], [0.62])
    """
    covariance = np.asarray(covariance, float)
    if isinstance(estimates, pb.Atoms):
        estimates, covariance = term_covariance(estimates, covariance, estimand)
    lower, upper = (np.asarray(part, float) for part in estimates)
    size = lower.shape[-1] + upper.shape[-1]
    inputs.check_shape("lower terms", lower, ("num_points", "num_lower"))
    inputs.check_shape("upper terms", upper, (len(lower), "num_upper"))
    inputs.check_at_least("the number of points", len(lower), 1)
    what = ", one matrix over lower and upper terms per point"
    inputs.check_shape("covariance", covariance, (len(lower), size, size), what)
    if not np.all(np.isfinite(covariance)):
        raise pb.InputError("covariance", "must be finite.")
    if num_draws <= size:
        raise critical.TooFewDrawsError(
            num_draws, size + 1, f"the covariance of {size} terms"
        )
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
        noises = np.split(noise, [lower.shape[1]], axis=-1)
        drawn = pb.BoundTerms(*map(np.add, middle, noises))
        fixed = {"center": middle, "estimand": estimand}
        parts.append(intervals_from_draws(drawn, alpha, **fixed, **options))
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


_STRATA = 512  # simulated at a time
_POWER = 0.8  # with which the violations that are called detectable are found


def term_covariance(
    atoms: pb.Atoms,
    covariance: Float[np.ndarray, "num_points eta eta"],
    estimand: pb.Estimand,
) -> tuple[pb.BoundTerms, Float[np.ndarray, "num_points num_terms num_terms"]]:
    """Computes terms and their covariance, lower and upper together, by the delta method."""
    atoms = pb.Atoms(*(np.asarray(part, float) for part in atoms))
    eta = pb.pack_atoms(atoms)
    what = ", over eta = (mu1, mu0, p11, p10, p01, p00)"
    inputs.check_shape("covariance", covariance, (*eta.shape, eta.shape[-1]), what)
    if estimand.is_linear:
        matrix = np.array(estimand.lower_matrix + estimand.upper_matrix)
        jacobian = np.broadcast_to(matrix, (len(eta), *matrix.shape))
    else:

        def terms(eta: jax.Array) -> jax.Array:
            return jnp.concatenate(estimand.terms(pb.unpack_atoms(eta)), axis=-1)

        jacobian = np.asarray(jax.vmap(jax.jacfwd(terms))(eta), float)
    covariance = jacobian @ covariance @ np.swapaxes(jacobian, -1, -2)
    return estimand.terms(atoms), covariance


class CompatibilityTest(NamedTuple):
    """The greatest violation of an inequality, and all of them."""

    p_value: float  # of the hypothesis that none is violated in any stratum
    statistic: float  # the greatest violation, in standard errors
    stratum: int  # where it is
    constraint: str  # which one it is, a member of pns_bounds.CONSTRAINTS
    slack: Float[np.ndarray, "num_strata slacks"]  # negative = violated
    standard_error: Float[np.ndarray, "num_strata slacks"]  # of the slacks
    rejected: Bool[np.ndarray, "num_strata slacks"]  # with family-wise error alpha
    # How far an inequality must fail, alike in all strata, to be found with at least 80%.
    detectable: Float[np.ndarray, " slacks"]


def compatibility_test(
    key: PRNGKeyArray,
    observational: Num[Array, "num_strata treatments levels"],
    experimental: Num[Array, "num_strata treatments levels"],
    alpha: float = 0.05,
    num_draws: int = 10_000,
) -> CompatibilityTest:
    """Tests whether two tables can come from one population.

    An intersection-bounds test with adaptive inequality selection: inequalities with
    much slack do not cost power. Frequencies are those of counts with one unit added to
    each cell, as Agresti and Caffo do for differences of proportions, so that small
    strata neither have zero variance nor reject too often. Strata should hold some tens
    of units in each table; merge smaller ones first. Alpha is the family-wise error of
    `rejected`; the key decides the simulation of the critical value.

    Example:
      >>> observational = [[[40, 20], [10, 130]]]  # 130 of 200 chose it and responded
      >>> experimental = [[[50, 50], [60, 40]]]  # 40 of 100 respond if treated
      >>> key = jax.random.key(0)
      >>> test = compatibility_test(key, observational, experimental, num_draws=1000)
      >>> test.constraint, test.p_value < 0.01
      ('p11 <= mu1', True)
    """
    inputs.check_alpha(alpha)
    observational = np.asarray(observational, float)
    experimental = np.asarray(experimental, float)
    shape = ("num_strata", *pb.BINARY.joint_shape)
    inputs.check_shape("observational", observational, shape)
    inputs.check_shape("experimental", experimental, (len(observational), *shape[1:]))
    covariance = frequency_covariance(observational, experimental, smoothing=1.0)
    atoms = pb.atoms_from_counts(observational + 1, experimental + 1)
    slack = pb.compatibility_slack(atoms)
    covariance = pb.SLACK_MATRIX @ covariance @ pb.SLACK_MATRIX.T
    error = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    ratio = slack / error
    sample_size = max(observational.sum() + experimental.sum(), 3)

    every = np.ones_like(slack, bool)
    maxima = np.sort(_simulate(key, covariance, error, every, num_draws))
    place = critical.order_statistic(num_draws, 1 - alpha)
    detectable = [_detectable(one, float(maxima[place])) for one in error.T]
    # The slacks of all strata are the terms of one minimum.
    side = critical.Side(slack.ravel(), error.ravel(), tails=None)
    kept = critical.select_terms(
        side, critical.Maxima(maxima, np.array(False)), sample_size
    )
    kept = kept.reshape(slack.shape)
    maxima = np.sort(_simulate(key, covariance, error, kept, num_draws))

    statistic = float(-ratio.min())
    stratum, worst = np.unravel_index(np.argmin(ratio), ratio.shape)
    return CompatibilityTest(
        p_value=float((1 + np.sum(maxima >= statistic)) / (1 + num_draws)),
        statistic=statistic,
        stratum=int(stratum),
        constraint=pb.CONSTRAINTS[worst],
        slack=slack,
        standard_error=error,
        rejected=-ratio > max(maxima[place], 0),
        detectable=np.array(detectable),
    )


def _detectable(
    error: Float[np.ndarray, " num_strata"], critical_value: float
) -> float:
    """Finds the violation at which the greatest of independent ratios passes with 80%.

    The critical value is that of all inequalities. Those with much slack are not
    simulated in the end, which makes it smaller and the power greater.
    """

    def lacking(violation: float) -> float:
        below = stats.norm.logcdf(critical_value - violation / error).sum()
        return float(below - np.log(1 - _POWER))

    most = (max(critical_value, 0) + stats.norm.ppf(_POWER)) * error.min()
    return optimize.brentq(lacking, -most, 2 * most, xtol=1e-12)


def _simulate(
    key: PRNGKeyArray,
    covariance: Float[np.ndarray, "num_strata slacks slacks"],
    error: Float[np.ndarray, "num_strata slacks"],
    kept: Bool[np.ndarray, "num_strata slacks"],
    num_draws: int,
) -> Float[np.ndarray, " num_draws"]:
    """Draws the greatest standardized deviation over the kept slacks."""
    greatest = np.full(num_draws, -np.inf)
    # Cholesky with a tiny ridge: two slacks of an arm can be exact opposites.
    correlation = covariance / (error[:, :, None] * error[:, None, :])
    root = np.linalg.cholesky(correlation + 1e-10 * np.eye(correlation.shape[1]))
    for block in range(-(-len(root) // _STRATA)):
        part = slice(block * _STRATA, (block + 1) * _STRATA)
        use = kept[part].any(axis=1)
        if not use.any():
            continue
        shape = (*error[part].shape, num_draws)
        normals = jax.random.normal(jax.random.fold_in(key, block), shape)
        deviation = root[part][use] @ np.asarray(normals)[use]
        deviation[~kept[part][use]] = -np.inf
        greatest = np.maximum(greatest, deviation.max(axis=(0, 1)))
    return greatest


def balanced_counts(
    stratum: Int[np.ndarray, " n"],
    chance: Float[np.ndarray, " n"],
    observational: Num[Array, "n treatments levels"],
    experimental: Num[Array, "n treatments levels"],
    squares: Sequence[Num[Array, "n treatments levels"]] | None = None,
) -> tuple[StratumCounts, StratumCounts]:
    """Sums rows by stratum with overlap weights, on the scale of effective sample sizes.

    Frequencies are weighted ones. Totals, of a stratum's observational counts and of
    each of its arms, are Kish's effective sample sizes (sum w)^2 / sum w^2, so counts
    may be taken as if they were counts of independent units, for `compatibility_test`.

    Strata count from 0; the chance is that a unit with the row's covariates is
    experimental. Where counts `[..., x, y]` are sums of weights, give the sums of
    `squares` of the weights too; if None, a count of c is c units of weight 1.

    Example:
      >>> # Units of the first row all respond, those of the second never do.
      >>> observational = np.array([[[0, 5], [0, 5]], [[15, 0], [15, 0]]])
      >>> experimental = np.array([[[0, 15], [0, 15]], [[5, 0], [5, 0]]])
      >>> stratum, chance = np.array([0, 0]), np.array([0.75, 0.25])
      >>> tables = balanced_counts(stratum, chance, observational, experimental)
      >>> [float(t[..., 1].sum() / t.sum()) for t in tables]  # 1/4 and 3/4 before
      [0.5, 0.5]
    """
    parts = (np.asarray(observational, float), np.asarray(experimental, float))
    seconds = parts if squares is None else [np.asarray(s, float) for s in squares]
    factors = (chance[:, None, None], 1 - chance[:, None, None])
    # All observational cells have one total, the cells of each arm another.
    axes = ((1, 2), (2,))
    results = []
    for part, second, factor, axis in zip(parts, seconds, factors, axes, strict=True):
        sums = inputs.sum_by(stratum, part * factor)
        weight = sums.sum(axis=axis, keepdims=True)
        square = inputs.sum_by(stratum, second * factor**2).sum(
            axis=axis, keepdims=True
        )
        scale = np.divide(weight, square, out=np.zeros_like(weight), where=square > 0)
        results.append(sums * scale)
    return results[0], results[1]
