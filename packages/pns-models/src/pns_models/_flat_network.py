"""An anchored net as a function of one parameter vector, and many of them at once."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from pns_models._anchored import AnchoredNet

Result = TypeVar("Result")  # arrays, or a tree of them


@dataclasses.dataclass(frozen=True)
class FlatCall:
    """Maps a parameter vector and z to raw numbers.

    Two calls for the same structure are equal, unlike two closures: a module that keeps
    one has the graph definition of its equals.
    """

    structure: nnx.GraphDef  # of the anchored net
    params: Any  # the structure of the tree of its parameters
    shapes: tuple[tuple[int, ...], ...]  # of its leaves

    def __call__(
        self, vector: Float[Array, " p"], z: Float[Array, "n d"]
    ) -> Float[Array, "n raw"]:
        """Cuts the vector into parameters and applies the network."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        parts = jnp.split(vector, ends[:-1].tolist())
        leaves = [
            part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)
        ]
        params = jax.tree.unflatten(self.params, leaves)
        return nnx.merge(self.structure, params).encode(z)


class FlatNetwork(NamedTuple):
    """A network's structure, its parameters as one vector, and each one's scale."""

    call: FlatCall  # maps a vector and z to raw numbers
    vector: Float[Array, " p"]  # the initial parameters
    # The standard deviation that initialization gives each of them; a tenth for biases,
    # which start at 0.
    scale: Float[Array, " p"]


def flatten_network(network: AnchoredNet) -> FlatNetwork:
    """Turns an anchored net into a function of one parameter vector."""
    structure, params = nnx.split(network, nnx.Param)
    leaves, tree = jax.tree.flatten(params)
    scales = jax.tree.map(
        lambda leaf: jnp.full(leaf.shape, jnp.std(leaf) if leaf.ndim == 2 else 0.1),
        params,
    )
    call = FlatCall(structure, tree, tuple(leaf.shape for leaf in leaves))
    return FlatNetwork(call, ravel_pytree(params)[0], ravel_pytree(scales)[0])


def map_networks(function: Callable[[Any], Result], stacked: Any) -> Result:
    """Applies a function of a network to each of several stacked parameter trees.

    On a CPU one network after the other keeps activations in its cache and every core
    on one product, which is near twice as fast as a batched product; accelerators
    prefer the batch.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(function, stacked)
    return jax.vmap(function)(stacked)
