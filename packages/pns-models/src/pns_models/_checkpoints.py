"""State of a training run on disk, kept with orbax."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp


def numbered_leaves(tree: Any) -> dict[str, np.ndarray]:
    """Names the arrays of a tree by their position, for storage."""
    return {
        f"{i:05d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))
    }


def from_numbered_leaves(values: dict[str, np.ndarray], like: Any) -> Any:
    """Rebuilds a tree; raises if the stored arrays do not have its shapes."""
    leaves, structure = jax.tree.flatten(like)
    stored = [values[name] for name in sorted(values)]
    if [np.shape(v) for v in stored] != [np.shape(leaf) for leaf in leaves]:
        raise ValueError("the stored arrays do not have the shapes of this network.")
    return jax.tree.unflatten(
        structure,
        [
            jax.numpy.asarray(value, dtype=leaf.dtype)
            for value, leaf in zip(stored, leaves, strict=True)
        ],
    )


class RunCheckpoints:
    """Saves and restores one run; does nothing without a folder."""

    def __init__(self, folder: str | Path | None, fingerprint: dict[str, Any]):
        """Opens a folder, and refuses one that holds another run."""
        self._manager = None
        if folder is None:
            return
        folder = Path(folder).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        label = folder / "run.json"
        mine = json.dumps(fingerprint, sort_keys=True)
        if label.exists() and label.read_text() != mine:
            raise ValueError(
                f"{folder} holds checkpoints of another run (other data, key or "
                "recipe); give each run a folder of its own."
            )
        aside = folder / "run.json.part"
        aside.write_text(mine)
        aside.replace(label)
        options = ocp.CheckpointManagerOptions(
            max_to_keep=1, enable_async_checkpointing=False
        )
        self._manager = ocp.CheckpointManager(folder / "steps", options=options)

    def restore(self, state: Any) -> tuple[Any, list[tuple]]:
        """Returns the newest saved state and history, or the given state and none."""
        if self._manager is None or self._manager.latest_step() is None:
            return state, []
        saved = self._manager.restore(
            self._manager.latest_step(), args=ocp.args.StandardRestore()
        )
        history = [tuple(row) for row in np.asarray(saved["history"]).tolist()]
        history = [(int(step), train, held_out) for step, train, held_out in history]
        return from_numbered_leaves(saved["state"], state), history

    def save(self, step: int, state: Any, history: list[tuple]) -> None:
        """Saves the state after a step, unless it is there already."""
        if self._manager is None or self._manager.latest_step() == step:
            return
        tree = {
            "state": numbered_leaves(state),
            "history": np.asarray(history, np.float64),
        }
        self._manager.save(step, args=ocp.args.StandardSave(tree))

    def close(self) -> None:
        """Waits until everything is on disk."""
        if self._manager is not None:
            self._manager.close()
