"""Exponential weights of units that depend on the index, on counts.

Giving every unit an independent Exp(1) weight is a bootstrap. Here the weight is a
function of the network's index, so that the network learns what each reweighting does:
unit i has the weight Q(Phi(c_i . index)), Q the quantile function of Exp(1) and c_i a
fixed direction. A count of n units gets the sum of n such weights, which is Gamma(n, 1);
so Q is that of Gamma(n, 1), and merged data need one direction per count.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy import special

from pns_models._network import Network

_SCORES = np.linspace(-6, 6, 193)  # linear interpolation is right to about 1e-3


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
