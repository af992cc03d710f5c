"""The files of a fitted model: arrays with orbax, the rest as JSON."""

import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pns_bounds as pb
from flax import nnx

from pns_models._arrays import load_arrays, save_arrays
from pns_models._errors import DamagedModelError
from pns_models._network import Network
from pns_models._recipe import Recipe
from pns_models._standardizer import Standardizer

_FORMAT = 2
_READERS = {1: "0.1"}  # the versions of pns-models that read older formats


def write_model(
    folder: str | os.PathLike,
    network: Network,
    recipe: Recipe,
    standardizer: Standardizer,
) -> None:
    """Writes a model into a folder that must not exist; it appears when complete."""
    folder = Path(folder).absolute()
    if folder.exists():
        raise pb.InputError("folder", f"must be a new one, {folder} exists already.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        save_arrays(part / "arrays", nnx.state(network))
        card = {
            "format": _FORMAT,
            "version": importlib.metadata.version("pns-models"),
            "files": _digests(part / "arrays"),
            "recipe": recipe.to_json(),
            "standardizer": {
                name: value.tolist() for name, value in standardizer._asdict().items()
            },
        }
        (part / "model.json").write_text(json.dumps(card, indent=1) + "\n")
        part.chmod(0o755)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


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
    return _read_network(folder, recipe, len(standardizer.mean)), recipe, standardizer


def _read_card(folder: Path) -> dict[str, Any]:
    try:
        card = json.loads((folder / "model.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise DamagedModelError(
            f"{folder} holds no model: model.json: {error}."
        ) from error
    found, version = None, None
    if isinstance(card, dict):
        found, version = card.get("format"), card.get("version")
    if found != _FORMAT:
        reader = _READERS.get(found, version) if isinstance(found, int) else version
        raise DamagedModelError(
            f"{folder} is in format {found}, and this version of pns-models reads "
            f"format {_FORMAT}; load it with pns-models {reader or 'that wrote it'}."
        )
    return card


def _read_network(folder: Path, recipe: Recipe, num_covariates: int) -> Network:
    structure, state = nnx.split(
        nnx.eval_shape(lambda: recipe.network.make(jax.random.key(0), num_covariates))
    )
    try:
        state = load_arrays(folder / "arrays", state)
    except (OSError, ValueError, KeyError) as error:
        raise DamagedModelError(
            f"{folder}: its arrays do not have the names and shapes of a network of "
            f"kind {recipe.network.kind!r} with the sizes in model.json."
        ) from error
    return nnx.merge(structure, state)


def _digests(folder: Path) -> dict[str, str]:
    """Hashes every file below a folder, so that damage is found before it is read."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
