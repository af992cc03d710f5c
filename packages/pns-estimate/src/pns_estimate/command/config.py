"""The file `config.json` of a run: written beside its results, and read to run it again."""

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from absl import flags

from pns_estimate._errors import Setting, UserError
from pns_estimate._state import FittedState
from pns_estimate.command import flags as _flags

_PACKAGES = (
    *("pns-estimate", "pns-bounds", "pns-infer", "pns-models"),
    *("flax", "jax", "lightgbm", "numpy", "pandas", "pyarrow", "scipy"),
)
_INPUTS = (_flags.OBSERVATIONAL, _flags.EXPERIMENTAL, _flags.PREDICT, _flags.LOAD)
_NO_FLAGS = ("versions", "files", "resolved")  # what the file has beside the flags
_BLOCK = 2**20  # bytes


def read_config() -> dict[str, Any]:
    """Sets the flags that were not given to those of `--config`; returns the file.

    Where to write is never taken from it, because that folder is full.
    """
    if _flags.CONFIG.value is None:
        return {}
    path = Path(_flags.CONFIG.value)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON; give another file.") from error
    if not _is_config(config):
        raise UserError(f"{path} is not the config.json of a run; give another file.")
    known = {flag.name for flag in _flags.SETTINGS}
    unknown = [name for name in config if name not in known and name not in _NO_FLAGS]
    if unknown:
        raise UserError(
            f"{path} has the setting {unknown[0]!r}, which this version does not know; "
            "remove it from the file."
        )
    for name in known & set(config) - {_flags.OUT.name}:
        flag = flags.FLAGS[name]
        if flag.present or config[name] is None:
            continue
        try:
            flag.value = _parse(flag, config[name])
        except (TypeError, ValueError) as error:
            raise UserError(
                Setting(name), f" in {path} cannot be {config[name]!r}; see --help."
            ) from error
    return config


def _is_config(config: Any) -> bool:
    """Tells whether a file has the form of what `make_config` collects."""
    if not isinstance(config, dict):
        return False
    files, versions = config.get("files", {}), config.get("versions", {})
    return (
        isinstance(files, dict)
        and isinstance(versions, dict)
        and all(isinstance(entry, dict) for entry in files.values())
    )


def _parse(flag: flags.Flag, value: Any) -> Any:
    """Checks a value as if it had been given beside the command."""
    if isinstance(flag.parser, flags.ListParser):
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise ValueError("not a list of text")
        return value
    if isinstance(value, (list, dict)):
        raise TypeError("not a value")
    return flag.parser.parse(value if isinstance(value, str) else json.dumps(value))


def find_changes(config: Mapping[str, Any], files: dict[str, Any]) -> Iterable[str]:
    """Says which tables and versions are not those of the run that is run again."""
    path = _flags.CONFIG.value
    for name, entry in files.items():
        before = config.get("files", {}).get(name, {})
        is_same_path = before.get("path") == entry["path"]
        if is_same_path and before.get("sha256") != entry["sha256"]:
            yield f"{entry['path']} has changed since {path} was written."
    written = config.get("versions", {})
    versions = _versions()
    changed = [
        f"{name} {written[name]}"
        for name in _PACKAGES
        if name in written and written[name] != versions[name]
    ]
    if changed:
        yield (
            f"{path} was written with {', '.join(changed)}; numbers may differ in the "
            "last digits, or more between versions of ours."
        )


def make_config(
    state: FittedState, files: dict[str, Any], is_fit: bool
) -> dict[str, Any]:
    """Collects the flags, what they were resolved to, versions and hashes."""
    summary, encoder = state.summary, state.encoder
    given = {flag.name: flag.value for flag in _flags.SETTINGS}
    if is_fit:  # a later run uses the same, whatever columns there are then
        given[_flags.COVARIATES.name] = encoder.columns
    encoded = {
        each.column: "a number" if each.kind == "number" else list(each.levels)
        for each in encoder.covariates
    }
    return {
        **given,
        "resolved": {
            "treatment": {"0": summary.treatment.zero, "1": summary.treatment.one},
            "outcome": {"0": summary.outcome.zero, "1": summary.outcome.one},
            "covariates": encoded,
            "rows": {name: entry.rows for name, entry in summary.tables.items()},
        },
        "files": files,
        "versions": _versions(),
    }


def hash_inputs() -> dict[str, Any]:
    """Returns path and SHA-256 of what is read; of a folder, of all its files."""
    found = {flag.name: flag.value for flag in _INPUTS if flag.value is not None}
    return {
        name: {"path": path, "sha256": _hash(Path(path))}
        for name, path in found.items()
    }


def _hash(path: Path) -> str:
    result = hashlib.sha256()
    is_folder = path.is_dir()
    for file in (
        sorted(p for p in path.rglob("*") if p.is_file()) if is_folder else [path]
    ):
        if is_folder:
            result.update(f"{file.relative_to(path).as_posix()}\0".encode())
        with file.open("rb") as opened:
            while block := opened.read(_BLOCK):
                result.update(block)
    return result.hexdigest()


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions
