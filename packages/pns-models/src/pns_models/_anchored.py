"""The anchored net: atoms that cannot contradict probability theory."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray
from pns_bounds import BINARY

from pns_models._backbone import Backbone
from pns_models._mlp import affine
from pns_models._network import Network, register_network


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
        """Draws the network for a number of covariates."""
        self.body = backbone.body(num_covariates, rngs)
        self.joint_head = backbone.head(BINARY.num_cells, rngs)
        self.delta_head = backbone.head(BINARY.num_free, rngs)

    def features(self, z: Float[Array, "n d"]) -> Float[Array, "n width"]:
        """Maps covariates to features."""
        return self.body(z)

    def heads(self, features: Float[Array, "n width"]) -> Float[Array, "n raw"]:
        """Maps features to raw numbers, by one product for both heads."""
        both = (self.joint_head, self.delta_head)
        kernel = jnp.concatenate([head.kernels[0][...] for head in both], axis=1)
        bias = jnp.concatenate([head.biases[0][...] for head in both])
        return affine(features.T, kernel, bias, self.body.matmul_dtype).T

    def encode(self, z: Float[Array, "n d"]) -> Float[Array, "n raw"]:
        """Maps covariates to raw numbers."""
        return self.heads(self.features(z))
