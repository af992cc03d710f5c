"""The hypermodel: an index generates every parameter of an anchored net.

An index fixes a whole function of z, so a draw is coherent over units.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

import jax
import pns_bounds as pb
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from pns_models._anchored import AnchoredNet
from pns_models._enn_generator import EnnGenerator
from pns_models._flat_network import FlatNetwork, flatten_network, map_networks
from pns_models._indexed import GaussianIndex, IndexedConfig
from pns_models._mlp import Frozen, Kernel, Mlp
from pns_models._network import register_network


@register_network
@dataclasses.dataclass(frozen=True)
class HypermodelConfig(IndexedConfig):
    """Makes a `Hypermodel`; `hidden` are the hypernetwork's widths.

    Attributes:
      initialization: 'network' starts generated networks as initialized ones, a tenth of
        their scale apart in the learner; 'enn' as the ENN library does, constant in z and
        about half a logit apart (see `_enn_generator`).
    """

    kind: ClassVar[str] = "hypermodel"
    initialization: Literal["network", "enn"] = "network"

    def __post_init__(self):
        """Checks what would only fail later."""
        super().__post_init__()
        if self.initialization not in ("network", "enn"):
            raise pb.InputError(
                "initialization",
                f"must be 'network' or 'enn', got {self.initialization!r}.",
            )

    def make(self, key: PRNGKeyArray, num_covariates: int) -> "Hypermodel":
        """Draws the network for a number of covariates."""
        return Hypermodel(num_covariates, self, nnx.Rngs(params=key))


class Hypermodel(GaussianIndex):
    """Generates the full parameter vector of an anchored net from an index.

    A second, frozen hypermodel with the same index is added to the raw numbers
    (app:architecture), before the anchoring link: every draw is a compatible law.
    """

    def __init__(self, num_covariates: int, config: HypermodelConfig, rngs: nnx.Rngs):
        """Draws both hypermodels."""
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
        base: FlatNetwork,
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
