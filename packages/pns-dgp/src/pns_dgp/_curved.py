"""A structural model that is not a function of a few linear combinations of covariates.

    Z: independent standard normal columns, then fair coins, -1 or 1
    H_j ~ Bernoulli(pi_j), hidden
    f_k(Z) = a_k + sum_m w_km tanh(v_m . Z + c_m)       k = choice, outcome 0, outcome 1

See `IndexModel` for X and Y. Each v_m has two entries and a length from 1, a bend, to 6,
nearly a step. The paper's models are functions of two or three linear combinations of the
covariates; here no such number suffices.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from pns_dgp._model import require
from pns_dgp._thresholds import NUM_INDICES, IndexModel


@dataclasses.dataclass(frozen=True, eq=False)
class CurvedModel(IndexModel):
    """A model of curved indices; see the module's formulas for the symbols."""

    num_binary: int  # how many of the covariates are coins; the last ones
    direction: Float[np.ndarray, "m d"]  # v
    offset: Float[np.ndarray, " m"]  # c
    # w, of the choice and of the outcomes in both arms.
    weight: Float[np.ndarray, "indices m"]
    intercept: Float[np.ndarray, " indices"]  # a

    def __post_init__(self) -> None:
        """Checks the parameters and makes arrays of them."""
        m, d = np.shape(self.direction)
        self._set_arrays(
            direction=(m, d),
            offset=(m,),
            weight=(NUM_INDICES, m),
            intercept=(NUM_INDICES,),
        )
        problem = f"must lie in [0, 0.5), got {self.epsilon}."
        require(0 <= self.epsilon < 0.5, "epsilon", problem)
        require(
            0 <= self.num_binary <= d,
            "num_binary",
            f"must be between 0 and {d}, the number of covariates, got {self.num_binary}.",
        )

    @property
    def num_covariates(self) -> int:
        """How many covariates the learner sees."""
        return self.direction.shape[1]

    def _covariates(
        self, rng: np.random.Generator, n: int
    ) -> Float[np.ndarray, "n num_covariates"]:
        normal = rng.standard_normal((n, self.num_covariates - self.num_binary))
        coins = rng.choice([-1.0, 1.0], (n, self.num_binary))
        return np.concatenate([normal, coins], axis=1)

    def _indices(self, z: Float[np.ndarray, "... d"]) -> Iterable[np.ndarray]:
        curves = np.tanh(z @ self.direction.T + self.offset)
        return np.moveaxis(curves @ self.weight.T + self.intercept, -1, 0)


def random_curved_model(
    seed: int,
    num_covariates: int = 8,
    num_binary: int = 3,
    num_curves: int = 12,
    num_hidden: int = 3,
    hidden_strength: float = 1.5,
) -> CurvedModel:
    """Draws a model of curved indices from a seed.

    The same arguments give the same model anywhere. Every index is a sum of `num_curves`
    curves; `hidden_strength` scales what the hidden binaries do to choice and outcomes.

    Example:
      >>> random_curved_model(seed=0).oracle(np.zeros((1, 8))).pns.round(3).tolist()
      [0.203]
    """
    problem = f"must be 2 or more, got {num_covariates}."
    require(num_covariates >= 2, "num_covariates", problem)
    rng = np.random.default_rng(seed)  # PCG64, stable by promise
    direction = np.zeros((num_curves, num_covariates))
    for row in direction:
        pair = rng.choice(num_covariates, 2, replace=False)
        angle = rng.uniform(0, 2 * np.pi)
        row[pair] = rng.uniform(1, 6) * np.array([np.cos(angle), np.sin(angle)])
    weight = rng.standard_normal((NUM_INDICES, num_curves))
    weight *= 1.5 / np.linalg.norm(weight, axis=1, keepdims=True)
    sign = rng.choice([-1, 1], num_hidden)  # so that confounding does not cancel
    effect = sign * hidden_strength * rng.uniform(0.5, 1.5, (NUM_INDICES, num_hidden))
    return CurvedModel(
        num_binary=num_binary,
        direction=direction,
        offset=rng.uniform(-1, 1, num_curves),
        weight=weight,
        intercept=rng.uniform(-0.5, 0.5, NUM_INDICES),
        hidden_probs=rng.uniform(0.3, 0.7, num_hidden),
        hidden_choice=effect[0],
        hidden_outcome=effect[1:],
    )
