"""The paper's baselines: separate joint and outcome models, free to contradict."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray
from pns_bounds import BINARY

from pns_models._backbone import Backbone
from pns_models._links import Link
from pns_models._network import Network, register_network


@register_network
@dataclasses.dataclass(frozen=True)
class SLearnerConfig:
    """Makes an `SLearner`."""

    kind: ClassVar[str] = "s_learner"
    backbone: Backbone = dataclasses.field(default_factory=Backbone)

    def make(self, key: PRNGKeyArray, num_covariates: int) -> "SLearner":
        """Draws the networks for a number of covariates."""
        return SLearner(num_covariates, self.backbone, nnx.Rngs(params=key))


@register_network
@dataclasses.dataclass(frozen=True)
class TLearnerConfig:
    """Makes a `TLearner`."""

    kind: ClassVar[str] = "t_learner"
    backbone: Backbone = dataclasses.field(default_factory=Backbone)

    def make(self, key: PRNGKeyArray, num_covariates: int) -> "TLearner":
        """Draws the networks for a number of covariates."""
        return TLearner(num_covariates, self.backbone, nnx.Rngs(params=key))


class SLearner(Network):
    """A joint model, and one outcome model that takes the arm as a covariate."""

    link: ClassVar[Link] = "free"

    def __init__(self, num_covariates: int, backbone: Backbone, rngs: nnx.Rngs):
        """Draws the networks for a number of covariates."""
        self.joint = backbone.mlp(num_covariates, BINARY.num_cells, rngs)
        self.outcome = backbone.mlp(num_covariates + 1, 1, rngs)

    def encode(self, z: Float[Array, "n d"]) -> Float[Array, "n raw"]:
        """Maps covariates to raw numbers."""
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
        self.joint = backbone.mlp(num_covariates, BINARY.num_cells, rngs)
        self.arms = nnx.List([backbone.mlp(num_covariates, 1, rngs) for _ in (0, 1)])

    def encode(self, z: Float[Array, "n d"]) -> Float[Array, "n raw"]:
        """Maps covariates to raw numbers."""
        return jnp.concatenate([self.joint(z), *(arm(z) for arm in self.arms)], axis=-1)
