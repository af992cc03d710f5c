"""From which source is a unit with these covariates? Tests, and density ratios.

Both sources meet in one term, so one population must be meant. Where the covariates of the
sources have different laws, what is learned from one source is reweighted to the target.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from pns_infer.averages.linear_means import Source
from pns_infer.averages.score_test import ScoreTest, score_test
from pns_infer.core.inputs import check_option


class RatioSummary(NamedTuple):
    """How far reweighting thins a source out.

    Attributes:
      ratio: density ratios of all rows.
      effective_observational: effective sample size of observational rows.
      effective_experimental: of experimental rows.
    """

    ratio: Float[np.ndarray, " n"]
    effective_observational: float
    effective_experimental: float


def compare_sources(
    z: Float[np.ndarray, "n d"],
    is_experimental: Bool[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"] | None = None,
    cluster: Int[np.ndarray, " n"] | None = None,
    copies: Float[np.ndarray, " n"] | None = None,
) -> ScoreTest:
    """Tests whether the covariates of the sources have the same means and squares.

    Args:
      z: covariates of all rows.
      is_experimental: which source.
      weights: of the rows; 1 if None.
      cluster: as for `score_test`.
      copies: as for `score_test`.

    Example:
      >>> import numpy as np
      >>> source, z = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], [60, 40, 40, 60], axis=1)
      >>> test = compare_sources(z[:, None], is_experimental=source == 1)
      >>> round(test.statistic, 3), test.degrees  # Pearson's chi-squared
      (8.0, 1)
      >>> round(test.p_value, 4)
      0.0047
    """
    residual = is_experimental - np.average(is_experimental, weights=weights)
    return score_test(residual, _features(z, copies), weights, cluster, copies)


def source_probability(
    z: Float[np.ndarray, "n d"],
    is_experimental: Bool[np.ndarray, " n"],
    fold: Int[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"] | None = None,
    ridge: float = 1.0,
    copies: Float[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, " n"]:
    """Predicts each row's chance to be experimental by a model that did not see it.

    A ridge logistic regression on standardized covariates, cut at their 0.5% and 99.5%
    quantiles, and their squares.

    Args:
      z: covariates of all rows.
      is_experimental: which source.
      fold: rows of a fold are predicted from the others.
      weights: of the rows; 1 if None.
      ridge: penalty on squared coefficients; the intercept has none.
      copies: units that a row stands for; 1 if None.

    Example:
      >>> import numpy as np
      >>> z = np.repeat([0, 1], 1200)[:, None]
      >>> is_experimental = np.arange(2400) % 1200 < np.repeat([300, 900], 1200)
      >>> found = source_probability(z, is_experimental, fold=np.arange(2400) % 3)
      >>> found[[0, 1200]].round(2).tolist()
      [0.25, 0.75]
    """
    features = _features(z, copies)
    weights = np.ones(len(z)) if weights is None else np.asarray(weights, float)
    probability = np.empty(len(z))
    for each in np.unique(fold):
        out = fold == each
        inside = is_experimental[~out]
        if inside.all() or not inside.any():
            raise ValueError("every fold needs rows of both sources outside it.")
        beta = fit_logistic(features[~out], inside, weights[~out], ridge)
        probability[out] = predict_logistic(features[out], beta)
    return probability


def target_ratio(
    probability: Float[np.ndarray, " n"],
    is_experimental: Bool[np.ndarray, " n"],
    source: Source,
    copies: Float[np.ndarray, " n"] | None = None,
) -> RatioSummary:
    """Turns the chance to be experimental into ratios of target over own density.

    Args:
      probability: of being experimental given covariates, as in the two tables together.
      is_experimental: which source.
      source: whose covariates the target has.
      copies: units that a row stands for; 1 if None.

    Example:
      >>> import numpy as np
      >>> probability, is_experimental = np.array([0.75, 0.25] * 2), np.arange(4) > 1
      >>> target_ratio(probability, is_experimental, "both").ratio.round(3).tolist()
      [4.0, 1.333, 1.333, 4.0]
      >>> found = target_ratio(probability, is_experimental, "observational")
      >>> found.ratio.round(3).tolist()  # (1 - p) / p for experimental rows
      [1.0, 1.0, 0.333, 3.0]
      >>> round(found.effective_experimental, 3)  # (1/3 + 3)^2 / (1/9 + 9)
      1.22
    """
    check_option("source", source, ("both", "observational", "experimental"))
    own = np.where(is_experimental, probability, 1 - probability)
    target = {
        "both": np.ones_like(probability),
        "observational": 1 - probability,
        "experimental": probability,
    }[source]
    ratio = target / own
    copies = np.ones(len(ratio)) if copies is None else copies
    sizes = [
        float(copies[part] @ ratio[part]) ** 2 / float(copies[part] @ ratio[part] ** 2)
        if part.any()
        else 0.0
        for part in (~is_experimental, is_experimental)
    ]
    return RatioSummary(ratio, *sizes)


def fit_logistic(
    features: Float[np.ndarray, "n d"],
    y: Bool[np.ndarray, " n"] | Num[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"] | None = None,
    ridge: float = 1.0,
    num_steps: int = 50,
) -> Float[np.ndarray, " d+1"]:
    """Fits a ridge logistic regression by Newton's method; the intercept comes first.

    Steps that do not improve the penalized likelihood are halved. Where rows stand for
    several units, y is the share of those with a 1.

    Example:
      >>> import numpy as np
      >>> y = np.array([0, 0, 1, 0, 1, 1, 1, 1])
      >>> beta = fit_logistic(np.zeros((8, 1)), y, ridge=0.0001)
      >>> round(float(1 / (1 + np.exp(-beta[0]))), 3)
      0.625
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
    for _ in range(num_steps):
        mean = _sigmoid(design @ beta)
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
    return beta


def predict_logistic(
    features: Float[np.ndarray, "n d"], beta: Float[np.ndarray, " d+1"]
) -> Float[np.ndarray, " n"]:
    """Returns the probabilities of a logistic regression.

    Example:
      >>> import numpy as np
      >>> predict_logistic(np.array([[0.0], [2.0]]), np.array([0.0, 1.0])).round(3).tolist()
      [0.5, 0.881]
    """
    return _sigmoid(beta[0] + features @ beta[1:])


def _sigmoid(logit: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return 0.5 * (1 + np.tanh(logit / 2))


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
