"""What hypermodel and epinet share: a Gaussian index, and how they are described."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import stats

from pns_models._backbone import Backbone
from pns_models._network import Network

_LEAST_BASES, _LEAST_PAIRS = 4, 64  # of the point estimate's indices


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
        """Checks what would only fail later."""
        object.__setattr__(self, "hidden", tuple(self.hidden))
        object.__setattr__(self, "prior_hidden", tuple(self.prior_hidden))
        widths = (*self.hidden, *self.prior_hidden)
        if not self.hidden or not self.prior_hidden or min(widths) < 1:
            raise pb.InputError(
                "hidden",
                "and prior_hidden must have one width or more, each at least 1, got "
                f"{self.hidden} and {self.prior_hidden}.",
            )
        if self.index_dim < 1:
            raise pb.InputError(
                "index_dim", f"must be at least 1, got {self.index_dim}."
            )
        if not 0 <= self.prior_scale < float("inf"):
            raise pb.InputError(
                "prior_scale",
                f"must be finite and not negative, got {self.prior_scale}.",
            )


class GaussianIndex(Network):
    """A network whose indices are drawn from N(0, I)."""

    def __init__(self, index_dim: int):
        """Keeps the length of an index."""
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
        """Draws the indices of one training step."""
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
