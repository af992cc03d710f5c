"""State of a training run on disk, kept with orbax.

Of several processes one reads and writes, and the others get what it read.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pns_bounds as pb
from jaxtyping import Array

from pns_models._errors import DamagedModelError
from pns_models._files import alone, orbax, uncommitted
from pns_models._processes import from_writer, is_writer

_FORMAT = 2
Row = tuple[int, float, float]  # of the history: step, training and held-out loss


class RunCheckpoints:
    """Saves and restores one run; does nothing without a folder."""

    def __init__(self, folder: str | Path | None, label: dict[str, Any]):
        """Opens a folder, and refuses one that holds another run."""
        self._manager, self._is_used = None, folder is not None
        if folder is None or not is_writer():
            return
        self._folder = Path(folder).absolute()
        _claim(self._folder, {"format": _FORMAT, **label})
        options = orbax().CheckpointManagerOptions(
            max_to_keep=1,
            enable_async_checkpointing=False,
            multiprocessing_options=alone(),
            create=False,
        )
        steps = self._folder / "steps"
        steps.mkdir(exist_ok=True)
        self._manager = orbax().CheckpointManager(steps, options=options)

    def restore(self, state: Any) -> tuple[Any, list[Row]]:
        """Returns the newest saved state and history, or the given state and none."""
        found, rows = self._read(state)
        if not self._is_used:
            return found, rows
        num_rows = int(from_writer(np.array(len(rows))))
        if not num_rows:  # nothing was saved
            return state, []
        table = np.array(rows) if rows else np.zeros((num_rows, 3))
        found, table = from_writer((jax.tree.map(np.asarray, found), table))
        return uncommitted(found), [(int(s), float(t), float(h)) for s, t, h in table]

    def _read(self, state: Any) -> tuple[Any, list[Row]]:
        if self._manager is None or self._manager.latest_step() is None:
            return state, []
        args = orbax().args
        items = args.Composite(
            state=args.StandardRestore(jax.tree.map(np.asarray, state)),
            history=args.JsonRestore(),
        )
        step = self._manager.latest_step()
        try:
            saved = self._manager.restore(step, args=items)
        except Exception as error:  # orbax and tensorstore raise errors of many types
            raise DamagedModelError(
                f"{self._folder}: the checkpoint of step {step} cannot be read; delete "
                "the folder to train from the start."
            ) from error
        return saved["state"], [tuple(row) for row in saved["history"]]

    def save(self, step: int, state: Any, history: list[Row]) -> None:
        """Saves the state after a step, unless it is there already."""
        if self._manager is None or self._manager.latest_step() == step:
            return
        args = orbax().args
        items = args.Composite(
            state=args.StandardSave(jax.tree.map(np.asarray, state)),
            history=args.JsonSave(history),
        )
        self._manager.save(step, args=items)

    def close(self) -> None:
        """Waits until everything is on disk."""
        if self._manager is not None:
            self._manager.close()


def digest(*arrays: Array | np.ndarray) -> str:
    """Hashes arrays, to tell data of one run from those of another."""
    result = hashlib.sha256()
    for array in arrays:
        result.update(np.ascontiguousarray(array).data)  # without a copy
    return result.hexdigest()


def _claim(folder: Path, label: dict[str, Any]) -> None:
    """Writes which run a folder is for, or raises if it is for another one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.json"
    text = json.dumps(label, sort_keys=True)
    if path.exists() and path.read_text() != text:
        raise pb.InputError(
            "checkpoint_dir",
            f"must be a folder of this run alone; {folder} holds checkpoints of another "
            "run (other data, key, learner or version of pns-models).",
        )
    part = folder / "run.json.part"
    part.write_text(text)
    part.replace(path)
