"""A fitted model: probabilities for new rows, draws of them, and its plain functions."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from flax import nnx
from jaxtyping import Array, Float, Num, PRNGKeyArray
from numpy.typing import ArrayLike

from pns_models._anchored import AnchoredNet, BootstrapEnsemble
from pns_models._errors import NoDrawsError, require
from pns_models._files import read_model, write_model
from pns_models._links import atoms_from_raw, log_probabilities
from pns_models._network import Network
from pns_models._placement import spread_rows
from pns_models._recipe import Recipe
from pns_models._standardizer import Standardizer

_LEAST_ROWS, _ROWS = 256, 8192  # rows per compiled call
_DRAW_ROWS, _DRAWS = 1024, 64  # rows and indices per compiled call, for `draws`
_CACHED_INDICES = 4  # of those, at a time
_CENTRAL_INDICES = 16  # at a time, for the point estimate


class FittedModel:
    """A network with the standardizer of its training data.

    Attributes:
      network: the trained network, on standardized covariates.
      recipe: how it was made.
      standardizer: applied to covariates first.
    """

    def __init__(self, network: Network, recipe: Recipe, standardizer: Standardizer):
        self.network = network
        self.recipe = recipe
        self.standardizer = standardizer
        self._split = nnx.split(network)  # structure and state

    @property
    def is_epistemic(self) -> bool:
        """Whether the model has draws."""
        return self.network.is_epistemic

    def atoms(self, z: ArrayLike) -> pb.Atoms:
        """Estimates the atoms of rows z [n, d], as NumPy arrays [n].

        For an epistemic network this is the link of the mean raw numbers: over all
        members of an ensemble, over fixed indices of a hypermodel or an epinet (160 if
        they have 20 entries), which balance each other.
        """
        indices = self.network.central_indices()
        parts = []
        for block, count in self._blocks(z):
            atoms = _central_atoms(*self._split, block, indices)
            parts.append([np.asarray(leaf)[:count] for leaf in atoms])
        return pb.Atoms(*map(np.concatenate, zip(*parts, strict=True)))

    def member_raw(self, z: ArrayLike) -> Float[np.ndarray, "m n raw"]:
        """Computes the raw numbers of every member of an ensemble."""
        if not isinstance(self.network, BootstrapEnsemble):
            raise pb.InputError(
                "model", f"must be an ensemble, got {self.recipe.network.kind!r}."
            )
        parts = [
            np.asarray(_encoded(*self._split, block))[:, :count]
            for block, count in self._blocks(z)
        ]
        return np.concatenate(parts, axis=1)

    def draws(self, key: PRNGKeyArray, z: ArrayLike, num_draws: int) -> pb.Atoms:
        """Draws atoms of rows z [n, d]: NumPy arrays [num_draws, n].

        Each draw is one coherent law for all rows; their deviation over draws stands
        for estimation error. The result takes 24 bytes per draw and row. If that is too
        much, draw for blocks of rows with the same key: they share the draws' indices.
        The draws of a row are contiguous in memory.

        Raises:
          NoDrawsError: if the network has no index.
        """
        indices = self.draw_indices(key, num_draws)
        # The first is repeated until one program serves all.
        missing = np.repeat(indices[:1], -num_draws % _DRAWS, axis=0)
        indices = np.concatenate([indices, missing])
        z = self.standardizer.check(z)
        shape = pb.BINARY.joint_shape
        joint = np.empty((len(z), *shape, num_draws), np.float32)
        mu = np.empty((len(z), shape[0], num_draws), np.float32)
        row = 0
        for block, count in self._blocks(z, _DRAW_ROWS):
            code = _encoded(*self._split, block)
            for start in range(0, num_draws, _DRAWS):
                some = indices[start : start + _DRAWS]
                keep = min(_DRAWS, num_draws - start)
                drawn = _drawn_atoms(*self._split, code, some)
                for whole, part in zip((joint, mu), drawn, strict=True):
                    kept = np.asarray(part)[:count, ..., :keep]
                    whole[row : row + count, ..., start : start + keep] = kept
            row += count
        return pb.Atoms(np.moveaxis(joint, -1, 0), np.moveaxis(mu, -1, 0))

    def draw_indices(
        self, key: PRNGKeyArray, num_draws: int
    ) -> Float[np.ndarray, "{num_draws} i"]:
        """Draws the indices of `draws` with the same key."""
        if not self.is_epistemic:
            raise NoDrawsError(
                f"a network of kind {self.recipe.network.kind!r} has no draws; train a "
                "hypermodel, an epinet or an ensemble, or bootstrap it."
            )
        require(num_draws >= 1, "num_draws", f"must be at least 1, got {num_draws}.")
        structure, state = self._split
        return np.asarray(_drawn_indices(structure, num_draws, state, key))

    def _blocks(
        self, z: ArrayLike, most_rows: int | None = None
    ) -> Iterator[tuple[Float[Array | np.ndarray, "size d"], int]]:
        """Yields standardized blocks, and how many of the rows of each were given.

        Zeros fill the last one up to a power of 2. So a program is compiled a few times at
        the most, whatever the number of rows.
        """
        z = self.standardizer.check(z)
        most_rows = _ROWS if most_rows is None else most_rows
        for start in range(0, max(len(z), 1), most_rows):
            block = self.standardizer(z[start : start + most_rows])
            count = len(block)
            size = max(_LEAST_ROWS, 1 << max(count - 1, 0).bit_length())
            missing = np.zeros((size - count, z.shape[1]), z.dtype)
            yield spread_rows(np.concatenate([block, missing])), count

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the model into a folder that must not exist; it appears when complete."""
        write_model(folder, self.network, self.recipe, self.standardizer)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "FittedModel":
        """Reads what `save` wrote; predictions are bit for bit the same.

        Raises:
          DamagedModelError: if the folder holds no model, an incomplete one, or one of a
            format that this version cannot read.

        Example:
          >>> import tempfile
          >>> import jax
          >>> import numpy as np
          >>> import pns_models as pm
          >>> config = pm.AnchoredConfig(pm.Backbone(width=4, depth=0))
          >>> network = config.make(jax.random.key(0), num_covariates=1)
          >>> scale = pm.Standardizer(np.zeros(1), np.ones(1), np.zeros(1, bool))
          >>> model = pm.FittedModel(network, pm.Recipe(config), scale)
          >>> z = np.array([[0.5], [-1.0]])
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     model.save(f"{folder}/model")
          ...     loaded = pm.FittedModel.load(f"{folder}/model")
          >>> bool(np.array_equal(loaded.atoms(z).mu, model.atoms(z).mu))
          True
        """
        return cls(*read_model(folder))

    def plain_functions(self) -> "PlainFunctions":
        """Takes an anchored model apart, for inference that knows no modules."""
        network = self.network
        if not isinstance(network, AnchoredNet):
            raise pb.InputError(
                "model",
                f"must be of kind 'anchored', got {self.recipe.network.kind!r}.",
            )
        body, body_params = nnx.split((network.body,))
        head, head_params = nnx.split((network.joint_head, network.delta_head))
        return PlainFunctions(
            features=_Layers(body),
            head=_Layers(head),
            params=(body_params, head_params),
            frozen_nll=_frozen_nll,
        )


