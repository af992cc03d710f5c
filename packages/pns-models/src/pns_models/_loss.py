"""The loss: two mean negative log-likelihoods, added (app:training)."""

import jax
import jax.numpy as jnp

from pns_models._links import Link, log_probabilities


def loss_by_index(
    raw: jax.Array,
    cells: jax.Array,
    totals: jax.Array,
    link: Link,
    training: bool = False,
) -> jax.Array:
    """Computes L_obs + L_exp for each index.

    Args:
      raw: [s, n, 6] of n rows.
      cells: [n, 8] or [s, n, 8] weights: four observational cells, four experimental.
      totals: [2] people in each sample, by which its sum is divided.
      link: of the network.
      training: stop the experimental gradient at the joint law.

    Returns:
      [s] losses.
    """
    logs = log_probabilities(raw, link, training)
    flat = raw.shape[:-1]
    joint, outcome = (part.reshape(*flat, 4) for part in logs)
    observational = jnp.sum(cells[..., :4] * joint, axis=(-2, -1)) / totals[0]
    experimental = jnp.sum(cells[..., 4:] * outcome, axis=(-2, -1)) / totals[1]
    return -(observational + experimental)
