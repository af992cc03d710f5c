"""A fitted model: probabilities for new people, draws of them, and its files."""

import functools
import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pns_bounds as pb
from flax import nnx

from pns_models._checkpoints import from_numbered_leaves, numbered_leaves
from pns_models._errors import DamagedModelError, NoDrawsError
from pns_models._links import atoms_from_raw
from pns_models._network import Network
from pns_models._recipe import Recipe
from pns_models._standardizer import Standardizer

_FORMAT = 1
_ROWS = 8192  # people per compiled call


class FittedModel:
    """A network with the standardizer of its training data.

    Attributes:
      network: the trained network, on standardized covariates.
      recipe: how it was made.
      standardizer: applied to covariates first.
    """

    def __init__(self, network: Network, recipe: Recipe, standardizer: Standardizer):
        """Puts the parts together."""
        self.network = network
        self.recipe = recipe
        self.standardizer = standardizer
        self._structure, self._state = nnx.split(network)

    @property
    def num_covariates(self) -> int:
        """How many covariates a person has."""
        return len(self.standardizer.mean)

    @property
    def is_epistemic(self) -> bool:
        """Whether the model has draws."""
        return self.network.is_epistemic

    def atoms(self, z: Any) -> pb.Atoms:
        """Estimates the atoms of people z [n, d], as NumPy arrays [n].

        For an epistemic network this is the link of the mean raw numbers.
        """
        indices = self.network.central_indices()
        parts = [
            jax.tree.map(
                lambda leaf, count=count: np.asarray(leaf)[:count],
                _central_atoms(self._structure, self._state, block, indices),
            )
            for block, count in _blocks(self.standardizer(z))
        ]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def stream_draws(
        self, key: jax.Array, z: Any, num_draws: int, draws_per_chunk: int = 16
    ) -> Iterator[pb.Atoms]:
        """Yields draws of the atoms a few at a time, in bounded memory.

        Args:
          key: decides the indices; the first draws do not depend on `num_draws`.
          z: people [n, d].
          num_draws: how many in all.
          draws_per_chunk: how many at a time.

        Yields:
          Atoms [at most draws_per_chunk, n]. Within a draw all people share an index.
        """
        if not self.is_epistemic:
            raise NoDrawsError(
                f"a network of kind {self.recipe.network.kind!r} has no draws; train a "
                "hypermodel, an epinet or an ensemble, or bootstrap it."
            )
        for name, value in (
            ("num_draws", num_draws),
            ("draws_per_chunk", draws_per_chunk),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        indices = self.network.draw_indices(key, num_draws)
        codes = [
            (_encoded(self._structure, self._state, block), count)
            for block, count in _blocks(self.standardizer(z))
        ]
        # The last chunk repeats indices, so that one program serves all.
        missing = -num_draws % draws_per_chunk
        filled = jnp.concatenate([indices, jnp.repeat(indices[:1], missing, axis=0)])
        for start in range(0, num_draws, draws_per_chunk):
            some = filled[start : start + draws_per_chunk]
            keep = min(draws_per_chunk, num_draws - start)
            parts = [
                jax.tree.map(
                    lambda leaf, keep=keep, count=count: np.asarray(leaf)[
                        :keep, :count
                    ],
                    _drawn_atoms(self._structure, self._state, code, some),
                )
                for code, count in codes
            ]
            yield jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)

    def draws(self, key: jax.Array, z: Any, num_draws: int) -> pb.Atoms:
        """Draws atoms of people z [n, d]: NumPy arrays [num_draws, n].

        Each draw is one coherent law for everybody; their deviation over draws stands
        for estimation error. The result takes 24 bytes per draw and person, and twice that
        while it is put together; `stream_draws` does not.
        """
        parts = list(self.stream_draws(key, z, num_draws))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the model: arrays with orbax, the rest as JSON.

        Args:
          folder: must not exist yet; it appears when complete.
        """
        folder = Path(folder).absolute()
        if folder.exists():
            raise ValueError(f"{folder} exists already; name a new folder.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(aside / "arrays", numbered_leaves(self._state))
            card = {
                "format": _FORMAT,
                "version": importlib.metadata.version("pns-models"),
                "files": _digests(aside / "arrays"),
                "recipe": self.recipe.to_json(),
                "standardizer": {
                    name: value.tolist()
                    for name, value in self.standardizer._asdict().items()
                },
            }
            (aside / "model.json").write_text(json.dumps(card, indent=1) + "\n")
            aside.chmod(0o755)
            aside.rename(folder)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise


def load(folder: str | os.PathLike) -> FittedModel:
    """Reads a model that `FittedModel.save` wrote; predictions are bit for bit the same.

    Args:
      folder: the model.

    Raises:
      DamagedModelError: if the folder holds no model, an incomplete one, or one of a
        format that this version cannot read.
    """
    folder = Path(folder).absolute()
    try:
        card = json.loads((folder / "model.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise DamagedModelError(
            f"{folder} holds no model: model.json: {error}."
        ) from error
    if not isinstance(card, dict) or card.get("format") != _FORMAT:
        found = card.get("format") if isinstance(card, dict) else None
        raise DamagedModelError(
            f"{folder} is in format {found}, and this version of pns-models reads "
            f"format {_FORMAT}; load it with the version that wrote it "
            f"({card.get('version') if isinstance(card, dict) else 'unknown'})."
        )
    try:
        recipe = Recipe.from_json(card["recipe"])
        stored = card["standardizer"]
        standardizer = Standardizer(
            mean=np.array(stored["mean"], np.float32),
            deviation=np.array(stored["deviation"], np.float32),
            constant=np.array(stored["constant"], bool),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedModelError(
            f"{folder}: model.json does not fit: {error}."
        ) from error
    if _digests(folder / "arrays") != card.get("files"):
        raise DamagedModelError(
            f"{folder}: its arrays cannot be read: files are missing, cut short or "
            "changed; copy the whole folder again."
        )
    network = recipe.network.make(jax.random.key(0), len(standardizer.mean))
    structure, state = nnx.split(network)
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            arrays = checkpointer.restore(folder / "arrays")
        state = from_numbered_leaves(arrays, state)
    except (OSError, ValueError, KeyError) as error:
        raise DamagedModelError(
            f"{folder}: its arrays cannot be read: {error}"
        ) from error
    return FittedModel(nnx.merge(structure, state), recipe, standardizer)


def _digests(folder: Path) -> dict[str, str]:
    """Hashes every file below a folder, so that damage is found before it is read."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _blocks(z: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Cuts people into blocks of few shapes; the last is filled up with zeros."""
    size = min(_ROWS, max(256, -(-len(z) // 256) * 256))
    for start in range(0, max(len(z), 1), size):
        block = z[start : start + size]
        count = len(block)
        missing = np.zeros((size - count, z.shape[1]), z.dtype)
        yield np.concatenate([block, missing]), count


@functools.partial(jax.jit, static_argnums=0)
def _central_atoms(structure, state, z, indices):
    network = nnx.merge(structure, state)
    return atoms_from_raw(network.raw(z, indices).mean(axis=0), network.link)


@functools.partial(jax.jit, static_argnums=0)
def _encoded(structure, state, z):
    return nnx.merge(structure, state).encode(z)


@functools.partial(jax.jit, static_argnums=0)
def _drawn_atoms(structure, state, code, indices):
    network = nnx.merge(structure, state)
    return atoms_from_raw(network.decode(code, indices), network.link)
