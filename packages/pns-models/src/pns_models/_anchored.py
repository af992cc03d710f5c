"""The anchored net, bootstrap ensembles of it, and the paper's baselines.

Atoms of anchored nets cannot contradict probability theory; the baselines model joint
law and outcomes separately, and may.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray
from pns_bounds import BINARY

from pns_models._errors import require
from pns_models._links import Link
from pns_models._network import (
    Backbone,
    Network,
    affine,
    map_networks,
    register_network,
)


@register_network
@dataclasses.dataclass(frozen=True)
class AnchoredConfig:
    """Makes an `AnchoredNet`."""

    kind: ClassVar[str] = "anchored"
    backbone: Backbone = dataclasses.field(default_factory=Backbone)

    def make(self, key: PRNGKeyArray, num_covariates: int) -> "AnchoredNet":
        """Draws the network for a number of covariates."""
        return AnchoredNet(num_covariates, self.backbone, nnx.Rngs(params=key))


class AnchoredNet(Network):
    """Shared features, a joint head and two delta heads (section 3.1)."""

    def __init__(self, num_covariates: int, backbone: Backbone, rngs: nnx.Rngs):
        self.body = backbone.body(num_covariates, rngs)
        self.joint_head = backbone.head(BINARY.num_cells, rngs)
        self.delta_head = backbone.head(BINARY.num_free, rngs)

    def features(self, z: Float[Array, "n d"]) -> Float[Array, "n width"]:
        return self.body(z)

    def heads(self, features: Float[Array, "n width"]) -> Float[Array, "n raw"]:
        """Maps features to raw numbers, by one product for both heads."""
        both = (self.joint_head, self.delta_head)
        kernel = jnp.concatenate([head.kernels[0][...] for head in both], axis=1)
        bias = jnp.concatenate([head.biases[0][...] for head in both])
        return affine(features.T, kernel, bias, self.body.matmul_dtype).T

    def encode(self, z: Float[Array, "n d"]) -> Float[Array, "n raw"]:
        return self.heads(self.features(z))


@register_network
@dataclasses.dataclass(frozen=True)
class EnsembleConfig:
    """Makes a `BootstrapEnsemble`.

    Attributes:
      backbone: of every member.
      num_members: at least 1; draws need 2.
    """

    kind: ClassVar[str] = "ensemble"
    backbone: Backbone = dataclasses.field(default_factory=Backbone)
    num_members: int = 20

    def __post_init__(self):
        require(
            self.num_members >= 1,
            "num_members",
            f"must be at least 1, got {self.num_members}.",
        )

    def make(self, key: PRNGKeyArray, num_covariates: int) -> "BootstrapEnsemble":
        """Draws the members for a number of covariates."""
        return BootstrapEnsemble(num_covariates, self, nnx.Rngs(params=key))


class BootstrapEnsemble(Network):
    """Independently initialized anchored nets, each with its own data weights.

    An index is a vector of weights on the members: raw = sum_k index_k raw_k. Training
    uses the unit vectors. Draws use 1/K + (g - mean g) / sqrt(K - 1) with g ~ N(0, I),
    whose raw numbers have the members' mean and covariance: a Gaussian with as many
    draws as one likes.
    """

    def __init__(self, num_covariates: int, config: EnsembleConfig, rngs: nnx.Rngs):
        @nnx.split_rngs(splits=config.num_members)
        @nnx.vmap
        def make(rngs: nnx.Rngs) -> AnchoredNet:
            return AnchoredNet(num_covariates, config.backbone, rngs)

        self.members = make(rngs)
        self._num_members = config.num_members

    @property
    def index_dim(self) -> int:
        return self._num_members

    def encode(self, z: Float[Array, "n d"]) -> Float[Array, "k n raw"]:
        """Maps covariates to the members' raw numbers."""
        structure, state = nnx.split(self.members)
        return map_networks(
            lambda member: nnx.merge(structure, member).encode(z), state
        )

    def decode(
        self, code: Float[Array, "k n raw"], indices: Float[Array, "s k"]
    ) -> Float[Array, "s n raw"]:
        """Weights members by indices."""
        # Highest precision: unit vectors must pick their member exactly.
        return jnp.einsum("sk,kni->sni", indices, code, precision="highest")

    def training_indices(self, key: PRNGKeyArray, num: int) -> Float[Array, "k k"]:
        """Returns every member, at every step."""
        del key, num
        return jnp.eye(self.index_dim)

    def draw_indices(self, key: PRNGKeyArray, num: int) -> Float[Array, "{num} k"]:
        """Draws weights of the members; the first do not depend on `num`."""
        normal = jax.random.normal(key, (num, self.index_dim))
        centered = normal - normal.mean(axis=1, keepdims=True)
        return 1 / self.index_dim + centered / (self.index_dim - 1) ** 0.5

    def central_indices(self) -> Float[Array, "1 k"]:
        """Returns equal weights."""
        return jnp.asarray(np.full((1, self.index_dim), 1 / self.index_dim, np.float32))

    def noise_directions(
        self, key: PRNGKeyArray, shape: tuple[int, ...]
    ) -> Float[Array, "*shape k"]:
        """Draws one normal number per member: unit vectors pick theirs."""
        return jax.random.normal(key, (*shape, self.index_dim))


@register_network
@dataclasses.dataclass(frozen=True)
class SLearnerConfig:
    """Makes an `SLearner`."""

    kind: ClassVar[str] = "s_learner"
    backbone: Backbone = dataclasses.field(default_factory=Backbone)

    def make(self, key: PRNGKeyArray, num_covariates: int) -> Network:
        """Draws the networks for a number of covariates."""
        return SLearner(num_covariates, self.backbone, nnx.Rngs(params=key))


@register_network
@dataclasses.dataclass(frozen=True)
class TLearnerConfig:
    """Makes a `TLearner`."""

    kind: ClassVar[str] = "t_learner"
    backbone: Backbone = dataclasses.field(default_factory=Backbone)

    def make(self, key: PRNGKeyArray, num_covariates: int) -> Network:
        """Draws the networks for a number of covariates."""
        return TLearner(num_covariates, self.backbone, nnx.Rngs(params=key))


class SLearner(Network):
    """A joint model, and one outcome model that takes the arm as a covariate."""

    link: ClassVar[Link] = "free"

    def __init__(self, num_covariates: int, backbone: Backbone, rngs: nnx.Rngs):
        self.joint = backbone.mlp(num_covariates, BINARY.num_cells, rngs)
        self.outcome = backbone.mlp(num_covariates + 1, 1, rngs)

    def encode(self, z: Float[Array, "n d"]) -> Float[Array, "n raw"]:
        arms = [
            self.outcome(jnp.concatenate([z, jnp.full_like(z[:, :1], arm)], axis=-1))
            for arm in (0.0, 1.0)
        ]
        return jnp.concatenate([self.joint(z), *arms], axis=-1)


class TLearner(Network):
    """A joint model, and one outcome model for each arm."""

    link: ClassVar[Link] = "free"

    def __init__(self, num_covariates: int, backbone: Backbone, rngs: nnx.Rngs):
        self.joint = backbone.mlp(num_covariates, BINARY.num_cells, rngs)
        self.arms = nnx.List([backbone.mlp(num_covariates, 1, rngs) for _ in (0, 1)])

    def encode(self, z: Float[Array, "n d"]) -> Float[Array, "n raw"]:
        return jnp.concatenate([self.joint(z), *(arm(z) for arm in self.arms)], axis=-1)
