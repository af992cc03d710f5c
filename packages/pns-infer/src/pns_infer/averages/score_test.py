"""Do covariates predict a residual? A score test, robust to clusters."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from pns_infer.core.sums import sum_by


class ScoreTest(NamedTuple):
    """A chi-squared test.

    Attributes:
      statistic: the quadratic form of the scores.
      degrees: of freedom.
      p_value: small if covariates predict.
    """

    statistic: float
    degrees: int
    p_value: float


def score_test(
    residual: Float[np.ndarray, " n"],
    features: Float[np.ndarray, "n d"],
    weights: Float[np.ndarray, " n"] | None = None,
    cluster: Int[np.ndarray, " n"] | None = None,
    copies: Float[np.ndarray, " n"] | None = None,
) -> ScoreTest:
    """Tests whether residuals of a binary variable have anything to do with features.

    It is the score test of adding the features to a logistic regression whose residuals
    these are, with the empirical covariance of the scores.

    Args:
      residual: variable minus its probability under the hypothesis.
      features: of the same rows; they are centered here.
      weights: of the rows; 1 if None.
      cluster: 0, 1, ... of each row; rows are independent if None.
      copies: independent units that a row stands for; 1 if None.

    Example:
      >>> import numpy as np
      >>> y, z = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], [60, 40, 40, 60], axis=1)
      >>> test = score_test(y - 0.5, z[:, None].astype(float))
      >>> round(test.statistic, 3)  # Pearson's chi-squared
      8.0
      >>> round(test.p_value, 4)
      0.0047
    """
    weights = np.ones(len(residual)) if weights is None else weights
    centered = features - np.average(features, axis=0, weights=weights)
    scores = (weights * residual)[:, None] * centered
    total = scores.sum(axis=0)
    if copies is not None:  # w independent scores of s / w have the variance s^2 / w
        scores = scores / np.sqrt(copies)[:, None]
    if cluster is not None:
        scores = sum_by(cluster, scores)
    scale = np.sqrt(np.sum(scores**2, axis=0))
    scores = scores[:, scale > 0] / scale[scale > 0]
    total = total[scale > 0] / scale[scale > 0]
    covariance = scores.T @ scores
    degrees = int(np.linalg.matrix_rank(covariance, tol=1e-8, hermitian=True))
    if not degrees:
        return ScoreTest(0.0, 0, 1.0)
    inverse = np.linalg.pinv(covariance, rcond=1e-8, hermitian=True)
    statistic = float(total @ inverse @ total)
    return ScoreTest(statistic, degrees, float(stats.chi2.sf(statistic, degrees)))
