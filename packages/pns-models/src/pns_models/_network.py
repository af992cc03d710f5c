"""What training and prediction ask of a network, its kinds, and its layers.

Every network maps covariates z [n, d] and indices [s, index_dim] to raw numbers
[s, n, raw], whose meaning `_links` fixes. A kind of network is a frozen dataclass that
makes it; `register_network` lets recipes and files know it by name, whoever wrote it.
Our own ask a `Backbone` for their layers.
"""

import dataclasses
import itertools
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from pns_models._errors import require
from pns_models._links import Link

Initializer = Callable[[PRNGKeyArray, tuple[int, int]], Array]
Activation = Literal["relu", "silu"]
ACTIVATIONS = {"relu": jax.nn.relu, "silu": jax.nn.silu}
_HE = jax.nn.initializers.he_normal()
_LECUN = jax.nn.initializers.lecun_normal()


class Network(nnx.Module):
    """What training and prediction ask of a network.

    The base class has no index: numbers repeat along the axis s, whatever its length.
    """

    link: ClassVar[Link] = "anchored"

    def encode(self, z: Float[Array, "n d"]) -> Any:
        """Computes from z what does not depend on the index."""
        raise NotImplementedError

    def decode(
        self, code: Any, indices: Float[Array, "s i"]
    ) -> Float[Array, "s n raw"]:
        """Completes a code with indices."""
        return jnp.broadcast_to(code, (len(indices), *code.shape))

    def raw(
        self, z: Float[Array, "n d"], indices: Float[Array, "s i"]
    ) -> Float[Array, "s n raw"]:
        """Maps covariates and indices to raw numbers."""
        return self.decode(self.encode(z), indices)

    @property
    def index_dim(self) -> int:
        """Length of an index; 0 if the network has none."""
        return 0

    @property
    def is_epistemic(self) -> bool:
        """Whether different indices give different numbers."""
        return self.index_dim > 0

    def training_indices(self, key: PRNGKeyArray, num: int) -> Float[Array, "s i"]:
        """Draws the indices of one training step."""
        del key, num
        return jnp.zeros((1, 0))

    def draw_indices(self, key: PRNGKeyArray, num: int) -> Float[Array, "{num} i"]:
        """Draws indices whose raw numbers stand for uncertainty."""
        del key
        return jnp.zeros((num, 0))

    def central_indices(self) -> Float[Array, "s i"]:
        """Returns indices whose mean raw numbers are the point estimate."""
        return jnp.zeros((1, 0))

    def noise_directions(
        self, key: PRNGKeyArray, shape: tuple[int, ...]
    ) -> Float[Array, "*shape i"]:
        """Draws c [*shape, index_dim] such that c . index ~ N(0, 1) for each entry."""
        del key
        return jnp.zeros((*shape, 0))


class NetworkConfig(Protocol):
    """A frozen dataclass that says which network; its fields are plain values.

    Fields may be numbers, texts, tuples of them, and frozen dataclasses of such fields:
    what survives JSON.
    """

    kind: ClassVar[str]

    def make(self, key: PRNGKeyArray, num_covariates: int) -> Network:
        """Draws the network for a number of covariates."""
        ...


Result = TypeVar("Result")  # arrays, or a tree of them
_Config = TypeVar("_Config", bound=type[NetworkConfig])
NETWORKS: dict[str, type[NetworkConfig]] = {}
"""Every network configuration that has a kind, by it; `register_network` adds one."""


def register_network(config_class: _Config) -> _Config:
    """Makes a kind of network known to recipes and files; usable as a decorator.

    Args:
      config_class: a frozen dataclass of plain values, with a class variable `kind` and
        `make(key, num_covariates)`, which draws a `Network`.

    Example:
      >>> import dataclasses
      >>> from typing import ClassVar
      >>> import pns_models as pm
      >>> @register_network
      ... @dataclasses.dataclass(frozen=True)
      ... class ShallowConfig:
      ...     kind: ClassVar[str] = "shallow"
      ...     width: int = 8
      ...
      ...     def make(self, key, num_covariates):
      ...         config = pm.AnchoredConfig(pm.Backbone(self.width, depth=1))
      ...         return config.make(key, num_covariates)
      >>> recipe = pm.Recipe(ShallowConfig(width=4))
      >>> pm.Recipe.from_json(recipe.to_json()).network
      ShallowConfig(width=4)
      >>> del NETWORKS["shallow"]  # this example leaves nothing behind
    """
    kind = getattr(config_class, "kind", None)
    params = getattr(config_class, "__dataclass_params__", None)
    require(
        isinstance(kind, str) and params is not None and params.frozen,
        "config_class",
        f"must be a frozen dataclass with a class variable `kind`, got {config_class!r}.",
    )
    add_class(NETWORKS, config_class)
    return config_class


def add_class(known: dict[str, Any], cls: Any) -> None:
    """Adds a class by its kind; a notebook may define the same class again."""
    old = known.get(cls.kind, cls)
    require(
        (old.__module__, old.__qualname__) == (cls.__module__, cls.__qualname__),
        "kind",
        f"{cls.kind!r} is taken by {old.__qualname__}; known are {sorted(known)}.",
    )
    known[cls.kind] = cls


def network_from_json(values: Mapping[str, Any]) -> NetworkConfig:
    """Rebuilds a config; raises if its kind or a field is unknown."""
    fields = dict(values)
    kind = fields.pop("kind", None)
    require(
        kind in NETWORKS,
        "kind",
        f"must be one of {sorted(NETWORKS)}, got {kind!r}; a network of your own is made "
        "known by register_network.",
    )
    return _rebuilt(NETWORKS[kind], fields)


def _rebuilt(config_class: type, values: Mapping[str, Any]) -> Any:
    """Undoes `dataclasses.asdict` and JSON: dataclasses from dicts, tuples from lists."""
    hints = typing.get_type_hints(config_class)
    fields = {}
    for name, value in values.items():
        hint = hints.get(name)
        if isinstance(value, Mapping) and dataclasses.is_dataclass(hint):
            value = _rebuilt(typing.cast(type, hint), value)
        fields[name] = tuple(value) if isinstance(value, list) else value
    return config_class(**fields)


def map_networks(function: Callable[[Any], Result], stacked: Any) -> Result:
    """Applies a function of a network to each of several stacked parameter trees.

    On a CPU one network after the other keeps activations in its cache and every core
    on one product, which is near twice as fast as a batched product; accelerators
    prefer the batch.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(function, stacked)
    return jax.vmap(function)(stacked)


class Kernel(nnx.Param):
    """A parameter that learns and decays; a plain `nnx.Param` only learns."""


class Frozen(nnx.Variable):
    """A variable that is drawn once and never learns."""


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
        kernel: type[nnx.Variable] = Kernel,
        bias: type[nnx.Variable] = nnx.Param,
        num_linear: int = 0,
        initializer: Initializer | None = None,
    ):
        """Draws the layers.

        Args:
          sizes: widths from input to output.
          rngs: source of the initial kernels.
          activation: between layers, not after the last.
          matmul_dtype: of the products alone.
          kernel: the type of variable of the kernels: `Kernel` learns and decays,
            `nnx.Param` learns, `Frozen` does neither.
          bias: that of the biases.
          num_linear: how many layers at the start have no activation after them.
          initializer: of all kernels; None for the scales above.
        """
        last = len(sizes) - 2
        self.kernels = nnx.List([])
        for i, shape in enumerate(itertools.pairwise(sizes)):
            ours = _LECUN if i == last or i < num_linear else _HE
            self.kernels.append(kernel((initializer or ours)(rngs.params(), shape)))
        self.biases = nnx.List([bias(jnp.zeros(size)) for size in sizes[1:]])
        self.activation = activation
        self.matmul_dtype = matmul_dtype
        self.num_linear = num_linear

    def __call__(
        self, inputs: Float[Array, "*batch fan_in"]
    ) -> Float[Array, "*batch fan_out"]:
        """Applies the layers one after the other.

        In between, rows lie along the last axis: on a CPU the layers with few numbers per
        row are much faster so, and the others no slower.
        """
        act = ACTIVATIONS[self.activation]
        last = len(self.kernels) - 1
        values = inputs.reshape(-1, inputs.shape[-1]).T
        for i, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            values = affine(values, kernel[...], bias[...], self.matmul_dtype)
            if self.num_linear <= i < last:
                values = act(values)
        return values.T.reshape(*inputs.shape[:-1], -1)


def affine(
    columns: Float[Array, "fan_in n"],
    kernel: Float[Array, "fan_in fan_out"],
    bias: Float[Array, " fan_out"],
    matmul_dtype: str = "float32",
) -> Float[Array, "fan_out n"]:
    """Applies one layer to rows that lie along the last axis."""
    product = jnp.matmul(
        kernel.T.astype(matmul_dtype),
        columns.astype(matmul_dtype),
        preferred_element_type=jnp.float32,
    )
    return product + bias[:, None]


@dataclasses.dataclass(frozen=True)
class Backbone:
    """Sizes that all networks share (app:architecture).

    Networks ask it for their layers and read no sizes of their own.

    Attributes:
      width: of the hidden layers and of the features.
      depth: number of hidden layers, before the linear layer that gives the features.
      activation: after each hidden layer.
      bottleneck: how many linear combinations of the covariates the hidden layers see;
        None for all covariates.
      matmul_dtype: 'float32', or 'bfloat16' for the products alone.
    """

    width: int = 128
    depth: int = 3
    activation: Activation = "relu"
    matmul_dtype: Literal["float32", "bfloat16"] = "float32"
    bottleneck: int | None = None

    def __post_init__(self):
        require(
            self.width >= 1 and self.depth >= 0,
            "width",
            "must be at least 1 and depth not negative, got "
            f"{self.width} and {self.depth}.",
        )
        require(
            self.bottleneck is None or self.bottleneck >= 1,
            "bottleneck",
            f"must be None or at least 1, got {self.bottleneck}.",
        )
        check_choice(self, "activation", tuple(ACTIVATIONS))
        check_choice(self, "matmul_dtype", ("float32", "bfloat16"))

    def body(self, num_inputs: int, rngs: nnx.Rngs) -> Mlp:
        """Makes the layers from inputs to features."""
        return self.mlp(num_inputs, None, rngs)

    def head(self, num_outputs: int, rngs: nnx.Rngs) -> Mlp:
        """Makes the linear layer from features to outputs."""
        sizes = [self.width, num_outputs]
        return Mlp(sizes, rngs, self.activation, self.matmul_dtype)

    def mlp(self, num_inputs: int, num_outputs: int | None, rngs: nnx.Rngs) -> Mlp:
        """Makes one network from inputs to outputs, activation after the features."""
        require(num_inputs >= 1, "z", "must have one covariate or more.")
        narrow = [] if self.bottleneck is None else [self.bottleneck]
        hidden = [self.width] * (self.depth + 1)
        outputs = [] if num_outputs is None else [num_outputs]
        return Mlp(
            [num_inputs, *narrow, *hidden, *outputs],
            rngs,
            self.activation,
            self.matmul_dtype,
            num_linear=len(narrow),
        )


def check_choice(config: Any, name: str, known: tuple[str, ...]) -> None:
    """Raises unless a field of a config has one of the known values."""
    value = getattr(config, name)
    require(value in known, name, f"must be one of {known}, got {value!r}.")
