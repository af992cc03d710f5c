"""Models of two probabilities: of the choice, and of the outcome in each arm.

Given covariates and hidden binaries, each unit chooses by its own coin flip. It responds
in an arm if one uniform number, the same for both arms, is below the arm's probability.
"""

import abc
import dataclasses
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int, Key, Num, Shaped
from pns_bounds import InputError
from scipy import special

from pns_dgp._model import (
    Array,
    PotentialOutcomes,
    Sample,
    Source,
    Truth,
    check_count,
    checked_rows,
    enumerate_binary,
    require,
    source_key,
    truth_by_chunks,
)

BLOCK_ROWS = 8192
NUM_INDICES = 1 + pb.BINARY.num_treatments  # of the choice and of each arm's outcome


@dataclasses.dataclass(frozen=True, eq=False)
class ThresholdModel(abc.ABC):
    """The sampler and the exact truth that all such models share."""

    hidden_probs: Float[np.ndarray, " k"]  # P(H_j = 1) of the hidden binaries

    @property
    @abc.abstractmethod
    def num_covariates(self) -> int:
        """How many covariates the learner sees."""

    @property
    def num_hidden(self) -> int:
        """How many binaries are hidden."""
        return len(self.hidden_probs)

    @abc.abstractmethod
    def _covariates(
        self, rng: np.random.Generator, n: int
    ) -> Float[np.ndarray, "n num_covariates"]:
        """Draws n rows of covariates."""

    @abc.abstractmethod
    def _probabilities(
        self, z: Float[np.ndarray, "... d"], hidden: Shaped[np.ndarray, "... k"]
    ) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "arms ..."]]:
        """Computes P(X=1 | z, h) [...] and P(Y_x=1 | z, h) [2, ...]; z and h broadcast."""

    def sample_population(self, key: Key[jax.Array, ""], n: int) -> PotentialOutcomes:
        """Draws units with both potential outcomes."""
        z, (x, _), (y0, y1) = self._draw(key, n)
        return PotentialOutcomes(z=z, x=x, y0=y0, y1=y1)

    def sample(self, key: Key[jax.Array, ""], n: int, source: Source) -> Sample:
        """Draws a table of n rows; not for `vmap`, because NumPy draws the rows."""
        z, (chosen, coin), (y0, y1) = self._draw(source_key(key, source), n)
        x = chosen if source == "observational" else coin
        return Sample(z=z, x=x, y=np.where(x == 1, y1, y0))

    def oracle(self, z: Num[Array, "n num_covariates"]) -> Truth:
        """Computes the truth at z [n, d] by summation over the 2^k hidden values."""
        z = checked_rows(z, self.num_covariates)
        return truth_by_chunks(self._cells, z, self.num_hidden)

    def parameters(self) -> dict[str, Any]:
        """Returns every coefficient, ready for JSON."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }

    def _set_arrays(self, **shapes: tuple[int, ...]) -> None:
        """Makes float64 arrays of these fields; raises unless they have the shapes."""
        for name, shape in {"hidden_probs": (self.num_hidden,), **shapes}.items():
            # A model without hidden variables has empty arrays, which JSON keeps as [].
            value = np.asarray(getattr(self, name), np.float64)
            value = value.reshape(shape) if value.size == 0 else value
            require(
                value.shape == shape and np.all(np.isfinite(value)),
                name,
                f"must be finite numbers of shape {list(shape)}, got shape "
                f"{list(value.shape)}.",
            )
            object.__setattr__(self, name, value)
        inside = (self.hidden_probs > 0) & (self.hidden_probs < 1)
        require(np.all(inside), "hidden_probs", "must lie inside (0, 1).")

    def _draw(
        self, key: Key[jax.Array, ""], n: int
    ) -> tuple[
        Float[np.ndarray, "n num_covariates"],
        Int[np.ndarray, "2 n"],
        Int[np.ndarray, "arms n"],
    ]:
        """Draws z, (own choice, fair coin) and (y0, y1), in blocks on all cores.

        Each block draws all its rows from a stream of its own, made of the key and its
        number: rows do not depend on n, nor on the number of cores.
        """
        check_count(n)
        words = _key_words(key)
        z = np.empty((n, self.num_covariates), np.float32)
        columns = np.empty((4, n), np.int32)

        def fill(block: int) -> None:
            seed = np.random.SeedSequence(words, spawn_key=(block,))
            rng = np.random.Generator(np.random.Philox(seed))
            # Rounded first: the probabilities are those of the covariates as returned.
            rows = self._covariates(rng, BLOCK_ROWS).astype(np.float32)
            hidden = rng.random((BLOCK_ROWS, self.num_hidden)) < self.hidden_probs
            p_x, p_y = self._probabilities(rows.astype(np.float64), hidden)
            choice, coin, threshold = rng.random((3, BLOCK_ROWS))
            drawn = np.stack([choice < p_x, coin < 0.5, *(threshold <= p_y)])
            part = slice(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS)
            size = len(z[part])
            z[part], columns[:, part] = rows[:size], drawn[:, :size]

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(fill, range(-(-n // BLOCK_ROWS))))
        return z, columns[:2], columns[2:]

    def _cells(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n x y0 y1"]:
        """Sums P(hidden) by response type: [n, x, y0, y1]."""
        hidden, weights = enumerate_binary(self.hidden_probs)
        p_x, p_y = self._probabilities(z[:, None, :], hidden)  # [n, 2^k], [2, n, 2^k]
        p_x = np.stack([1 - p_x, p_x])
        # One threshold for both arms: a unit that responds in the weaker arm does in both.
        both = np.minimum(p_y[0], p_y[1])
        types = np.stack([1 - np.maximum(*p_y), p_y[1] - both, p_y[0] - both, both])
        cells = np.einsum("xnh,tnh,h->nxt", p_x, types, weights)
        return cells.reshape(-1, *pb.BINARY.response_shape)  # t = (y0, y1) in order


@dataclasses.dataclass(frozen=True, eq=False)
class IndexModel(ThresholdModel):
    """Models of an index f of the choice, and one of the outcome in each arm.

    P(X=1 | Z, H) = eps + (1 - 2 eps) sigmoid(f_choice(Z) + alpha . D), D_j = H_j - pi_j,
    and P(Y_x=1 | Z, H) = sigmoid(f_x(Z) + beta_x . D), where pi are the `hidden_probs`.
    """

    hidden_choice: Float[np.ndarray, " k"]  # alpha
    hidden_outcome: Float[np.ndarray, "arms k"]  # beta
    _: dataclasses.KW_ONLY
    epsilon: float = 0.02  # least distance of P(X=1 | Z, H) from 0 and 1

    def _set_arrays(self, **shapes: tuple[int, ...]) -> None:
        size = self.num_hidden
        hidden = {"hidden_choice": (size,), "hidden_outcome": (NUM_INDICES - 1, size)}
        super()._set_arrays(**hidden, **shapes)

    @abc.abstractmethod
    def _indices(self, z: Float[np.ndarray, "... d"]) -> Iterable[np.ndarray]:
        """Computes f [...] of the choice, then of the outcome in each arm."""

    def _probabilities(
        self, z: Float[np.ndarray, "... d"], hidden: Shaped[np.ndarray, "... k"]
    ) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "arms ..."]]:
        choice, *outcomes = self._indices(z)
        centered = hidden - self.hidden_probs
        chance = special.expit(choice + centered @ self.hidden_choice)
        effects = zip(outcomes, self.hidden_outcome, strict=True)
        logits = [outcome + centered @ effect for outcome, effect in effects]
        p_x = self.epsilon + (1 - 2 * self.epsilon) * chance
        return p_x, special.expit(np.stack(logits))


def _key_words(key: Key[jax.Array, ""]) -> list[int]:
    """Returns the numbers that a typed key is made of."""
    if isinstance(key, jax.core.Tracer):
        raise InputError(
            "key",
            "must be a concrete key: loop over keys instead of using vmap or jit.",
        )
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.shape != ():
        raise InputError("key", "must be one typed key, from jax.random.key.")
    return np.asarray(jax.random.key_data(key)).ravel().tolist()
