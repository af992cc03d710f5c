"""What is saved: trees of arrays, things that say their kind, and fitted models.

Arrays are kept by name with orbax and restored through an abstract target. It says which
names, shapes and types are expected, so that arrays of another network cannot take their
places.
"""

import hashlib
import importlib.metadata
import json
import os
import tempfile
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from pns_models._errors import DamagedModelError, require
from pns_models._network import Network, add_class
from pns_models._recipe import Recipe
from pns_models._standardizer import Standardizer

_KIND_FORMAT = 1
_CARD = "kind.json"
_MODEL_FORMAT = 2


def uncommitted(tree: Any) -> Any:
    """Frees arrays from the device they were restored to.

    Arrays that are bound to a device are another input to a compiled program than those
    that training makes, and would compile it again.
    """
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def orbax() -> Any:
    """Imports orbax, which takes 35 MB, when something is saved or loaded."""
    import orbax.checkpoint

    return orbax.checkpoint


def alone() -> Any:
    """Keeps orbax from waiting for other processes: the one that writes does so alone."""
    own = jax.process_index()
    return orbax().options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"only_{own}"
    )


def save_arrays(folder: Path, tree: Any) -> None:
    """Writes a tree of arrays, such as the state of a network, into a new folder."""
    if jax.process_count() > 1:
        tree = jax.tree.map(np.asarray, tree)  # orbax takes no arrays of one process
    with orbax().StandardCheckpointer(multiprocessing_options=alone()) as checkpointer:
        checkpointer.save(folder, tree)


def load_arrays(folder: Path, like: Any) -> Any:
    """Reads a tree that `save_arrays` wrote.

    Raises:
      ValueError: if names or shapes differ; other errors of orbax if files are damaged.
    """
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    target = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        like,
    )
    with orbax().StandardCheckpointer(multiprocessing_options=alone()) as checkpointer:
        stored = _shapes(checkpointer.metadata(folder).item_metadata.tree)
        if stored != _shapes(target):
            differ = sorted(set(stored.items()) ^ set(_shapes(target).items()))
            raise ValueError(f"the names or shapes of arrays differ: {differ}.")
        return uncommitted(checkpointer.restore(folder, target))


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """Lists the shapes of a tree's arrays by name."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape)
        for path, leaf in leaves
    }


class Saved(Protocol):
    """What can be saved by its kind."""

    kind: ClassVar[str]

    def save(self, folder: Path) -> None:
        """Writes files into a folder that exists."""
        ...

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote."""
        ...


Thing = TypeVar("Thing", bound=Saved)
Class = TypeVar("Class", bound=type)


class Kinds(Generic[Thing]):
    """The classes of one sort of thing, by the kind that a saved folder names.

    Example:
      >>> import pathlib, tempfile
      >>> shapes = Kinds("shapes")
      >>> @shapes.register
      ... class Circle:
      ...     kind = "circle"
      ...
      ...     def save(self, folder):
      ...         (folder / "radius").write_text("1")
      ...
      ...     @classmethod
      ...     def load(cls, folder):
      ...         return cls()
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     shapes.save(Circle(), pathlib.Path(folder) / "shape")
      ...     type(shapes.load(pathlib.Path(folder) / "shape")).__name__
      'Circle'
    """

    def __init__(self, noun: str):
        """Starts without any; the noun is for messages."""
        self._noun = noun
        self._classes: dict[str, type] = {}

    def register(self, cls: Class) -> Class:
        """Makes a class known by its `kind`; usable as a decorator."""
        add_class(self._classes, cls)
        return cls

    def save(self, thing: Thing, folder: Path) -> None:
        """Writes a thing and its kind to a new folder."""
        folder.mkdir()
        card = {"format": _KIND_FORMAT, "kind": thing.kind}
        (folder / _CARD).write_text(json.dumps(card) + "\n")
        thing.save(folder)

    def load(self, folder: Path) -> Thing:
        """Reads what `save` wrote; raises DamagedModelError if it cannot."""
        try:
            card = json.loads((folder / _CARD).read_text())
            found, kind = card["format"], card["kind"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedModelError(
                f"{folder} does not say which {self._noun} it holds; it is incomplete, or "
                "an older version wrote it."
            ) from error
        if found != _KIND_FORMAT or kind not in self._classes:
            raise DamagedModelError(
                f"{folder} holds {self._noun} of kind {kind!r} in format {found}; known "
                f"are {sorted(self._classes)} in format {_KIND_FORMAT}. A kind of your own must "
                "be registered before it is loaded."
            )
        return self._classes[kind].load(folder)


def write_model(
    folder: str | os.PathLike,
    network: Network,
    recipe: Recipe,
    standardizer: Standardizer,
) -> None:
    """Writes a model into a folder that must not exist; it appears when complete."""
    folder = Path(folder).absolute()
    require(
        not folder.exists(), "folder", f"must be a new one, {folder} exists already."
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{folder.name}-", dir=folder.parent
    ) as aside:
        part = Path(aside, folder.name)
        part.mkdir()
        save_arrays(part / "arrays", nnx.state(network))
        card = {
            "format": _MODEL_FORMAT,
            "version": importlib.metadata.version("pns-models"),
            "files": _digests(part / "arrays"),
            "recipe": recipe.to_json(),
            "standardizer": {
                name: value.tolist() for name, value in standardizer._asdict().items()
            },
        }
        (part / "model.json").write_text(json.dumps(card, indent=1) + "\n")
        part.rename(folder)


def read_model(folder: str | os.PathLike) -> tuple[Network, Recipe, Standardizer]:
    """Reads what `write_model` wrote, or raises DamagedModelError."""
    folder = Path(folder).absolute()
    card = _read_card(folder)
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
            f"{folder}: model.json does not fit: {error}"
        ) from error
    if _digests(folder / "arrays") != card.get("files"):
        raise DamagedModelError(
            f"{folder}: its arrays cannot be read: files are missing, cut short or "
            "changed; copy the whole folder again."
        )
    structure, state = nnx.split(
        nnx.eval_shape(
            lambda: recipe.network.make(jax.random.key(0), len(standardizer.mean))
        )
    )
    try:
        state = load_arrays(folder / "arrays", state)
    except (OSError, ValueError, KeyError) as error:
        raise DamagedModelError(
            f"{folder}: its arrays do not have the names and shapes of a network of "
            f"kind {recipe.network.kind!r} with the sizes in model.json."
        ) from error
    return nnx.merge(structure, state), recipe, standardizer


def _read_card(folder: Path) -> dict[str, Any]:
    try:
        card = json.loads((folder / "model.json").read_text())
        found = card["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedModelError(
            f"{folder} holds no model: model.json: {error}."
        ) from error
    if found != _MODEL_FORMAT:
        reader = "0.1" if found == 1 else card.get("version")
        raise DamagedModelError(
            f"{folder} is in format {found}, and this version of pns-models reads format "
            f"{_MODEL_FORMAT}; load it with pns-models {reader}."
        )
    return card


def _digests(folder: Path) -> dict[str, str]:
    """Hashes every file below a folder, so that damage is found before it is read."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
