"""Fits and asks the same ensemble on one core and on eight simulated devices.

Not a test itself: the number of devices is fixed once JAX runs, so a test starts this in a
process of its own, with the file to write as its argument.
"""

import sys

import jax
import numpy as np
import pns_models as pm
from conftest import make_covariates, make_model, make_tables
from pns_models import _model, _placement

# Devices, and how many of them share the rows.
MESHES = {"1 x 1": (1, 1), "1 x 2": (2, 2), "2 x 4": (8, 4)}
KINDS = ("ensemble", "epinet")
RECIPE = pm.Recipe(
    pm.AnchoredConfig(pm.Backbone(4, 1, bottleneck=2)),
    pm.make_member_training(learning_rate=2e-2, max_steps=10, batch_size=64),
)


def fit(mesh):
    """Returns what networks say of the rows that they did not see, and their error."""
    rows = pm.rows_from_tables(*make_tables())
    folded, _ = rows.deal(np.random.default_rng(0), 3).folded()
    result = pm.cross_fit(
        jax.random.key(0), folded, [pm.NetworkLearner(RECIPE)], 2, mesh=mesh
    )
    center, factors = result.held_out
    return np.concatenate([center[..., None], factors], axis=-1)


def ask(kind):
    """Returns a point estimate and draws of a network that was not trained."""
    model, z = make_model(kind), make_covariates()
    drawn = model.draws(jax.random.key(0), z, 20)
    return np.concatenate([model.atoms(z).mu[None], drawn.mu])


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_disable_most_optimizations", True)  # compiles quickly
    found = {"all devices": fit(None)}
    for name, (num_devices, num_data) in MESHES.items():
        found[name] = fit(pm.make_mesh(num_data, jax.devices()[:num_devices]))
    _placement.OnMesh = lambda mesh, *parts: _placement.OnCores(*parts)
    found["one core"] = fit(None)
    found |= {f"{kind}, rows on all devices": ask(kind) for kind in KINDS}
    _model.spread_rows = lambda rows: rows
    found |= {f"{kind}, rows on one device": ask(kind) for kind in KINDS}
    np.savez(sys.argv[1], **found)
