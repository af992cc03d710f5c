"""Exponential weights of people that depend on the index, on counts.

Giving every person an independent Exp(1) weight is a bootstrap. Here the weight is a
function of the network's index, so that the network learns what each reweighting does:
person i has the weight Q(Phi(c_i . index)), Q the quantile function of Exp(1) and c_i a
fixed direction. A cell that holds n people gets the sum of n such weights, which is
Gamma(n, 1); so Q is that of Gamma(n, 1), and merged data need one direction per cell.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from pns_models._network import Network

_SCORES = np.linspace(-6, 6, 193)  # linear interpolation is right to about 1e-3


class NoiseTable(NamedTuple):
    """Quantile functions of Gamma(n, 1) for every n that occurs.

    Attributes:
      quantiles: [num_counts, num_scores] at the scores of the grid.
      which: [num_rows, 8] the row of `quantiles` for each cell.
    """

    quantiles: np.ndarray
    which: np.ndarray


def make_noise_table(cells: np.ndarray) -> NoiseTable:
    """Tabulates the quantile functions for counts [num_rows, 8]."""
    counts, which = np.unique(cells, return_inverse=True)
    if len(counts) > 10_000:  # weights of all sizes: three digits are plenty
        digits = 10.0 ** np.floor(np.log10(np.maximum(cells, 1e-30)) - 2)
        counts, which = np.unique(
            np.round(cells / digits) * digits, return_inverse=True
        )
    shape = np.maximum(counts, 1e-30)[:, None]
    quantiles = np.where(
        _SCORES < 0,
        special.gammaincinv(shape, special.ndtr(_SCORES)),
        special.gammainccinv(shape, special.ndtr(-_SCORES)),
    )
    quantiles[counts == 0] = 0
    return NoiseTable(
        quantiles.astype(np.float32), which.reshape(cells.shape).astype(np.int32)
    )


def cell_directions(network: Network, key: jax.Array, rows: jax.Array) -> jax.Array:
    """Draws the directions of the eight cells of each row: [num_rows, 8, index_dim]."""
    return jax.vmap(
        lambda row: network.noise_directions(jax.random.fold_in(key, row), (8,))
    )(rows)


def noisy_cells(
    quantiles: jax.Array, which: jax.Array, directions: jax.Array, indices: jax.Array
) -> jax.Array:
    """Computes the weights [s, num_rows, 8] that stand in place of counts."""
    scores = jnp.einsum("rcd,sd->src", directions, indices)
    step = _SCORES[1] - _SCORES[0]
    position = (jnp.clip(scores, _SCORES[0], _SCORES[-1]) - _SCORES[0]) / step
    left = jnp.minimum(position.astype(jnp.int32), len(_SCORES) - 2)
    low, high = quantiles[which, left], quantiles[which, left + 1]
    return low + (position - left) * (high - low)
