"""Do covariates predict a residual? A score test, robust to clusters."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num
from scipy import stats

_BLOCK = 32_768  # rows whose features are made at a time, at most
_NUMBERS = 2**19  # and how many numbers they hold, about


class ScoreTest(NamedTuple):
    """A chi-squared test."""

    statistic: float  # the quadratic form of the scores
    degrees: int  # of freedom
    p_value: float  # small if covariates predict


def score_test(
    residual: Float[np.ndarray, " n"],
    features: Num[np.ndarray, "n d"],
    weights: Float[np.ndarray, " n"] | None = None,
    cluster: Int[np.ndarray, " n"] | None = None,
    copies: Float[np.ndarray, " n"] | None = None,
    transform: Callable[[np.ndarray], np.ndarray] | None = None,
) -> ScoreTest:
    """Tests whether residuals of a binary variable have anything to do with features.

    It is the score test of adding the features to a logistic regression whose residuals
    these are, with the empirical covariance of the scores. Rows of one cluster 0, 1,
    ... may depend on each other; copies are the independent units that a row stands
    for. What is tested are features as given, or what `transform` makes of a block of
    them.

    Example:
      >>> import numpy as np
      >>> y, z = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], [60, 40, 40, 60], axis=1)
      >>> test = score_test(y - 0.5, z[:, None].astype(float))
      >>> round(test.statistic, 3)  # Pearson's chi-squared
      8.0
    """
    weights = np.ones(len(residual)) if weights is None else weights
    mean = sum(weights[rows] @ block for rows, block in blocks(features, transform))
    mean = mean / weights.sum()
    by_cluster = None
    if cluster is not None:
        by_cluster = np.zeros((int(cluster.max()) + 1, len(mean)))
    total, covariance = np.zeros(len(mean)), np.zeros((len(mean), len(mean)))
    for rows, block in blocks(features, transform):
        scores = (weights * residual)[rows, None] * (block - mean)
        total += scores.sum(axis=0)
        # The variance of w independent scores of s / w is s^2 / w.
        if copies is not None:
            scores /= np.sqrt(copies[rows])[:, None]
        if cluster is None or by_cluster is None:
            covariance += scores.T @ scores
        else:
            np.add.at(by_cluster, cluster[rows], scores)
    if by_cluster is not None:
        covariance = by_cluster.T @ by_cluster
    scale = np.sqrt(np.diagonal(covariance))
    varies = scale > 0
    covariance = covariance[np.ix_(varies, varies)] / np.outer(
        scale[varies], scale[varies]
    )
    total = total[varies] / scale[varies]
    degrees = 0
    if varies.any():
        degrees = int(np.linalg.matrix_rank(covariance, tol=1e-8, hermitian=True))
    if not degrees:
        return ScoreTest(0.0, 0, 1.0)
    inverse = np.linalg.pinv(covariance, rcond=1e-8, hermitian=True)
    statistic = float(total @ inverse @ total)
    return ScoreTest(statistic, degrees, float(stats.chi2.sf(statistic, degrees)))


def blocks(
    features: Num[np.ndarray, "n d"],
    transform: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Iterator[tuple[slice, Float[np.ndarray, "b k"]]]:
    """Yields features in double precision, some rows at a time."""
    size = min(_BLOCK, -(-_NUMBERS // max(features.shape[1], 1)))
    for start in range(0, len(features), size):
        rows = slice(start, min(start + size, len(features)))
        block = np.asarray(features[rows], float)
        yield rows, block if transform is None else transform(block)
