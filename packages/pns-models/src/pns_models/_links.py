"""From raw numbers to probabilities, and to the loss.

A row has six of them: logits of the cells p00, p01, p10, p11, then one number for
each arm. Two links turn them into probabilities: 'anchored' (the arms' numbers
are deltas of the anchoring map, so the result is always compatible) and 'free' (they are
plain logits of mu, as in the S- and T-learner, which may contradict the joint law). The
loss adds two mean negative log-likelihoods (app:training).
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jaxtyping import Array, Float
from pns_bounds import BINARY
from scipy import special

Link = Literal["anchored", "free"]


class LogProbabilities(NamedTuple):
    """Logarithms of what the two losses need."""

    joint: Float[Array, "*batch treatments levels"]  # log P(X=x, Y=y | z)
    outcome: Float[Array, "*batch treatments levels"]  # log P(Y=y | do(X=x), z)


def log_probabilities(
    raw: Float[Array, "*batch raw"], link: Link, training: bool = False
) -> LogProbabilities:
    """Applies a link in log space.

    Args:
      raw: numbers of each row.
      link: 'anchored' or 'free'.
      training: stop the gradient of the experimental loss at the joint law, so that
        only observational data train it (app:training).
    """
    shape = raw.shape[:-1]
    joint = jax.nn.log_softmax(raw[..., : pb.BINARY.num_cells])
    joint = joint.reshape(*shape, *pb.BINARY.joint_shape)
    arms = raw[..., pb.BINARY.num_cells :]
    if link == "anchored":
        anchor = jax.lax.stop_gradient(joint) if training else joint
        outcome = pb.log_anchor(anchor, arms)
    else:
        outcome = jnp.stack(
            [jax.nn.log_sigmoid(-arms), jax.nn.log_sigmoid(arms)], axis=-1
        )
    return LogProbabilities(joint=joint, outcome=outcome)


def free_numbers(
    raw: Float[np.ndarray, "*batch raw"],
) -> Float[np.ndarray, "*batch raw"]:
    """Turns raw numbers of the anchored link into those of the free one, in float32.

    Logits of any size are laws in float64; in float32 those beyond 100 hardly are.
    """
    raw = raw.astype(np.float64)
    cells = raw[..., : BINARY.num_cells]
    logs = cells - special.logsumexp(cells, axis=-1, keepdims=True)
    joint = logs.reshape(*raw.shape[:-1], *BINARY.joint_shape)
    outcome = pb.log_anchor(joint, raw[..., BINARY.num_cells :])
    arms = outcome[..., 1] - outcome[..., 0]
    return np.concatenate([logs, arms], axis=-1, dtype=np.float32)


def atoms_from_raw(raw: Float[Array, "*batch raw"], link: Link) -> pb.Atoms:
    """Applies a link: raw numbers [*batch, raw] to atoms [*batch].

    Example:
      >>> import jax.numpy as jnp
      >>> raw = jnp.log(jnp.array([0.2, 0.3, 0.1, 0.4, 1.0, 3.0]))  # arms: 0 and log 3
      >>> [round(float(mu), 3) for mu in atoms_from_raw(raw, "free").mu]
      [0.5, 0.75]
      >>> [round(float(mu), 3) for mu in atoms_from_raw(raw, "anchored").mu]
      [0.55, 0.775]
    """
    joint = jax.nn.softmax(raw[..., : pb.BINARY.num_cells])
    joint = joint.reshape(*raw.shape[:-1], *pb.BINARY.joint_shape)
    arms = raw[..., pb.BINARY.num_cells :]
    mu = pb.anchor(joint, arms) if link == "anchored" else jax.nn.sigmoid(arms)
    return pb.Atoms(joint=joint, mu=mu)


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
      weights: of the log-probabilities of a row, its counts for example: four
        observational, four experimental.
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
