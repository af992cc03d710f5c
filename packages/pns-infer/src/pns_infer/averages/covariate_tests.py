"""Do covariates predict the arm, or the source? Score tests, and density ratios.

Covariates must not predict the arm beyond its probability. Both sources meet in one term,
so one population must be meant: where the covariates of the sources have different laws,
what is learned from one source is reweighted to the target.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Num
from scipy import special, stats

from pns_infer.averages.held_out import (
    BoolPerRow,
    IntPerRow,
    PerRow,
    Source,
    read_assignment,
)
from pns_infer.core.inputs import check_option

_CONTRADICTED = 1e-5  # p-value below which a stated probability cannot be true
_PREDICTED = 0.001  # p-value below which covariates predict the arm
_NUM_STEPS = 50  # of Newton's method, at most
_DIFFERENT = 0.05  # p-value below which the sources' laws are taken to differ
Transform = Callable[[np.ndarray], np.ndarray]  # makes features of a block of rows
_BLOCK = 32_768  # rows whose features are made at a time, at most
_NUMBERS = 2**19  # and how many numbers they hold, about


class ScoreTest(NamedTuple):
    """A chi-squared test."""

    statistic: float  # the quadratic form of the scores
    degrees: int  # of freedom
    p_value: float  # small if covariates predict


def score_test(
    residual: PerRow,
    features: Num[np.ndarray, "n d"],
    weights: PerRow | None = None,
    cluster: IntPerRow | None = None,
    copies: PerRow | None = None,
    transform: Transform | None = None,
) -> ScoreTest:
    """Tests whether residuals of a binary variable have anything to do with features.

    It is the score test of adding the features to a logistic regression whose residuals
    these are, with the empirical covariance of the scores. Rows of one cluster 0, 1,
    ... may depend on each other; copies are the independent units that a row stands
    for. What is tested are features as given, or what `transform` makes of a block of
    them.

    Example:
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
    varies = np.diagonal(covariance) > 0
    if not varies.any():
        return ScoreTest(0.0, 0, 1.0)
    scale = np.sqrt(np.diagonal(covariance)[varies])
    covariance = covariance[np.ix_(varies, varies)] / np.outer(scale, scale)
    total = total[varies] / scale
    degrees = int(np.linalg.matrix_rank(covariance, tol=1e-8, hermitian=True))
    inverse = np.linalg.pinv(covariance, rcond=1e-8, hermitian=True)
    statistic = float(total @ inverse @ total)
    return ScoreTest(statistic, degrees, float(stats.chi2.sf(statistic, degrees)))


