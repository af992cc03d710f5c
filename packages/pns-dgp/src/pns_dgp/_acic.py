"""The high-dimensional structural model of the paper's appendix (app:dgp-high-dim).

    H_j ~ Bernoulli(pi_j), hidden
    P(X=1 | Z, H) = p(Z) + gamma sum_j alpha_j (H_j - pi_j)              eq:treatment-model
    P(Y_x=1 | Z, H) = sigmoid(a_x + beta_x . Z + sum_j c_xj D_j
        + sum_{j<l} d_xjl D_j D_l + sum_j r_xj D_j (v_xj . Z)),  D_j = H_j - pi_j
                                                                         eq:outcome-model
    Y_x = 1{eta <= P(Y_x=1 | Z, H)}, one eta ~ U(0, 1) for both arms

p(Z) is kept within [eps + gamma, 1 - eps - gamma], so the clip of the treatment model
(eq:treatment-model) never binds and P(X=1 | Z) = p(Z) exactly. The paper prints no
coefficients: they are drawn from a seed, and belong to the parameters that a run saves.
"""

import dataclasses
from typing import Any

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Shaped
from scipy import special

from pns_dgp._covariates import AcicCovariates, Covariates, make_covariates
from pns_dgp._model import require
from pns_dgp._thresholds import ThresholdModel

_ARMS = pb.BINARY.num_treatments


@dataclasses.dataclass(frozen=True, eq=False)
class AcicModel(ThresholdModel):
    """A high-dimensional model; see the module's formulas for the symbols."""

    gamma: float  # strength of hidden confounding of the treatment
    epsilon: float  # least distance of P(X=1 | Z, H) from 0 and 1
    alpha: Float[np.ndarray, " k"]  # absolute values summing to at most 1
    propensity_intercept: float  # of the logit from which p(Z) is squeezed
    propensity_slope: Float[np.ndarray, " d"]  # of that logit
    intercept: Float[np.ndarray, " arms"]  # a
    slope: Float[np.ndarray, "arms d"]  # beta
    hidden_effect: Float[np.ndarray, "arms k"]  # c
    hidden_pairs: Float[np.ndarray, "arms k k"]  # d, upper triangle
    modulation: Float[np.ndarray, "arms k"]  # r
    modulator: Float[np.ndarray, "arms k d"]  # v
    # Where Z comes from.
    covariates: Covariates = dataclasses.field(default_factory=AcicCovariates)

    def __post_init__(self) -> None:
        """Checks the parameters and makes arrays of them."""
        k, d = self.num_hidden, self.num_covariates
        self._set_arrays(
            alpha=(k,),
            propensity_slope=(d,),
            intercept=(_ARMS,),
            slope=(_ARMS, d),
            hidden_effect=(_ARMS, k),
            hidden_pairs=(_ARMS, k, k),
            modulation=(_ARMS, k),
            modulator=(_ARMS, k, d),
        )
        total = np.abs(self.alpha).sum()
        problem = f"must have absolute sum at most 1, got {total}."
        require(total <= 1 + 1e-12, "alpha", problem)
        require(self.gamma >= 0, "gamma", f"must not be negative, got {self.gamma}.")
        require(self.epsilon > 0, "epsilon", f"must be positive, got {self.epsilon}.")
        require(
            self.gamma + self.epsilon < 0.5,
            "gamma",
            "+ epsilon must be less than 0.5 to leave room for P(X=1 | z), got "
            f"{self.gamma} + {self.epsilon}.",
        )
        is_upper = np.all(np.tril(self.hidden_pairs) == 0)
        require(is_upper, "hidden_pairs", "must have entries for j < l only.")

    @property
    def num_covariates(self) -> int:
        """How many covariates the learner sees."""
        return len(self.covariates.names)

    def parameters(self) -> dict[str, Any]:
        """Returns every coefficient, ready for JSON."""
        return {**super().parameters(), "covariates": self.covariates.describe()}

    def propensity(self, z: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "..."]:
        """Computes p(z) = P(X=1 | z)."""
        least = self.epsilon + self.gamma
        logit = self.propensity_intercept + z @ self.propensity_slope
        return least + (1 - 2 * least) * special.expit(logit)

    def _covariates(
        self, rng: np.random.Generator, n: int
    ) -> Float[np.ndarray, "n num_covariates"]:
        return self.covariates.draw(rng, n)

    def _probabilities(
        self, z: Float[np.ndarray, "... d"], hidden: Shaped[np.ndarray, "... k"]
    ) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "arms ..."]]:
        centered = hidden - self.hidden_probs
        p_x = self.propensity(z) + self.gamma * (centered @ self.alpha)
        logits = []
        for x in range(_ARMS):
            modulated = self.modulation[x] * (z @ self.modulator[x].T)  # [..., k]
            pairs = np.sum((centered @ self.hidden_pairs[x]) * centered, axis=-1)
            logits.append(
                self.intercept[x]
                + z @ self.slope[x]
                + centered @ self.hidden_effect[x]
                + pairs
                + np.sum(modulated * centered, axis=-1)
            )
        return p_x, special.expit(np.stack(logits))


