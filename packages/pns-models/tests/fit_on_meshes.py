"""Fits the same ensemble on one core and on meshes of eight simulated devices.

Not a test itself: the number of devices is fixed once JAX runs, so a test starts this in a
process of its own, with the file to write as its argument.
"""

import sys

import jax
import numpy as np
import pns_models as pm
from conftest import make_tables
from pns_models import _placement

# Devices, and how many of them share the rows.
MESHES = {"1 x 1": (1, 1), "2 x 1": (2, 1), "1 x 2": (2, 2), "2 x 4": (8, 4)}
RECIPE = pm.Recipe(
    pm.AnchoredConfig(pm.Backbone(4, 1, bottleneck=2)),
    pm.make_member_training(learning_rate=2e-2, max_steps=10, batch_size=64),
)


def fit(mesh):
    """Returns what six networks, two for each of three folds, say of all rows."""
    counts = pm.counts_from_tables(*make_tables(), merge=False)
    fold = pm.assign_folds(np.random.default_rng(0), counts, 3)
    folded, _ = pm.fold_counts(counts, fold)
    result = pm.cross_fit(jax.random.key(0), folded, [RECIPE], 2, mesh=mesh)
    return np.stack([*result.held_out, *result.fold_means])


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_disable_most_optimizations", True)  # compiles quickly
    found = {"all devices": fit(None)}
    for name, (num_devices, num_data) in MESHES.items():
        found[name] = fit(pm.make_mesh(num_data, jax.devices()[:num_devices]))
    _placement.OnMesh = lambda mesh, *parts: _placement.OnCores(*parts)
    found["one core"] = fit(None)
    np.savez(sys.argv[1], **found)
