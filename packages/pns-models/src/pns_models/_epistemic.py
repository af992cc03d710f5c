"""Networks with an epistemic index: hypermodel, epinet, bootstrap ensemble.

An index fixes a whole function of z, so a draw is coherent over people. All of them add
what the index does to the six raw numbers, before the anchoring link: every draw is a
compatible law.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from pns_models._networks import (
    AnchoredNet,
    Backbone,
    FlatNetwork,
    Mlp,
    Network,
    flatten_network,
    map_networks,
)


class Frozen(nnx.Variable):
    """A variable that is drawn once and never learns."""


class _GaussianIndex(Network):
    """Indices drawn from N(0, I)."""

    def __init__(self, index_dim: int):
        self._index_dim = index_dim

    @property
    def index_dim(self) -> int:
        """Length of an index."""
        return self._index_dim

    def draw_indices(self, key: jax.Array, num: int) -> jax.Array:
        """Draws indices [num, index_dim]; the first do not depend on `num`."""
        return jax.random.normal(key, (num, self.index_dim))

    def training_indices(self, key: jax.Array, num: int) -> jax.Array:
        """Draws the indices of one training step."""
        return self.draw_indices(key, num)

    def noise_directions(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draws unit vectors: c . index ~ N(0, 1) over the indices."""
        vectors = jax.random.normal(key, (*shape, self.index_dim))
        return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


