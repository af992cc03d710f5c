"""The Gaussian index, which hypermodel and epinet share, and the epinet.

An epinet is an anchored net with a small index-conditioned head.
"""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray
from pns_bounds import BINARY
from scipy import stats

from pns_models._anchored import AnchoredNet
from pns_models._errors import require
from pns_models._network import Backbone, Frozen, Mlp, Network, register_network

_LEAST_BASES, _LEAST_PAIRS = 4, 64  # of the point estimate's indices
Code = tuple[Float[Array, "n d"], Float[Array, "n seen"], Float[Array, "n raw"]]


@dataclasses.dataclass(frozen=True)
class IndexedConfig:
    """Sizes of a network with a Gaussian index and a frozen prior."""

    # Of the base network.
    backbone: Backbone = dataclasses.field(default_factory=Backbone)
    index_dim: int = 20  # length of an index
    hidden: tuple[int, ...] = (64, 64)  # widths of the index-conditioned part
    prior_hidden: tuple[int, ...] = (32, 32)  # the same for the frozen prior
    # Factor of the prior's raw numbers; 0 leaves the prior out.
    prior_scale: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "hidden", tuple(self.hidden))
        object.__setattr__(self, "prior_hidden", tuple(self.prior_hidden))
        widths = (*self.hidden, *self.prior_hidden)
        require(
            self.hidden and self.prior_hidden and min(widths) >= 1,
            "hidden",
            "and prior_hidden must have one width or more, each at least 1, got "
            f"{self.hidden} and {self.prior_hidden}.",
        )
        require(
            self.index_dim >= 1,
            "index_dim",
            f"must be at least 1, got {self.index_dim}.",
        )
        require(
            0 <= self.prior_scale < float("inf"),
            "prior_scale",
            f"must be finite and not negative, got {self.prior_scale}.",
        )


class GaussianIndex(Network):
    """A network whose indices are drawn from N(0, I)."""

    def __init__(self, index_dim: int):
        self._index_dim = index_dim

    @property
    def index_dim(self) -> int:
        """Length of an index."""
        return self._index_dim

    def draw_indices(self, key: PRNGKeyArray, num: int) -> Float[Array, "{num} i"]:
        """Draws indices; the first do not depend on `num`."""
        return jax.random.normal(key, (num, self.index_dim))

    def central_indices(self) -> Float[Array, "s i"]:
        """Returns fixed indices whose mean raw numbers stand for the mean over all.

        The raw numbers are not linear in the index, so that mean has no closed form; that
        of an epinet is not its base network, for the head sees the index that multiplies
        it.
        """
        return jnp.asarray(balanced_indices(self.index_dim), jnp.float32)

    def training_indices(self, key: PRNGKeyArray, num: int) -> Float[Array, "s i"]:
        return self.draw_indices(key, num)

    def noise_directions(
        self, key: PRNGKeyArray, shape: tuple[int, ...]
    ) -> Float[Array, "*shape i"]:
        """Draws unit vectors: c . index ~ N(0, 1) over the indices."""
        vectors = jax.random.normal(key, (*shape, self.index_dim))
        return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


@functools.cache
def balanced_indices(index_dim: int) -> Float[np.ndarray, "s i"]:
    """Makes indices whose mean replaces that of many draws from N(0, I).

    They are the axes of randomly rotated bases, and their opposites. Each basis has a
    length of its own, a quantile of the length of a draw. Means of polynomials of degree 3
    or less are exact, other functions are averaged over rotations and lengths.

    Returns:
      The axes of 4 bases, of more if `index_dim` is below 16: 160 indices for 20.
    """
    num = max(_LEAST_BASES, -(-_LEAST_PAIRS // index_dim))
    rng = np.random.default_rng(0)
    bases, _ = np.linalg.qr(rng.standard_normal((num, index_dim, index_dim)))
    lengths = np.sqrt(stats.chi2(index_dim).ppf((np.arange(num) + 0.5) / num))
    lengths *= (index_dim / np.mean(lengths**2)) ** 0.5
    half = (bases * lengths[:, None, None]).reshape(-1, index_dim)
    return np.concatenate([half, -half])


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