class PlainFunctions(NamedTuple):
    """What a bootstrap needs of an anchored model, on standardized covariates.

    The functions of two models of the same structure are equal, so what takes them as
    static arguments compiles once for both.

    Attributes:
      features: maps body parameters and z [n, d] to features [n, width].
      head: maps head parameters and features [n, width] to raw numbers [n, raw].
      params: the fitted pair (body, head).
      frozen_nll: maps raw numbers, frozen raw numbers and counts [n, counts] to the negative
        log-likelihood of each row [n]; the joint law inside mu is that of the frozen
        numbers, as in training.
    """

    features: Callable[[Any, jax.Array], jax.Array]
    head: Callable[[Any, jax.Array], jax.Array]
    params: tuple[Any, Any]
    frozen_nll: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class _Layers:
    """Applies layers to the same inputs, and puts their outputs side by side."""

    structure: nnx.GraphDef

    def __call__(self, params: Any, inputs: Float[Array, "n k"]) -> Float[Array, "n m"]:
        layers = nnx.merge(self.structure, params)
        return jnp.concatenate([layer(inputs) for layer in layers], axis=-1)


def _frozen_nll(
    raw: Float[Array, "n raw"],
    frozen: Float[Array, "n raw"],
    counts: Num[Array, "n counts"],
) -> Float[Array, " n"]:
    size = pb.BINARY.num_cells
    mixed = jnp.concatenate([frozen[:, :size], raw[:, size:]], axis=1)
    joint = log_probabilities(raw, "anchored").joint
    outcome = log_probabilities(mixed, "anchored").outcome
    flat = jnp.concatenate(
        [p.reshape(len(raw), size) for p in (joint, outcome)], axis=1
    )
    return -jnp.sum(counts * flat, axis=1)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _drawn_indices(
    structure: nnx.GraphDef, num: int, state: Any, key: PRNGKeyArray
) -> Float[Array, "{num} i"]:
    return nnx.merge(structure, state).draw_indices(key, num)


@functools.partial(jax.jit, static_argnums=0)
def _central_atoms(
    structure: nnx.GraphDef,
    state: Any,
    z: Float[Array, "n d"],
    indices: Float[Array, "s i"],
) -> pb.Atoms:
    network = nnx.merge(structure, state)
    code = network.encode(z)
    # A few indices at a time: memory does not grow with their number.
    num, size = len(indices), math.gcd(len(indices), _CENTRAL_INDICES)
    chunks = indices.reshape(num // size, size, indices.shape[1])
    sums = jax.lax.map(lambda some: network.decode(code, some).sum(axis=0), chunks)
    return atoms_from_raw(sums.sum(axis=0) / num, network.link)


@functools.partial(jax.jit, static_argnums=0)
def _encoded(structure: nnx.GraphDef, state: Any, z: Float[Array, "n d"]) -> Any:
    return nnx.merge(structure, state).encode(z)


@functools.partial(jax.jit, static_argnums=0)
def _drawn_atoms(
    structure: nnx.GraphDef, state: Any, code: Any, indices: Float[Array, "s i"]
) -> pb.Atoms:
    """Draws atoms with the draws on the last axis: joint [n, 2, 2, s], mu [n, 2, s]."""
    network = nnx.merge(structure, state)
    # A few indices at a time: what the layers hold stays in the processor's cache.
    chunks = indices.reshape(-1, _CACHED_INDICES, indices.shape[1])
    raw = jax.lax.map(lambda some: network.decode(code, some), chunks)
    atoms = atoms_from_raw(raw.reshape(len(indices), *raw.shape[2:]), network.link)
    return pb.Atoms(*(jnp.moveaxis(part, 0, -1) for part in atoms))
