"""Fits a small ensemble as one of several processes.

Not a test itself: a test starts it. Arguments: the file to write, the folder of checkpoints
("" for none), steps of training, and if there are other processes the port of the first,
their number, and the number of this one.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import pns_models as pm
from conftest import make_tables


def main(path, checkpoint_dir, num_steps, port=None, *numbers):
    """Writes what the members say of all rows."""
    if port is not None:
        pm.join_processes(f"127.0.0.1:{port}", *map(int, numbers))
    jax.config.update("jax_disable_most_optimizations", True)  # compiles quickly
    training = pm.make_member_training(2e-2, max_steps=int(num_steps), batch_size=64)
    recipe = pm.Recipe(pm.AnchoredConfig(pm.Backbone(4, 1, bottleneck=2)), training)
    rows = pm.rows_from_tables(*make_tables()).deal(np.random.default_rng(0), 3)
    result = pm.cross_fit(
        jax.random.key(0),
        rows.folded()[0],
        [pm.NetworkLearner(recipe)],
        members_per_fold=2,
        checkpoint_dir=checkpoint_dir or None,
        checkpoint_seconds=0,
    )
    if pm.is_writer():
        folder = Path(f"{path}.stack")
        folder.mkdir()
        result.stack.save(folder)
    center, factors = result.held_out
    np.savez(path, raw=np.concatenate([center[..., None], factors], axis=-1))


if __name__ == "__main__":
    main(*sys.argv[1:])
