"""The epinet: a small index-conditioned head on an anchored net."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray
from pns_bounds import BINARY

from pns_models._anchored import AnchoredNet
from pns_models._indexed import GaussianIndex, IndexedConfig
from pns_models._mlp import Frozen, Mlp
from pns_models._network import register_network

Code = tuple[Float[Array, "n d"], Float[Array, "n seen"], Float[Array, "n raw"]]


@register_network
@dataclasses.dataclass(frozen=True)
class EpinetConfig(IndexedConfig):
    """Makes an `Epinet`; `hidden` are the head's widths."""

    kind: ClassVar[str] = "epinet"

    def make(self, key: PRNGKeyArray, num_covariates: int) -> "Epinet":
        """Draws the network for a number of covariates."""
        return Epinet(num_covariates, self, nnx.Rngs(params=key))


class Epinet(GaussianIndex):
    """A base network plus a small index-conditioned head (Osband et al. 2023).

    The head sees the base's features, through which no gradient flows, the covariates
    and the index; its output is linear in the index once more. The prior is a frozen
    head on covariates and index. Both add to the raw numbers, before the anchoring link:
    every draw is a compatible law.
    """

    def __init__(self, num_covariates: int, config: EpinetConfig, rngs: nnx.Rngs):
        """Draws base, head and prior."""
        super().__init__(config.index_dim)
        width = config.backbone.width
        self.base = AnchoredNet(num_covariates, config.backbone, rngs)
        inputs = num_covariates + config.index_dim
        outputs = BINARY.num_raw * config.index_dim
        # Plain parameters: the decay of the head would make all draws equal.
        sizes = [width + inputs, *config.hidden, outputs]
        self.head = Mlp(sizes, rngs, kernel=nnx.Param)
        sizes = [inputs, *config.prior_hidden, outputs]
        self.prior = Mlp(sizes, rngs, kernel=Frozen, bias=Frozen)
        self.prior_scale = config.prior_scale

    def prior_raw(
        self, z: Float[Array, "n d"], indices: Float[Array, "s i"]
    ) -> Float[Array, "s n raw"]:
        """Computes what the frozen prior adds."""
        return self.prior_scale * self._contracted(self.prior, z, indices)

    def encode(self, z: Float[Array, "n d"]) -> Code:
        """Computes covariates, the head's inputs and the base's raw numbers."""
        features = self.base.features(z)
        seen = jnp.concatenate([jax.lax.stop_gradient(features), z], axis=-1)
        return z, seen, self.base.heads(features)

    def decode(
        self, code: Code, indices: Float[Array, "s i"]
    ) -> Float[Array, "s n raw"]:
        """Adds head and prior to the base's raw numbers."""
        z, seen, base = code
        raw = base + self._contracted(self.head, seen, indices)
        return raw if self.prior_scale == 0 else raw + self.prior_raw(z, indices)

    def _contracted(
        self, head: Mlp, inputs: Float[Array, "n k"], indices: Float[Array, "s i"]
    ) -> Float[Array, "s n raw"]:
        """Applies a head to inputs and indices, and multiplies its output by the index.

        The result is not linear in the index, which the hidden layers see. What is linear
        is taken out of the pass over units and indices: the first layer adds what it makes
        of the inputs to what it makes of the index, and the last layer's kernel meets the
        index before it meets the units, so that it has as many columns as there are raw numbers.
        """
        (kernel, bias), *middle, (last_kernel, last_bias) = zip(
            [kernel[...] for kernel in head.kernels],
            [bias[...] for bias in head.biases],
            strict=True,
        )
        width = inputs.shape[1]
        of_inputs = inputs @ kernel[:width] + bias
        of_indices = indices @ kernel[width:]
        # Divided so that the sum over the index keeps the head's scale.
        weights = indices / self.index_dim**0.5
        last_kernel = last_kernel.reshape(-1, BINARY.num_raw, self.index_dim)
        columns = jnp.einsum("hoi,si->sho", last_kernel, weights)
        offsets = weights @ last_bias.reshape(BINARY.num_raw, self.index_dim).T

        def one(
            of_index: Float[Array, " h"],
            columns: Float[Array, "h raw"],
            offset: Float[Array, " raw"],
        ) -> Float[Array, "n raw"]:
            values = jax.nn.relu(of_inputs + of_index)
            for kernel, bias in middle:
                values = jax.nn.relu(values @ kernel + bias)
            return values @ columns + offset

        return jax.vmap(one)(of_indices, columns, offsets)