class _ParameterGenerator(nnx.Module):
    """Maps an index to the parameter vector of a base network.

    The base network's initialisation is the output's bias, and the output's kernel varies
    each parameter by `spread` times its scale; both are divided so that a generated
    network has the scale of an initialised one, whatever the index.
    """

    def __init__(
        self,
        index_dim: int,
        hidden: Sequence[int],
        base: FlatNetwork,
        spread: float,
        variable: type[nnx.Variable],
        rngs: nnx.Rngs,
    ):
        # An Mlp has no activation at its end: it follows below, and the root of two
        # gives the last hidden layer the He scale as well.
        self.body = Mlp([index_dim, *hidden], rngs, variable=variable)
        kernel = jax.random.normal(rngs.params(), (hidden[-1], len(base.vector)))
        # Hidden units have a mean square of 1, so the sum over them has `spread`^2.
        shrink = (1 + spread**2) ** -0.5
        kernel = kernel * base.scale * spread * shrink / hidden[-1] ** 0.5
        self.kernel = variable(kernel)
        self.bias = variable(base.vector * shrink)

    def __call__(self, index: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(2**0.5 * self.body(index))
        return hidden @ self.kernel[...] + self.bias[...]


class Hypermodel(_GaussianIndex):
    """Generates the full parameter vector of an anchored net from an index.

    A second, frozen hypermodel with the same index is added to the raw numbers
    (app:architecture).
    """

    def __init__(
        self,
        num_covariates: int,
        backbone: Backbone,
        index_dim: int,
        hidden: Sequence[int],
        prior_hidden: Sequence[int],
        prior_scale: float,
        rngs: nnx.Rngs,
    ):
        """Draws both hypermodels.

        Args:
          num_covariates: of the base network.
          backbone: of the base network.
          index_dim: length of an index.
          hidden: widths of the hypernetwork's hidden layers.
          prior_hidden: those of the frozen one.
          prior_scale: factor of the prior's raw numbers.
          rngs: source of all initial numbers.
        """
        super().__init__(index_dim)
        base, prior = (
            flatten_network(AnchoredNet(num_covariates, backbone, rngs))
            for _ in range(2)
        )
        self._call = base.call
        # A learner that starts at unit spread does not train: a tenth does.
        self.learner = _ParameterGenerator(
            index_dim, hidden, base, 0.1, nnx.Param, rngs
        )
        self.prior = _ParameterGenerator(
            index_dim, prior_hidden, prior, 1.0, Frozen, rngs
        )
        self.prior_scale = prior_scale

    def prior_raw(self, z: jax.Array, indices: jax.Array) -> jax.Array:
        """Computes what the frozen prior adds [s, n, 6]."""
        return self.prior_scale * self._generated(self.prior, z, indices)

    def encode(self, z: jax.Array) -> jax.Array:
        """Returns z: everything depends on the index."""
        return z

    def decode(self, code: jax.Array, indices: jax.Array) -> jax.Array:
        """Generates networks for indices [s, index_dim]: raw numbers [s, n, 6]."""
        learned = self._generated(self.learner, code, indices)
        if self.prior_scale == 0:
            return learned
        return learned + self.prior_raw(code, indices)

    def central_indices(self) -> jax.Array:
        """Returns 32 fixed indices in opposite pairs."""
        half = jax.random.normal(jax.random.key(0), (16, self.index_dim))
        return jnp.concatenate([half, -half])

    def _generated(self, generator, z, indices):
        vectors = jax.vmap(generator)(indices)
        return map_networks(lambda vector: self._call(vector, z), vectors)


class Epinet(_GaussianIndex):
    """A base network plus a small index-conditioned head (Osband et al. 2023).

    The head sees the base's features, through which no gradient flows, the covariates
    and the index; its output is linear in the index once more. The prior is a frozen
    head on covariates and index.
    """

    def __init__(
        self,
        num_covariates: int,
        backbone: Backbone,
        index_dim: int,
        hidden: Sequence[int],
        prior_hidden: Sequence[int],
        prior_scale: float,
        rngs: nnx.Rngs,
    ):
        """Draws base, head and prior; arguments as for `Hypermodel`."""
        super().__init__(index_dim)
        self.base = AnchoredNet(num_covariates, backbone, rngs)
        inputs = num_covariates + index_dim
        outputs = 6 * index_dim
        self.head = Mlp([backbone.width + inputs, *hidden, outputs], rngs)
        self.prior = Mlp([inputs, *prior_hidden, outputs], rngs, variable=Frozen)
        self.prior_scale = prior_scale

    def prior_raw(self, z: jax.Array, indices: jax.Array) -> jax.Array:
        """Computes what the frozen prior adds [s, n, 6]."""
        return self.prior_scale * self._contracted(self.prior, z, indices)

    def encode(self, z: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Computes covariates, the head's inputs and the base's raw numbers."""
        features = self.base.features(z)
        seen = jnp.concatenate([jax.lax.stop_gradient(features), z], axis=-1)
        return z, seen, self.base.heads(features)

    def decode(self, code, indices: jax.Array) -> jax.Array:
        """Adds head and prior for indices [s, index_dim]: raw numbers [s, n, 6]."""
        z, seen, base = code
        raw = base + self._contracted(self.head, seen, indices)
        return raw if self.prior_scale == 0 else raw + self.prior_raw(z, indices)

    def central_indices(self) -> jax.Array:
        """Returns the index 0, which leaves the base network alone."""
        return jnp.zeros((1, self.index_dim))

    def _contracted(self, head: Mlp, inputs: jax.Array, indices: jax.Array):
        def one(index):
            repeated = jnp.broadcast_to(index, (len(inputs), self.index_dim))
            matrix = head(jnp.concatenate([inputs, repeated], axis=-1))
            # Divided so that the sum over the index keeps the head's scale.
            weights = index / self.index_dim**0.5
            return matrix.reshape(len(inputs), 6, self.index_dim) @ weights

        return jax.vmap(one)(indices)


class BootstrapEnsemble(Network):
    """Independently initialised anchored nets, each with its own data weights.

    An index is a vector of weights on the members: raw = sum_k index_k raw_k. Training
    uses the unit vectors. Draws use 1/K + (g - mean g) / sqrt(K - 1) with g ~ N(0, I),
    whose raw numbers have the members' mean and covariance: a Gaussian with as many
    draws as one likes.
    """

    def __init__(
        self,
        num_covariates: int,
        backbone: Backbone,
        num_members: int,
        rngs: nnx.Rngs,
    ):
        """Draws the members."""
        if num_members < 2:
            raise ValueError(f"num_members must be at least 2, got {num_members}.")

        @nnx.split_rngs(splits=num_members)
        @nnx.vmap
        def make(rngs):
            return AnchoredNet(num_covariates, backbone, rngs)

        self.members = make(rngs)
        self._num_members = num_members

    @property
    def index_dim(self) -> int:
        """The number of members."""
        return self._num_members

    def encode(self, z: jax.Array) -> jax.Array:
        """Maps z [n, d] to the members' raw numbers [num_members, n, 6]."""
        structure, state = nnx.split(self.members)
        return map_networks(
            lambda member: nnx.merge(structure, member).encode(z), state
        )

    def decode(self, code: jax.Array, indices: jax.Array) -> jax.Array:
        """Weights members by indices [s, num_members]: raw numbers [s, n, 6]."""
        # Highest precision: unit vectors must pick their member exactly.
        return jnp.einsum("sk,kni->sni", indices, code, precision="highest")

    def training_indices(self, key: jax.Array, num: int) -> jax.Array:
        """Returns every member, at every step."""
        del key, num
        return jnp.eye(self.index_dim)

    def draw_indices(self, key: jax.Array, num: int) -> jax.Array:
        """Draws weights [num, num_members]; the first do not depend on `num`."""
        normal = jax.random.normal(key, (num, self.index_dim))
        centred = normal - normal.mean(axis=1, keepdims=True)
        return 1 / self.index_dim + centred / (self.index_dim - 1) ** 0.5

    def central_indices(self) -> jax.Array:
        """Returns equal weights."""
        return jnp.full((1, self.index_dim), 1 / self.index_dim)

    def noise_directions(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draws one normal number per member: unit vectors pick theirs."""
        return jax.random.normal(key, (*shape, self.index_dim))
