"""An anchored model as plain functions, for inference that knows no modules."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pns_bounds as pb
from flax import nnx

from pns_models._anchored import AnchoredNet
from pns_models._model import FittedModel


class PlainFunctions(NamedTuple):
    """What a bootstrap needs of an anchored model, on standardized covariates.

    Attributes:
      features: maps body parameters and z [n, d] to features [n, width].
      head: maps head parameters and features [n, width] to raw numbers [n, 6].
      params: the fitted pair (body, head).
      frozen_nll: maps raw numbers, frozen raw numbers and counts [n, 8] to the negative
        log-likelihood of each row [n]; the joint law inside mu is that of the frozen
        numbers, as in training.
    """

    features: Callable[[Any, jax.Array], jax.Array]
    head: Callable[[Any, jax.Array], jax.Array]
    params: tuple[Any, Any]
    frozen_nll: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def plain_functions(model: FittedModel) -> PlainFunctions:
    """Takes an anchored model apart.

    Args:
      model: of kind 'anchored'.
    """
    network = model.network
    if not isinstance(network, AnchoredNet):
        raise TypeError(
            "only a model of kind 'anchored' has plain functions, this is "
            f"{model.recipe.network.kind!r}."
        )
    body_structure, body = nnx.split(network.body)
    head_structure, head = nnx.split((network.joint_head, network.delta_head))

    def features(state: Any, z: jax.Array) -> jax.Array:
        return nnx.merge(body_structure, state)(z)

    def heads(state: Any, values: jax.Array) -> jax.Array:
        joint_head, delta_head = nnx.merge(head_structure, state)
        return jnp.concatenate([joint_head(values), delta_head(values)], axis=-1)

    return PlainFunctions(features, heads, (body, head), _frozen_nll)


def _frozen_nll(raw: jax.Array, frozen: jax.Array, counts: jax.Array) -> jax.Array:
    def log_joint(numbers: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(numbers[:, :4]).reshape(-1, 2, 2)

    logs = (log_joint(raw), pb.log_anchor(log_joint(frozen), raw[:, 4:]))
    flat = jnp.concatenate([part.reshape(-1, 4) for part in logs], axis=1)
    return -jnp.sum(counts * flat, axis=1)
