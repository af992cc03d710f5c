"""The hypermodel: an index generates every parameter of an anchored net.

An index fixes a whole function of z, so a draw is coherent over units. There are two
generators. `_ParameterGenerator` starts as an initialized network; `EnnGenerator` starts as
in the ENN library (Osband et al. 2023), which the paper's authors used:

- Each array of the base network has an output layer of its own, kernel and bias drawn
  from a truncated normal whose variance is 1 over the average of fan in and fan out. The
  more numbers an array has, the smaller they start.
- Generated kernels are divided by the root of their fan in; biases are not.
- The body has no activation at its end, and its kernels are a normal of standard deviation
  1 / sqrt(fan in), cut at two of these and not scaled up again.

The kernels of the latter's networks are thus near 0 and their biases are not: at the
start a network is constant in z, and differs from index to index by about half a logit.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from pns_models._anchored import AnchoredNet
from pns_models._epinet import GaussianIndex, IndexedConfig
from pns_models._network import (
    Frozen,
    Kernel,
    Mlp,
    check_choice,
    map_networks,
    register_network,
)

# Standard deviation of N(0, 1) cut at -2 and 2: 1 - 4 phi(2) / (2 Phi(2) - 1), its root.
_CUT_SD = 0.87962566103423978


@register_network
@dataclasses.dataclass(frozen=True)
class HypermodelConfig(IndexedConfig):
    """Makes a `Hypermodel`; `hidden` are the hypernetwork's widths.

    Attributes:
      initialization: 'network' starts generated networks as initialized ones, a tenth of
        their scale apart in the learner; 'enn' as the ENN library does, constant in z and
        about half a logit apart.
    """

    kind: ClassVar[str] = "hypermodel"
    initialization: Literal["network", "enn"] = "network"

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "initialization", ("network", "enn"))

    def make(self, key: PRNGKeyArray, num_covariates: int) -> "Hypermodel":
        """Draws the network for a number of covariates."""
        return Hypermodel(num_covariates, self, nnx.Rngs(params=key))


class Hypermodel(GaussianIndex):
    """Generates the full parameter vector of an anchored net from an index.

    A second, frozen hypermodel with the same index is added to the raw numbers
    (app:architecture), before the anchoring link: every draw is a compatible law.
    """

    def __init__(self, num_covariates: int, config: HypermodelConfig, rngs: nnx.Rngs):
        super().__init__(config.index_dim)
        base, prior = (
            flatten_network(AnchoredNet(num_covariates, config.backbone, rngs))
            for _ in range(2)
        )
        self._call = base.call
        sizes = [config.index_dim, *config.hidden]
        prior_sizes = [config.index_dim, *config.prior_hidden]
        if config.initialization == "enn":
            self.learner = EnnGenerator(sizes, base, False, rngs)
            self.prior = EnnGenerator(prior_sizes, prior, True, rngs)
        else:
            # A learner whose networks start as different as the prior's does not train:
            # a tenth of that does.
            self.learner = _ParameterGenerator(sizes, base, 0.1, False, rngs)
            self.prior = _ParameterGenerator(prior_sizes, prior, 1.0, True, rngs)
        self.prior_scale = config.prior_scale

    def prior_raw(
        self, z: Float[Array, "n d"], indices: Float[Array, "s i"]
    ) -> Float[Array, "s n raw"]:
        """Computes what the frozen prior adds."""
        return self.prior_scale * self._generated(self.prior, z, indices)

    def encode(self, z: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Returns z: everything depends on the index."""
        return z

    def decode(
        self, code: Float[Array, "n d"], indices: Float[Array, "s i"]
    ) -> Float[Array, "s n raw"]:
        """Generates a network for each index and applies it."""
        learned = self._generated(self.learner, code, indices)
        if self.prior_scale == 0:
            return learned
        return learned + self.prior_raw(code, indices)

    def _generated(
        self,
        generator: "EnnGenerator | _ParameterGenerator",
        z: Float[Array, "n d"],
        indices: Float[Array, "s i"],
    ) -> Float[Array, "s n raw"]:
        vectors = jax.vmap(generator)(indices)
        return map_networks(lambda vector: self._call(vector, z), vectors)


