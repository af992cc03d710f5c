"""Which rows each training step sees, and with which weights.

Epochs are permutations one after the other, cut into batches: every row is visited once
in each, and a batch may end one epoch and begin the next. Which rows are in a batch is a
function of the key and the step alone.

With data noise, exponential weights of units depend on the index. Giving every unit an
independent Exp(1) weight is a bootstrap. Here the weight is a function of the network's
index, so that the network learns what each reweighting does: unit i has the weight
Q(Phi(c_i . index)), Q the quantile function of Exp(1) and c_i a fixed direction. A count of
n units gets the sum of n such weights, which is Gamma(n, 1); so Q is that of Gamma(n, 1),
and merged data need one direction per count.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy import special

from pns_models._data import distinct_rows
from pns_models._network import Network

_ROUND_UP = 256  # to this multiple, so that merged batches need few programs
_SCORES = np.linspace(-6, 6, 193)  # linear interpolation is right to about 1e-3


class Batch(NamedTuple):
    """Rows of one step, or of several stacked."""

    rows: Int[Any, "*steps b"]  # indices of training rows
    # The weights that take the place of the rows' own, or None.
    weights: Float[Any, "*steps b counts"] | None = None


class Batches:
    """Makes the batches of any steps.

    Where units share covariates, the rows of a batch are merged if that at least halves
    them, rounded up to a multiple of 256. Losses and gradients are sums over units, so
    they stay what they were.
    """

    def __init__(
        self,
        key: PRNGKeyArray,
        z: Float[np.ndarray, "n d"],
        weights: Float[np.ndarray, "n counts"],
        batch_size: int,
        may_merge: bool,
    ):
        """Looks at the rows once; they may merge unless each has noise of its own."""
        self._key, self._weights, self._batch_size = key, weights, batch_size
        self._num_rows = len(z)
        self._epoch_rows = functools.lru_cache(2)(self._shuffle)
        self._groups = None
        if may_merge:
            some, _ = distinct_rows(z[self._stream(0, 1)[0]])
            if 2 * _rounded_up(len(some)) <= batch_size:
                self._first, self._groups = distinct_rows(z)

    def __call__(self, step: int, size: int) -> Batch:
        """Returns the batches of `size` steps, stacked."""
        rows = self._stream(step, size)
        return Batch(rows) if self._groups is None else self._merged(rows)

    def _shuffle(self, epoch: int) -> Int[np.ndarray, " n"]:
        rng = numpy_rng(jax.random.fold_in(self._key, epoch))
        return rng.permutation(self._num_rows).astype(np.int32)

    def _stream(self, step: int, size: int) -> Int[np.ndarray, "{size} b"]:
        """Returns rows of the permutations."""
        first, last = step * self._batch_size, (step + size) * self._batch_size
        epochs = range(first // self._num_rows, -(-last // self._num_rows))
        stream = np.concatenate([self._epoch_rows(epoch) for epoch in epochs])
        start = first - epochs[0] * self._num_rows
        return stream[start : start + last - first].reshape(size, self._batch_size)

    def _merged(self, rows: Int[np.ndarray, "steps b"]) -> Batch:
        assert self._groups is not None
        merged = [np.unique(self._groups[r], return_inverse=True) for r in rows]
        most = max(len(groups) for groups, _ in merged)
        size = _rounded_up(most)
        # What a batch does not fill stays row 0 with no weight.
        batch = Batch(
            np.zeros((len(rows), size), np.int32),
            np.zeros((len(rows), size, self._weights.shape[1]), np.float32),
        )
        assert batch.weights is not None
        for i, (groups, position) in enumerate(merged):
            batch.rows[i, : len(groups)] = self._first[groups]
            np.add.at(batch.weights[i], position, self._weights[rows[i]])
        return batch


def _rounded_up(count: int) -> int:
    return -(-count // _ROUND_UP) * _ROUND_UP


def numpy_rng(key: PRNGKeyArray) -> np.random.Generator:
    """Returns NumPy's generator for a key of JAX."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


class NoiseTable(NamedTuple):
    """Quantile functions of Gamma(n, 1) for every n that occurs."""

    quantiles: Float[np.ndarray, "num_counts num_scores"]  # at the scores of the grid
    which: Int[np.ndarray, "n counts"]  # the row of `quantiles` for each count


def make_noise_table(weights: Float[np.ndarray, "n counts"]) -> NoiseTable:
    """Tabulates the quantile functions for the counts of rows."""
    counts, which = np.unique(weights, return_inverse=True)
    if len(counts) > 10_000:  # weights of all sizes: three digits are plenty
        digits = 10.0 ** np.floor(np.log10(np.maximum(weights, 1e-30)) - 2)
        counts, which = np.unique(
            np.round(weights / digits) * digits, return_inverse=True
        )
    shape = np.maximum(counts, 1e-30)[:, None]
    quantiles = np.where(
        _SCORES < 0,
        special.gammaincinv(shape, special.ndtr(_SCORES)),
        special.gammainccinv(shape, special.ndtr(-_SCORES)),
    )
    quantiles[counts == 0] = 0
    # A power of two of them: tables of other data then fit the same compiled program.
    missing = (1 << (len(counts) - 1).bit_length()) - len(counts)
    return NoiseTable(
        np.pad(quantiles, ((0, missing), (0, 0))).astype(np.float32),
        which.reshape(weights.shape).astype(np.int32),
    )


def row_directions(
    network: Network, key: PRNGKeyArray, rows: Int[Array, " n"]
) -> Float[Array, "n counts i"]:
    """Draws the directions of the counts of each row."""
    shape = (pb.BINARY.num_counts,)
    return jax.vmap(
        lambda row: network.noise_directions(jax.random.fold_in(key, row), shape)
    )(rows)


def noisy_weights(
    quantiles: Float[Array, "num_counts num_scores"],
    which: Int[Array, "n counts"],
    directions: Float[Array, "n counts i"],
    indices: Float[Array, "s i"],
) -> Float[Array, "s n counts"]:
    """Computes the weights that stand in place of counts."""
    scores = jnp.einsum("rcd,sd->src", directions, indices)
    step = _SCORES[1] - _SCORES[0]
    position = (jnp.clip(scores, _SCORES[0], _SCORES[-1]) - _SCORES[0]) / step
    left = jnp.minimum(position.astype(jnp.int32), len(_SCORES) - 2)
    low, high = quantiles[which, left], quantiles[which, left + 1]
    return low + (position - left) * (high - low)
