"""An anchored model as plain functions, for inference that knows no modules.

The functions compare by value: those of two models of the same structure are equal, so
what takes them as static arguments compiles once for both.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pns_bounds as pb
from flax import nnx
from jaxtyping import Array, Float, Num

from pns_models._anchored import AnchoredNet
from pns_models._model import FittedModel


class PlainFunctions(NamedTuple):
    """What a bootstrap needs of an anchored model, on standardized covariates.

    Attributes:
      features: maps body parameters and z [n, d] to features [n, width].
      head: maps head parameters and features [n, width] to raw numbers [n, raw].
      params: the fitted pair (body, head).
      frozen_nll: maps raw numbers, frozen raw numbers and counts [n, counts] to the negative
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

    Example:
      >>> import jax
      >>> import numpy as np
      >>> import pns_models as pm
      >>> config = pm.AnchoredConfig(pm.Backbone(width=4, depth=0))
      >>> network = config.make(jax.random.key(0), num_covariates=1)
      >>> scale = pm.Standardizer(np.zeros(1), np.ones(1), np.zeros(1, bool))
      >>> model = pm.FittedModel(network, pm.Recipe(config), scale)
      >>> plain = plain_functions(model)
      >>> z = np.array([[0.5]], np.float32)
      >>> raw = plain.head(plain.params[1], plain.features(plain.params[0], z))
      >>> atoms = model.atoms(z)
      >>> bool(np.allclose(pm.atoms_from_raw(raw, "anchored").mu, atoms.mu))
      True
      >>> unit = np.array([[0, 0, 1, 0, 0, 0, 0, 0]])  # it chose x = 1 and had y = 0
      >>> loss = plain.frozen_nll(raw, raw, unit)
      >>> bool(np.allclose(loss, -np.log(atoms.joint[:, 1, 0])))
      True
    """
    network = model.network
    if not isinstance(network, AnchoredNet):
        raise pb.InputError(
            "model", f"must be of kind 'anchored', got {model.recipe.network.kind!r}."
        )
    body_structure, body = nnx.split(network.body)
    head_structure, head = nnx.split((network.joint_head, network.delta_head))
    return PlainFunctions(
        features=_Features(body_structure),
        head=_Head(head_structure),
        params=(body, head),
        frozen_nll=_frozen_nll,
    )


@dataclasses.dataclass(frozen=True)
class _Features:
    structure: nnx.GraphDef

    def __call__(self, params: Any, z: Float[Array, "n d"]) -> Float[Array, "n width"]:
        return nnx.merge(self.structure, params)(z)


@dataclasses.dataclass(frozen=True)
class _Head:
    structure: nnx.GraphDef

    def __call__(
        self, params: Any, features: Float[Array, "n width"]
    ) -> Float[Array, "n raw"]:
        joint_head, delta_head = nnx.merge(self.structure, params)
        return jnp.concatenate([joint_head(features), delta_head(features)], axis=-1)


def _frozen_nll(
    raw: Float[Array, "n raw"],
    frozen: Float[Array, "n raw"],
    counts: Num[Array, "n counts"],
) -> Float[Array, " n"]:
    def log_joint(
        numbers: Float[Array, "n raw"],
    ) -> Float[Array, "n treatments levels"]:
        joint = jax.nn.log_softmax(numbers[:, : pb.BINARY.num_cells])
        return joint.reshape(-1, *pb.BINARY.joint_shape)

    arms = raw[:, pb.BINARY.num_cells :]
    logs = (log_joint(raw), pb.log_anchor(log_joint(frozen), arms))
    flat = jnp.concatenate([part.reshape(len(raw), -1) for part in logs], axis=1)
    return -jnp.sum(counts * flat, axis=1)
