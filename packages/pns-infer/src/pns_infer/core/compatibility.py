"""Do an observational and an experimental table contradict each other?

If both come from one population, eq:observational-constraints holds in every stratum:
p11 <= mu1 <= 1 - p10 and p01 <= mu0 <= 1 - p00. Four inequalities per stratum are tested
together, as the hypothesis that the least of all slacks is not negative.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Num, PRNGKeyArray

from pns_infer.core.covariance import frequency_covariance
from pns_infer.core.critical import Maxima, Side, order_statistic, select_terms
from pns_infer.core.inputs import check_alpha, check_shape

Array = Any  # NumPy or JAX
_STRATA = 512  # simulated at a time


class CompatibilityTest(NamedTuple):
    """Result of `compatibility_test`.

    Attributes:
      p_value: of the hypothesis that no inequality is violated in any stratum.
      statistic: the greatest violation, in standard errors.
      stratum: where it is.
      constraint: which one it is, a member of pns_bounds.CONSTRAINTS.
      slack: estimates in the order of CONSTRAINTS; negative = violated.
      standard_error: of the slacks.
      rejected: which inequalities fail, with a family-wise probability
        of at most alpha to name one that does not.
    """

    p_value: float
    statistic: float
    stratum: int
    constraint: str
    slack: Float[np.ndarray, "num_strata slacks"]
    standard_error: Float[np.ndarray, "num_strata slacks"]
    rejected: Bool[np.ndarray, "num_strata slacks"]


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
      >>> import jax
      >>> observational = [[[40, 20], [10, 130]]]  # 130 of 200 chose it and responded
      >>> experimental = [[[50, 50], [60, 40]]]  # 40 of 100 respond if treated
      >>> key = jax.random.key(0)
      >>> test = compatibility_test(key, observational, experimental, num_draws=1000)
      >>> test.constraint, test.p_value < 0.01
      ('p11 <= mu1', True)
    """
    check_alpha(alpha)
    observational = np.asarray(observational, float)
    experimental = np.asarray(experimental, float)
    shape = ("num_strata", *pb.BINARY.joint_shape)
    check_shape("observational", observational, shape)
    check_shape("experimental", experimental, (len(observational), *shape[1:]))
    covariance = frequency_covariance(observational, experimental, smoothing=1.0)
    slack = pb.compatibility_slack(
        pb.atoms_from_counts(observational + 1, experimental + 1)
    )
    covariance = pb.SLACK_MATRIX @ covariance @ pb.SLACK_MATRIX.T
    error = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    ratio = slack / error
    sample_size = max(observational.sum() + experimental.sum(), 3)

    every = np.ones_like(slack, bool)
    maxima = np.sort(_simulate(key, covariance, error, every, num_draws))
    # The slacks of all strata are the terms of one minimum.
    side = Side(slack.ravel(), error.ravel(), tails=None)
    kept = select_terms(side, Maxima(maxima, np.array(False)), sample_size)
    kept = kept.reshape(slack.shape)
    maxima = np.sort(_simulate(key, covariance, error, kept, num_draws))

    statistic = float(-ratio.min())
    stratum, place = np.unravel_index(np.argmin(ratio), ratio.shape)
    return CompatibilityTest(
        p_value=float((1 + np.sum(maxima >= statistic)) / (1 + num_draws)),
        statistic=statistic,
        stratum=int(stratum),
        constraint=pb.CONSTRAINTS[place],
        slack=slack,
        standard_error=error,
        rejected=-ratio > max(maxima[order_statistic(num_draws, 1 - alpha)], 0),
    )


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
