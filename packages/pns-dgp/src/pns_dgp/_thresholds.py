"""Models of two probabilities: of the choice, and of the outcome in each arm.

Given covariates and hidden binaries, a unit chooses by a coin of its own, and responds in
an arm if one uniform number, the same for both arms, is below the arm's probability.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, Key

from pns_dgp._model import check_count, enumerate_binary
from pns_dgp._rng import map_blocks

Probabilities = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Maps z [..., d] and hidden values [..., k], which broadcast, to P(X=1 | z, h) [...] and
P(Y_x=1 | z, h) [2, ...]."""


def draw_units(
    key: Key[jax.Array, ""],
    n: int,
    num_covariates: int,
    hidden_probs: Float[np.ndarray, " k"],
    covariates: Callable[[np.random.Generator, int], Float[np.ndarray, "rows d"]],
    probabilities: Probabilities,
) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, "2 n"], Int[np.ndarray, "2 n"]]:
    """Draws z, (own choice, fair coin) and (y0, y1); the first rows do not depend on n.

    Args:
      key: decides everything.
      n: how many units.
      num_covariates: d.
      hidden_probs: of the hidden binaries.
      covariates: draws rows of z.
      probabilities: of choice and outcomes.
    """
    check_count(n)
    z = np.empty((n, num_covariates), np.float32)
    columns = np.empty((4, n), np.int32)

    def one_block(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        # Rounded first: the probabilities are those of the covariates as returned.
        block = covariates(rng, rows).astype(np.float32)
        hidden = rng.random((rows, len(hidden_probs))) < hidden_probs
        p_x, p_y = probabilities(block.astype(np.float64), hidden)
        choice, coin, threshold = rng.random((3, rows))
        outcomes = threshold <= p_y
        return block, np.stack([choice < p_x, coin < 0.5, *outcomes])

    for where, (block, draws) in map_blocks(one_block, key, n):
        size = where.stop - where.start
        z[where], columns[:, where] = block[:size], draws[:, :size]
    return z, columns[:2], columns[2:]


def response_cells(
    z: Float[np.ndarray, "n d"],
    hidden_probs: Float[np.ndarray, " k"],
    probabilities: Probabilities,
) -> Float[np.ndarray, "n 2 2 2"]:
    """Sums P(hidden) by response type: [n, x, y0, y1]."""
    hidden, weights = enumerate_binary(hidden_probs)
    p_x, p_y = probabilities(z[:, None, :], hidden)  # [n, 2^k], [2, n, 2^k]
    p_x = np.stack([1 - p_x, p_x])
    # One threshold for both arms: a unit that responds in the weaker arm does in both.
    both = np.minimum(p_y[0], p_y[1])
    types = np.stack([1 - np.maximum(*p_y), p_y[1] - both, p_y[0] - both, both])
    cells = np.einsum("xnh,tnh,h->nxt", p_x, types, weights)
    return cells.reshape(-1, 2, 2, 2)  # t = (y0, y1) in order


def set_arrays(model: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    """Makes float64 arrays of a model's fields; raises unless they fit.

    Args:
      model: a frozen dataclass with `hidden_probs`.
      shapes: what each field must have.
    """
    for name, shape in shapes.items():
        # A model without hidden variables has empty arrays, in JSON mere [].
        value = np.asarray(getattr(model, name), np.float64)
        value = value.reshape(shape) if value.size == 0 else value
        if value.shape != shape or not np.all(np.isfinite(value)):
            raise ValueError(
                f"{name} must be finite numbers of shape {list(shape)}, got shape "
                f"{list(value.shape)}."
            )
        object.__setattr__(model, name, value)
    if not np.all((model.hidden_probs > 0) & (model.hidden_probs < 1)):
        raise ValueError("hidden_probs must lie inside (0, 1).")


def plain_values(model: Any) -> dict[str, Any]:
    """Returns the fields of a model, arrays as lists."""
    values = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }
