"""What training and prediction ask of a network, and the register of its kinds.

Every network maps covariates z [n, d] and indices [s, index_dim] to raw numbers
[s, n, raw], whose meaning `_links` fixes. A kind of network is a frozen dataclass that
makes it; `register_network` lets recipes and files know it by name, whoever wrote it.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import jax.numpy as jnp
import pns_bounds as pb
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from pns_models._links import Link


class Network(nnx.Module):
    """What training and prediction ask of a network.

    As it stands it has no index: the axis s has whatever length it has, and the numbers
    repeat along it.
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


_Config = TypeVar("_Config", bound=type[NetworkConfig])
_NETWORKS: dict[str, type[NetworkConfig]] = {}
NETWORKS: Mapping[str, type[NetworkConfig]] = types.MappingProxyType(_NETWORKS)
"""Every network configuration that has a kind, by it; `register_network` adds one."""


def register_network(config_class: _Config) -> _Config:
    """Makes a kind of network known to recipes and files; usable as a decorator.

    Args:
      config_class: a frozen dataclass with `kind` and `make`, as `NetworkConfig` says.

    Returns:
      The class itself.

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
      >>> del _NETWORKS["shallow"]  # this example leaves nothing behind
    """
    kind = getattr(config_class, "kind", None)
    params = getattr(config_class, "__dataclass_params__", None)
    if not isinstance(kind, str) or params is None or not params.frozen:
        raise pb.InputError(
            "config_class",
            "must be a frozen dataclass with a class variable `kind`, got "
            f"{config_class!r}.",
        )
    known = _NETWORKS.get(kind, config_class)
    # A cell of a notebook that runs again defines the same class once more.
    if (known.__module__, known.__qualname__) != (
        config_class.__module__,
        config_class.__qualname__,
    ):
        raise pb.InputError(
            "kind",
            f"{kind!r} is taken by {known.__qualname__}; known are "
            f"{sorted(_NETWORKS)}.",
        )
    _NETWORKS[kind] = config_class
    return config_class


def network_to_json(config: NetworkConfig) -> dict[str, Any]:
    """Returns a config as nested plain values, its kind among them."""
    return {"kind": config.kind, **dataclasses.asdict(typing.cast(Any, config))}


def network_from_json(values: Mapping[str, Any]) -> NetworkConfig:
    """Rebuilds a config; raises if its kind or a field is unknown."""
    fields = dict(values)
    kind = fields.pop("kind", None)
    if kind not in NETWORKS:
        raise pb.InputError(
            "kind",
            f"must be one of {sorted(NETWORKS)}, got {kind!r}; a network of your own is "
            "made known by register_network.",
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
