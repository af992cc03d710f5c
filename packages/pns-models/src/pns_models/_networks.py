"""Networks without an epistemic index: the anchored net and the two learners.

Every network of this package maps covariates z [n, d] and indices [s, ...] to raw numbers
[s, n, 6], whose meaning `_links` fixes. Those here have no index: the axis s has
whatever length it has, and the numbers repeat along it.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from pns_models._links import Link

Activation = Literal["relu", "silu"]
_HE = jax.nn.initializers.he_normal()
_ACTIVATIONS = {"relu": jax.nn.relu, "silu": jax.nn.silu}


class Mlp(nnx.Module):
    """Affine layers with an activation between them.

    Kernels before an activation start at He scale, the last at LeCun scale, so that
    outputs have the size of inputs.

    Attributes:
      kernels: [fan_in, fan_out] each.
      biases: [fan_out] each, zero at the start.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        rngs: nnx.Rngs,
        activation: Activation = "relu",
        matmul_dtype: str = "float32",
        variable: type[nnx.Variable] = nnx.Param,
    ):
        """Draws the layers.

        Args:
          sizes: widths from input to output.
          rngs: source of the initial kernels.
          activation: between layers, not after the last.
          matmul_dtype: 'float32', or 'bfloat16' for the products alone.
          variable: the kind of variable; `nnx.Param` learns.
        """
        last = len(sizes) - 2
        self.kernels = nnx.List([])
        for i, shape in enumerate(itertools.pairwise(sizes)):
            init = jax.nn.initializers.lecun_normal() if i == last else _HE
            self.kernels.append(variable(init(rngs.params(), shape)))
        self.biases = nnx.List([variable(jnp.zeros(size)) for size in sizes[1:]])
        self.activation = activation
        self.matmul_dtype = matmul_dtype

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Maps [..., fan_in] to [..., fan_out]."""
        act = _ACTIVATIONS[self.activation]
        last = len(self.kernels) - 1
        values = inputs
        for i, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            product = jnp.matmul(
                values.astype(self.matmul_dtype),
                kernel[...].astype(self.matmul_dtype),
                preferred_element_type=jnp.float32,
            )
            values = product + bias[...]
            if i != last:
                values = act(values)
        return values


class Network(nnx.Module):
    """What training and prediction ask of a network."""

    link: ClassVar[Link] = "anchored"

    def encode(self, z: jax.Array) -> Any:
        """Computes from z [n, d] what does not depend on the index."""
        raise NotImplementedError

    def decode(self, code: Any, indices: jax.Array) -> jax.Array:
        """Completes a code with indices [s, index_dim]: raw numbers [s, n, 6]."""
        return jnp.broadcast_to(code, (len(indices), *code.shape))

    def raw(self, z: jax.Array, indices: jax.Array) -> jax.Array:
        """Maps z [n, d] and indices [s, index_dim] to raw numbers [s, n, 6]."""
        return self.decode(self.encode(z), indices)

    @property
    def index_dim(self) -> int:
        """Length of an index; 0 if the network has none."""
        return 0

    @property
    def is_epistemic(self) -> bool:
        """Whether different indices give different numbers."""
        return self.index_dim > 0

    def training_indices(self, key: jax.Array, num: int) -> jax.Array:
        """Draws the indices [s, index_dim] of one training step."""
        del key, num
        return jnp.zeros((1, 0))

    def draw_indices(self, key: jax.Array, num: int) -> jax.Array:
        """Draws indices [num, index_dim] whose raw numbers stand for uncertainty."""
        del key
        return jnp.zeros((num, 0))

    def central_indices(self) -> jax.Array:
        """Returns indices whose mean raw numbers are the point estimate."""
        return jnp.zeros((1, 0))

    def noise_directions(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draws c [*shape, index_dim] such that c . index ~ N(0, 1) for each entry."""
        return jnp.zeros((*shape, 0))


