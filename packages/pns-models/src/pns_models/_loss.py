"""The loss: two mean negative log-likelihoods, added (app:training)."""

import jax.numpy as jnp
from jaxtyping import Array, Float
from pns_bounds import BINARY

from pns_models._links import Link, log_probabilities


def loss_by_index(
    raw: Float[Array, "s n raw"],
    weights: Float[Array, "*s n counts"],
    totals: Float[Array, "2"],
    link: Link,
    training: bool = False,
) -> Float[Array, " s"]:
    """Computes L_obs + L_exp for each index.

    Args:
      raw: of n rows.
      weights: [n, counts] or [s, n, counts] of the log-probabilities of a row, its counts
        for example: four observational, four experimental.
      totals: units of each source, by which its sum is divided.
      link: of the network.
      training: stop the experimental gradient at the joint law.
    """
    logs = log_probabilities(raw, link, training)
    flat, size = raw.shape[:-1], BINARY.num_cells
    joint, outcome = (part.reshape(*flat, size) for part in logs)
    observational = jnp.sum(weights[..., :size] * joint, axis=(-2, -1)) / totals[0]
    experimental = jnp.sum(weights[..., size:] * outcome, axis=(-2, -1)) / totals[1]
    return -(observational + experimental)
