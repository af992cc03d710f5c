"""From which source is a unit with these covariates? Tests, and density ratios.

Both sources meet in one term, so one population must be meant. Where the covariates of the
sources have different laws, what is learned from one source is reweighted to the target.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from scipy import special

from pns_infer.averages.held_out import TooFewUnitsError
from pns_infer.averages.linear_means import Source
from pns_infer.averages.score_test import ScoreTest, score_test
from pns_infer.core.inputs import check_option

_NUM_STEPS = 50  # of Newton's method, at most


def compare_sources(
    z: Float[np.ndarray, "n d"],
    is_experimental: Bool[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"] | None = None,
    cluster: Int[np.ndarray, " n"] | None = None,
    copies: Float[np.ndarray, " n"] | None = None,
) -> ScoreTest:
    """Tests whether the covariates of the sources have the same means and squares.

    Weights, clusters and copies are as for `score_test`.
    """
    residual = is_experimental - np.average(is_experimental, weights=weights)
    return score_test(residual, _features(z, copies), weights, cluster, copies)


def source_probability(
    z: Float[np.ndarray, "n d"],
    is_experimental: Bool[np.ndarray, " n"],
    fold: Int[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"] | None = None,
    copies: Float[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, " n"]:
    """Predicts each row's chance to be experimental by a model that did not see it.

    A ridge logistic regression on standardized covariates, cut at their 0.5% and 99.5%
    quantiles, and their squares. Rows of a fold are predicted from the others; copies are
    the units that a row stands for.
    """
    features = _features(z, copies)
    weights = np.ones(len(z)) if weights is None else np.asarray(weights, float)
    probability = np.empty(len(z))
    for each in np.unique(fold):
        out = fold == each
        inside = is_experimental[~out]
        if inside.all() or not inside.any():
            raise TooFewUnitsError(
                "fold", f"{each} must have rows of both sources outside it."
            )
        predict = fit_logistic(features[~out], inside, weights[~out])
        probability[out] = predict(features[out])
    return probability


def target_ratio(
    probability: Float[np.ndarray, " n"],
    is_experimental: Bool[np.ndarray, " n"],
    source: Source,
) -> Float[np.ndarray, " n"]:
    """Turns the chance to be experimental into ratios of target over own density.

    Args:
      probability: of being experimental given covariates, as in the two tables together.
      is_experimental: which source.
      source: whose covariates the target has.

    Example:
      >>> import numpy as np
      >>> probability, is_experimental = np.array([0.75, 0.25] * 2), np.arange(4) > 1
      >>> target_ratio(probability, is_experimental, "both").round(3).tolist()
      [4.0, 1.333, 1.333, 4.0]
    """
    check_option("source", source, ("both", "observational", "experimental"))
    own = np.where(is_experimental, probability, 1 - probability)
    target = {
        "both": 1.0,
        "observational": 1 - probability,
        "experimental": probability,
    }
    return target[source] / own


def fit_logistic(
    features: Float[np.ndarray, "n d"],
    y: Bool[np.ndarray, " n"] | Num[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"] | None = None,
    ridge: float = 1.0,
) -> Callable[[Float[np.ndarray, "m d"]], Float[np.ndarray, " m"]]:
    """Fits a ridge logistic regression by Newton's method.

    Steps that do not improve the penalized likelihood are halved. Where rows stand for
    several units, y is the share of those with a 1. The intercept has no penalty.

    Returns:
      The fitted probability, a function of features.

    Example:
      >>> import numpy as np
      >>> z = np.repeat([[0.0], [1.0]], 10, axis=0)
      >>> predict = fit_logistic(z, np.arange(20) % 10 < 5 + 2 * z[:, 0], ridge=1e-4)
      >>> predict(z[[0, 10]]).round(3).tolist()
      [0.5, 0.7]
    """
    design = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    weights = np.ones(len(design)) if weights is None else weights
    penalty = np.full(design.shape[1], float(ridge))
    penalty[0] = 1e-6  # keeps the intercept finite if only one value occurs

    def loss(beta: Float[np.ndarray, " d+1"]) -> float:
        logit = design @ beta
        fitted = np.logaddexp(0, logit) - y * logit
        return float(weights @ fitted + penalty @ beta**2 / 2)

    beta = np.zeros(design.shape[1])
    value = loss(beta)
    for _ in range(_NUM_STEPS):
        mean = special.expit(design @ beta)
        gradient = design.T @ (weights * (mean - y)) + penalty * beta
        curvature = (design * (weights * mean * (1 - mean))[:, None]).T @ design
        step = np.linalg.solve(curvature + np.diag(penalty), gradient)
        factor = 1.0
        while loss(beta - factor * step) > value and factor > 1e-6:
            factor /= 2
        beta, before = beta - factor * step, value
        value = loss(beta)
        if before - value <= 1e-9 * (1 + abs(value)):
            break
    return lambda features: special.expit(beta[0] + features @ beta[1:])


def _features(
    z: Float[np.ndarray, "n d"], copies: Float[np.ndarray, " n"] | None
) -> Float[np.ndarray, "n k"]:
    """Standardizes columns, and adds squares of those with more than two values.

    Of the latter the least and the greatest half percent count as the quantile there: the
    logit of a single extreme row would otherwise decide its weight.
    """
    z = np.asarray(z, float)
    many = ~np.all((z == z.min(axis=0)) | (z == z.max(axis=0)), axis=0)
    if many.any():
        low, high = np.quantile(
            z[:, many], [0.005, 0.995], axis=0, weights=copies, method="inverted_cdf"
        )
        z = z.copy()
        z[:, many] = np.clip(z[:, many], low, high)
    share = np.full(len(z), 1 / len(z)) if copies is None else copies / copies.sum()
    centered = z - share @ z
    scale = np.sqrt(share @ centered**2)
    varies = z.max(axis=0) > z.min(axis=0)
    standard = centered[:, varies] / scale[varies]
    squares = standard[:, many[varies]] ** 2
    squares -= share @ squares
    return np.concatenate([standard, squares], axis=1)