def acic_model(
    seed: int = 0,
    num_hidden: int = 5,
    gamma: float = 0.06,
    epsilon: float = 0.01,
    overlap: float = 1.0,
    hidden_strength: float = 1.0,
    num_active: int = 30,
    covariates: Any | None = None,
) -> AcicModel:
    """Draws a high-dimensional model from a seed.

    With the defaults P(X=1 | z) runs from 0.07 to 0.93 and P(X=1 | z, h) from 0.01 to
    0.99; one unit in seven or eight has P(X=1 | z) below 0.15 or above 0.85, so that
    overlap is thin by design. The hidden variables that raise the probability of
    treatment also raise that of the outcome, so confounding does not cancel. Its strength
    limits overlap: P(X=1 | z) cannot come closer to 0 or 1 than epsilon + gamma.

    The same arguments give the same model anywhere. A larger `overlap` pulls p(z) toward
    1/2, 0 gives the thinnest. `hidden_strength` scales what the hidden variables do to
    the outcome; `num_active` covariates enter each linear index. Z has the challenge's
    law; or give rows of your own, an array or DataFrame [num_rows, d], to draw from.

    Example:
      >>> rows = np.random.default_rng(0).normal(size=(500, 3))
      >>> model = acic_model(seed=0, num_active=2, covariates=rows)
      >>> model.oracle(np.eye(3)).pns.round(3).tolist()
      [0.182, 0.037, 0.174]
    """
    covariates = make_covariates(covariates)
    d, k = len(covariates.names), num_hidden
    problem = f"must be between 1 and {d}, got {num_active}."
    require(1 <= num_active <= d, "num_active", problem)
    require(overlap >= 0, "overlap", f"must not be negative, got {overlap}.")
    rng = np.random.default_rng(seed)  # PCG64, stable by promise

    def index(norm: float) -> np.ndarray:
        """Draws coefficients of a few covariates, their Euclidean norm given."""
        weights = np.zeros(d)
        chosen = rng.choice(d, num_active, replace=False)
        weights[chosen] = rng.uniform(-1, 1, num_active)
        return norm * weights / np.linalg.norm(weights)

    def bounded(shape: tuple[int, ...], size: float) -> np.ndarray:
        return size * rng.uniform(0.5, 1, shape) * rng.choice([-1, 1], shape)

    alpha = bounded((k,), 1.0)
    return AcicModel(
        hidden_probs=rng.uniform(0.3, 0.7, k),
        gamma=gamma,
        epsilon=epsilon,
        alpha=alpha / max(np.abs(alpha).sum(), 1e-300),
        propensity_intercept=0.0,
        propensity_slope=index(3.0) / (1 + overlap),
        intercept=rng.uniform(-0.5, 0.5, _ARMS),
        slope=np.stack([index(1.2) for _ in range(_ARMS)]),
        hidden_effect=hidden_strength
        * np.sign(alpha)
        * np.abs(bounded((_ARMS, k), 3.0)),
        hidden_pairs=hidden_strength * np.triu(bounded((_ARMS, k, k), 0.6), 1),
        modulation=hidden_strength * bounded((_ARMS, k), 0.4),
        modulator=np.reshape([index(1.0) for _ in range(_ARMS * k)], (_ARMS, k, d)),
        covariates=covariates,
    )
