"""The probability of an arm: given or estimated, and checked against the data."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int, Num
from scipy import stats

from pns_infer.averages.held_out import TooFewUnitsError, read_assignment
from pns_infer.averages.score_test import ScoreTest, score_test

_CONTRADICTED = 1e-5  # p-value below which a stated probability cannot be true
_PREDICTED = 0.001  # p-value below which covariates predict the arm


class AssignmentWarning(UserWarning):
    """Covariates predict the arm, which random assignment with this probability forbids."""


class AssignmentCheck(NamedTuple):
    """How the arms agree with the probability that is said to have assigned them.

    Attributes:
      probability: of arm 1, for each row.
      share: weighted share of arm 1 in the data.
      expected: weighted mean of the probability.
      p_value: of the share, if the probability is true; 1 if it was estimated.
      balance: whether covariates predict the arm beyond the probability.
    """

    probability: Float[np.ndarray, " n"]
    share: float
    expected: float
    p_value: float
    balance: ScoreTest


def check_assignment(
    x: Int[np.ndarray, " n"],
    z: Num[np.ndarray, "n d"],
    assignment: Any = None,
    weights: Float[np.ndarray, " n"] | None = None,
    cluster: Int[np.ndarray, " n"] | None = None,
    copies: Float[np.ndarray, " n"] | None = None,
) -> AssignmentCheck:
    """Reads the assignment probability of experimental rows and tests it.

    The assignment is the probability of arm 1: a number, one for each row (a stratified
    trial), or None for the arms' shares. Weights, clusters and copies are as for
    `score_test`; whole clusters may be assigned.

    Warns:
      AssignmentWarning: if covariates predict the arm (p < 0.001).

    Example:
      >>> import numpy as np
      >>> x, z = np.repeat([0, 1], [40, 60]), np.tile([[0.0], [1.0]], (50, 1))
      >>> check = check_assignment(x, z, assignment=0.5)
      >>> round(check.p_value, 4)  # 60 of 100 lie 2 standard errors from 50
      0.0455
    """
    x = np.asarray(x)
    weights = np.ones(len(x)) if weights is None else np.asarray(weights, float)
    share = float(np.average(x, weights=weights))
    if not 0 < share < 1:
        raise TooFewUnitsError("x", "has one arm only; give units of both arms.")
    assigned = share if assignment is None else assignment
    probability = read_assignment(assigned, np.ones(len(x), bool))
    expected = float(np.average(probability, weights=weights))
    p_value = 1.0
    if assignment is not None:
        p_value = _test_share(x - probability, weights, cluster, copies)
    if p_value < _CONTRADICTED:
        raise pb.InputError(
            "assignment",
            f"contradicts the data: arm 1 holds {share:.1%} of the experiment and "
            f"{expected:.1%} was expected (p = {p_value:.1g}); give the probability of "
            "the treated arm, or leave it out to use the arms' shares.",
        )
    balance = score_test(x - probability, z, weights, cluster, copies)
    if balance.p_value < _PREDICTED:
        warnings.warn(
            "covariates predict the arm of the experiment (chi-squared "
            f"{balance.statistic:.1f} with {balance.degrees} degrees of freedom, p = "
            f"{balance.p_value:.1g}); if assignment was stratified, give its probability "
            "as a column.",
            AssignmentWarning,
            stacklevel=2,
        )
    return AssignmentCheck(probability, share, expected, p_value, balance)


def _test_share(
    residual: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    cluster: Int[np.ndarray, " n"] | None,
    copies: Float[np.ndarray, " n"] | None,
) -> float:
    """Tests whether weighted residuals add up to 0."""
    scores = weights * residual
    total = abs(scores.sum())
    if copies is not None:
        scores = scores / np.sqrt(copies)
    if cluster is not None:
        scores = np.bincount(cluster, scores)
    return float(2 * stats.norm.sf(total / np.sqrt(np.sum(scores**2))))
