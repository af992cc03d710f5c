"""Trees of arrays on disk: kept by name with orbax, restored through an abstract target.

The target says which names, shapes and types are expected, so that arrays of another
network cannot take their places.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp


def abstract_target(tree: Any) -> Any:
    """Replaces arrays, or their shapes, by shapes on this machine's first device."""
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        tree,
    )


def uncommitted(tree: Any) -> Any:
    """Frees arrays from the device they were restored to.

    Arrays that are bound to a device are another input to a compiled program than those
    that training makes, and would compile it again.
    """
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def alone() -> ocp.options.MultiprocessingOptions:
    """Keeps orbax from waiting for other processes: the one that writes does so alone."""
    own = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"only_{own}"
    )


def save_arrays(folder: Path, tree: Any) -> None:
    """Writes a tree of arrays, such as the state of a network, into a new folder."""
    if jax.process_count() > 1:
        tree = jax.tree.map(np.asarray, tree)  # orbax takes no arrays of one process
    with ocp.StandardCheckpointer(multiprocessing_options=alone()) as checkpointer:
        checkpointer.save(folder, tree)


def load_arrays(folder: Path, like: Any) -> Any:
    """Reads a tree that `save_arrays` wrote.

    Raises:
      ValueError: if names or shapes differ; other errors of orbax if files are damaged.
    """
    target = abstract_target(like)
    with ocp.StandardCheckpointer(multiprocessing_options=alone()) as checkpointer:
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