def blocks(
    features: Num[np.ndarray, "n d"],
    transform: Transform | None = None,
) -> Iterator[tuple[slice, Float[np.ndarray, "b k"]]]:
    """Yields features in double precision, some rows at a time."""
    size = min(_BLOCK, -(-_NUMBERS // max(features.shape[1], 1)))
    for start in range(0, len(features), size):
        rows = slice(start, min(start + size, len(features)))
        block = np.asarray(features[rows], float)
        yield rows, block if transform is None else transform(block)


class AssignmentWarning(UserWarning):
    """Covariates predict the arm, which random assignment with this probability forbids."""


class AssignmentCheck(NamedTuple):
    """How the arms agree with the probability that is said to have assigned them."""

    probability: PerRow  # of arm 1
    share: float  # weighted share of arm 1 in the data
    expected: float  # weighted mean of the probability
    p_value: float  # of the share, if the probability is true; 1 if it was estimated
    balance: ScoreTest  # whether covariates predict the arm beyond the probability


def check_assignment(
    x: IntPerRow,
    z: Num[np.ndarray, "n d"],
    assignment: Any = None,
    weights: PerRow | None = None,
    cluster: IntPerRow | None = None,
    copies: PerRow | None = None,
) -> AssignmentCheck:
    """Reads the assignment probability of experimental rows and tests it.

    The assignment is the probability of arm 1: a number, one for each row (a stratified
    trial), or None for the arms' shares. Weights, clusters and copies are as for
    `score_test`; whole clusters may be assigned. If covariates predict the arm
    (p < 0.001), it gives an AssignmentWarning.

    Example:
      >>> x, z = np.repeat([0, 1], [40, 60]), np.tile([[0.0], [1.0]], (50, 1))
      >>> check = check_assignment(x, z, assignment=0.5)
      >>> round(check.p_value, 4)  # 60 of 100 lie 2 standard errors from 50
      0.0455
    """
    x = np.asarray(x)
    weights = np.ones(len(x)) if weights is None else np.asarray(weights, float)
    share = float(np.average(x, weights=weights))
    if not 0 < share < 1:
        raise pb.InputError("x", "has one arm only; give units of both arms.")
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
    residual: PerRow, weights: PerRow, cluster: IntPerRow | None, copies: PerRow | None
) -> float:
    """Tests whether weighted residuals add up to 0."""
    scores = weights * residual
    total = abs(scores.sum())
    if copies is not None:
        scores = scores / np.sqrt(copies)
    if cluster is not None:
        scores = np.bincount(cluster, scores)
    return float(2 * stats.norm.sf(total / np.sqrt(np.sum(scores**2))))


class SourceComparison(NamedTuple):
    """Whether the covariates of both sources have one law.

    `chance` is that of each row to be experimental given its covariates, by a model
    that did not see it; None where the laws agree.
    """

    laws: ScoreTest
    chance: PerRow | None

    def log_density_ratio(self, is_experimental: BoolPerRow, weights: PerRow) -> PerRow:
        """Returns the log ratio of experimental over observational densities."""
        if self.chance is None:
            return np.zeros(len(is_experimental))
        share = np.average(is_experimental, weights=weights)
        return special.logit(self.chance) - special.logit(share)


def compare_sources(
    z: Num[np.ndarray, "n d"],
    is_experimental: BoolPerRow,
    fold: IntPerRow,
    weights: PerRow | None = None,
    cluster: IntPerRow | None = None,
    copies: PerRow | None = None,
) -> SourceComparison:
    """Tests whether the covariates of the sources have the same means and squares.

    Only where they differ is a model fitted of who belongs to which source. Weights,
    clusters and copies are as for `score_test`, folds as for `source_probability`.

    Example:
      >>> source, z = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], [60, 40, 40, 60], axis=1)
      >>> found = compare_sources(z[:, None], source == 1, fold=np.arange(200) % 2)
      >>> round(found.laws.statistic, 3)  # Pearson's chi-squared
      8.0
    """
    features = _make_features(z, copies)
    residual = is_experimental - np.average(is_experimental, weights=weights)
    laws = score_test(residual, z, weights, cluster, copies, features)
    chance = None
    if laws.p_value < _DIFFERENT:
        chance = source_probability(z, is_experimental, fold, weights, copies, features)
    return SourceComparison(laws, chance)


def source_probability(
    z: Num[np.ndarray, "n d"],
    is_experimental: BoolPerRow,
    fold: IntPerRow,
    weights: PerRow | None = None,
    copies: PerRow | None = None,
    features: Transform | None = None,
) -> PerRow:
    """Predicts each row's chance to be experimental by a model that did not see it.

    A ridge logistic regression on standardized covariates, cut at their 0.5% and 99.5%
    quantiles, and their squares. Rows of a fold are predicted from the others.
    """
    features = features or _make_features(z, copies)
    weights = np.ones(len(z)) if weights is None else np.asarray(weights, float)
    probability = np.empty(len(z))
    for each in np.unique(fold):
        out = fold == each
        inside = is_experimental[~out]
        if inside.all() or not inside.any():
            problem = f"{each} must have rows of both sources outside it."
            raise pb.InputError("fold", problem)
        # Rows of the fold have no weight, so the covariates are not copied.
        predict = fit_logistic(z, is_experimental, weights * ~out, transform=features)
        probability[out] = predict(z[out])
    return probability


def target_ratio(
    probability: PerRow, is_experimental: BoolPerRow, source: Source
) -> PerRow:
    """Turns the chance to be experimental into ratios of target over own density.

    The probability is that in the two sources together, given covariates.
    """
    check_option("source", source, ("both", "observational", "experimental"))
    own = np.where(is_experimental, probability, 1 - probability)
    chances = {"observational": 1 - probability, "experimental": probability}
    return chances.get(source, 1.0) / own


def fit_logistic(
    features: Num[np.ndarray, "n d"],
    y: BoolPerRow | Num[np.ndarray, " n"],
    weights: PerRow | None = None,
    ridge: float = 1.0,
    transform: Transform | None = None,
) -> Callable[[Float[np.ndarray, "m d"]], Float[np.ndarray, " m"]]:
    """Fits a ridge logistic regression by Newton's method.

    Steps that do not improve the penalized likelihood are halved. Where rows stand for
    several units, y is the share of those with a 1. The intercept has no penalty. What is
    fitted are features, or what `transform` makes of a block of them. Returns the fitted
    probability, a function of features.
    """
    weights = np.ones(len(features)) if weights is None else weights
    width = 1 + next(blocks(features, transform))[1].shape[1]
    penalty = np.full(width, float(ridge))
    penalty[0] = 1e-6  # keeps the intercept finite if only one value occurs

    def loss(beta: Float[np.ndarray, " coefficients"]) -> float:
        total = float(penalty @ beta**2 / 2)
        for rows, block in blocks(features, transform):
            logit = beta[0] + block @ beta[1:]
            total += float(weights[rows] @ (np.logaddexp(0, logit) - y[rows] * logit))
        return total

    beta = np.zeros(width)
    value = loss(beta)
    for _ in range(_NUM_STEPS):
        gradient, curvature = penalty * beta, np.diag(penalty)
        for rows, block in blocks(features, transform):
            design = np.concatenate([np.ones((len(block), 1)), block], axis=1)
            mean = special.expit(design @ beta)
            gradient += design.T @ (weights[rows] * (mean - y[rows]))
            variance = weights[rows] * mean * (1 - mean)
            curvature += (design * variance[:, None]).T @ design
        step = np.linalg.solve(curvature, gradient)
        factor = 1.0
        while loss(beta - factor * step) > value and factor > 1e-6:
            factor /= 2
        beta, before = beta - factor * step, value
        value = loss(beta)
        if before - value <= 1e-9 * (1 + abs(value)):
            break

    def predict(features: Num[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        parts = [beta[0] + block @ beta[1:] for _, block in blocks(features, transform)]
        return special.expit(np.concatenate(parts))

    return predict


def _make_features(z: Num[np.ndarray, "n d"], copies: PerRow | None) -> Transform:
    """Returns a function of rows: standardized columns, and squares of most.

    Columns of two values have no squares. Of the others the least and the greatest half
    percent count as the quantile there: the logit of a single extreme row would otherwise
    decide its weight.
    """
    z = np.asarray(z)
    share = np.full(len(z), 1 / len(z)) if copies is None else copies / copies.sum()
    found = []
    for place in range(z.shape[1]):  # one at a time: no copy of the table
        column = z[:, place].astype(float)
        low, high = column.min(), column.max()
        many = not np.all((column == low) | (column == high))
        if many:
            options = {"weights": copies, "method": "inverted_cdf"}
            low, high = np.quantile(column, [0.005, 0.995], **options)
            column = np.clip(column, low, high)
        center = share @ column
        scale = np.sqrt(share @ (column - center) ** 2)
        middle = share @ ((column - center) / scale) ** 2 if high > low else 0.0
        found.append((low, high, center, scale, middle, many))
    low, high, center, scale, middle, many = np.reshape(found, (-1, 6)).T
    varies = high > low
    squared = (many == 1) & varies

    def features(block: Num[np.ndarray, "b d"]) -> Float[np.ndarray, "b k"]:
        cut = np.clip(block, low, high)[:, varies]
        standard = (cut - center[varies]) / scale[varies]
        squares = standard[:, squared[varies]] ** 2 - middle[squared]
        return np.concatenate([standard, squares], axis=1)

    return features