class _ParameterGenerator(nnx.Module):
    """Maps an index to the parameter vector of a base network.

    The base network's initialization is the output's bias, and the output's kernel varies
    each parameter by `variation` times its scale; both are divided so that a generated
    network has the scale of an initialized one, whatever the index.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        base: "FlatNetwork",
        variation: float,
        is_frozen: bool,
        rngs: nnx.Rngs,
    ):
        kernel_type = Frozen if is_frozen else Kernel
        # Plain parameters: the decay of the output would make all draws equal.
        variable = Frozen if is_frozen else nnx.Param
        # An Mlp has no activation at its end: it follows below, and the root of two
        # gives the last hidden layer the He scale as well.
        self.body = Mlp(sizes, rngs, kernel=kernel_type, bias=variable)
        kernel = jax.random.normal(rngs.params(), (sizes[-1], len(base.vector)))
        # Hidden units have a mean square of 1, so the sum over them has `variation`^2.
        shrink = (1 + variation**2) ** -0.5
        kernel = kernel * base.scale * variation * shrink / sizes[-1] ** 0.5
        self.kernel = variable(kernel)
        self.bias = variable(base.vector * shrink)

    def __call__(self, index: Float[Array, " i"]) -> Float[Array, " p"]:
        hidden = jax.nn.relu(2**0.5 * self.body(index))
        return hidden @ self.kernel[...] + self.bias[...]


class EnnGenerator(nnx.Module):
    """Maps an index to the parameter vector of a base network."""

    def __init__(
        self, sizes: Sequence[int], base: "FlatNetwork", is_frozen: bool, rngs: nnx.Rngs
    ):
        variable = Frozen if is_frozen else nnx.Param
        self.body = Mlp(
            sizes,
            rngs,
            kernel=Frozen if is_frozen else Kernel,
            bias=variable,
            initializer=cut_normal,
        )
        shapes = base.call.shapes
        layers = [output_layer(rngs.params(), sizes[-1], shape) for shape in shapes]
        kernels, biases, scales = zip(*layers, strict=True)
        self.kernel = variable(jnp.concatenate(kernels, axis=1))
        self.bias = variable(jnp.concatenate(biases))
        self.scale = Frozen(jnp.concatenate(scales))

    def __call__(self, index: Float[Array, " i"]) -> Float[Array, " p"]:
        """Generates the parameters of one network."""
        raw = self.body(index) @ self.kernel[...] + self.bias[...]
        return raw * self.scale[...]


def cut_normal(key: PRNGKeyArray, shape: tuple[int, int]) -> Float[Array, "n m"]:
    """Draws from N(0, 1 / fan in), cut at two standard deviations: variance 0.77 of it."""
    return jax.random.truncated_normal(key, -2.0, 2.0, shape) / shape[0] ** 0.5


def output_layer(
    key: PRNGKeyArray, fan_in: int, shape: tuple[int, ...]
) -> tuple[Float[Array, "fan_in p"], Float[Array, " p"], Float[Array, " p"]]:
    """Draws the layer that generates one array of the base network.

    Returns:
      Kernel, bias, and the factor of what they generate.
    """
    size = math.prod(shape)
    kernel_key, bias_key = jax.random.split(key)
    kernel = fan_average_normal(kernel_key, (fan_in, size))
    bias = fan_average_normal(bias_key, (size,))
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return kernel, bias, jnp.full(size, scale)


def fan_average_normal(
    key: PRNGKeyArray, shape: tuple[int, ...]
) -> Float[Array, "*shape"]:
    """Draws from a truncated normal with variance 1 / average of the two fans.

    The fans of a kernel are its two axes; both fans of a bias are its length.
    """
    variance = 2 / (shape[0] + shape[-1])
    cut = jax.random.truncated_normal(key, -2.0, 2.0, shape)
    return cut * variance**0.5 / _CUT_SD


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