@dataclasses.dataclass(frozen=True)
class Backbone:
    """Sizes that all networks share (app:architecture).

    Attributes:
      width: of the hidden layers and of the features.
      depth: number of hidden layers, before the linear layer that gives the features.
      activation: after each hidden layer.
      matmul_dtype: 'float32', or 'bfloat16' for the products alone.
    """

    width: int = 128
    depth: int = 3
    activation: Activation = "relu"
    matmul_dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self):
        """Checks what would only fail later."""
        if self.width < 1 or self.depth < 0:
            raise ValueError(
                "width must be at least 1 and depth not negative, got "
                f"{self.width} and {self.depth}."
            )
        for name, value, known in (
            ("activation", self.activation, tuple(_ACTIVATIONS)),
            ("matmul_dtype", self.matmul_dtype, ("float32", "bfloat16")),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {known}, got {value!r}.")

    def sizes(self, num_inputs: int) -> list[int]:
        """Lists the widths from input to features."""
        return [num_inputs, *[self.width] * (self.depth + 1)]

    def mlp(self, sizes: Sequence[int], rngs: nnx.Rngs) -> Mlp:
        """Makes an Mlp with this activation and precision."""
        return Mlp(sizes, rngs, self.activation, self.matmul_dtype)


class AnchoredNet(Network):
    """Shared features, a joint head and two delta heads (section 3.1)."""

    def __init__(self, num_covariates: int, backbone: Backbone, rngs: nnx.Rngs):
        """Draws the network for a number of covariates."""
        self.body = backbone.mlp(backbone.sizes(num_covariates), rngs)
        self.joint_head = backbone.mlp([backbone.width, 4], rngs)
        self.delta_head = backbone.mlp([backbone.width, 2], rngs)

    def features(self, z: jax.Array) -> jax.Array:
        """Maps z [n, d] to features [n, width]."""
        return self.body(z)

    def heads(self, features: jax.Array) -> jax.Array:
        """Maps features [n, width] to raw numbers [n, 6]."""
        return jnp.concatenate(
            [self.joint_head(features), self.delta_head(features)], axis=-1
        )

    def encode(self, z: jax.Array) -> jax.Array:
        """Maps z [n, d] to raw numbers [n, 6]."""
        return self.heads(self.features(z))


class SLearner(Network):
    """A joint model, and one outcome model that takes the arm as a covariate."""

    link: ClassVar[Link] = "free"

    def __init__(self, num_covariates: int, backbone: Backbone, rngs: nnx.Rngs):
        """Draws the networks for a number of covariates."""
        self.joint = backbone.mlp([*backbone.sizes(num_covariates), 4], rngs)
        self.outcome = backbone.mlp([*backbone.sizes(num_covariates + 1), 1], rngs)

    def encode(self, z: jax.Array) -> jax.Array:
        """Maps z [n, d] to raw numbers [n, 6]."""
        arms = [
            self.outcome(jnp.concatenate([z, jnp.full_like(z[:, :1], arm)], axis=-1))
            for arm in (0.0, 1.0)
        ]
        return jnp.concatenate([self.joint(z), *arms], axis=-1)


class TLearner(Network):
    """A joint model, and one outcome model for each arm."""

    link: ClassVar[Link] = "free"

    def __init__(self, num_covariates: int, backbone: Backbone, rngs: nnx.Rngs):
        """Draws the networks for a number of covariates."""
        sizes = backbone.sizes(num_covariates)
        self.joint = backbone.mlp([*sizes, 4], rngs)
        self.arms = nnx.List([backbone.mlp([*sizes, 1], rngs) for _ in (0, 1)])

    def encode(self, z: jax.Array) -> jax.Array:
        """Maps z [n, d] to raw numbers [n, 6]."""
        return jnp.concatenate([self.joint(z), *(arm(z) for arm in self.arms)], axis=-1)


def map_networks(function: Callable[[Any], jax.Array], stacked: Any) -> jax.Array:
    """Applies a network to each of several stacked parameter trees.

    On a CPU one network after the other keeps activations in its cache and every core
    on one product, which is near twice as fast as a batched product; accelerators
    prefer the batch.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(function, stacked)
    return jax.vmap(function)(stacked)


class FlatNetwork(NamedTuple):
    """A network's structure, its parameters as one vector, and each one's scale.

    Attributes:
      call: maps a vector [p] and z [n, d] to raw numbers [n, 6].
      vector: [p] the initial parameters.
      scale: [p] the standard deviation that initialisation gives each of them; a tenth
        for biases, which start at 0.
    """

    call: Any
    vector: jax.Array
    scale: jax.Array


def flatten_network(network: AnchoredNet) -> FlatNetwork:
    """Turns an anchored net into a function of one parameter vector."""
    structure, params = nnx.split(network, nnx.Param)
    vector, unravel = jax.flatten_util.ravel_pytree(params)
    scales = jax.tree.map(
        lambda leaf: jnp.full(leaf.shape, jnp.std(leaf) if leaf.ndim == 2 else 0.1),
        params,
    )

    def call(values: jax.Array, z: jax.Array) -> jax.Array:
        net = nnx.merge(structure, unravel(values))
        return net.encode(z)

    return FlatNetwork(call, vector, jax.flatten_util.ravel_pytree(scales)[0])
