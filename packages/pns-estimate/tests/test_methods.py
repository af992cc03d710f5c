"""The bootstrap of a network that can say everything has the errors of frequencies."""

import dataclasses

import jax
import numpy as np
import pns_estimate as pe
import pns_models as pm
import pytest


@pytest.mark.parametrize("scope", ["full", "last_layer"])
def test_a_saturated_network_has_the_standard_errors_of_frequencies(scope):
    """One binary covariate: mu is a proportion, and so is every p_xy."""
    rng = np.random.default_rng(0)
    tables = []
    for size in (6000, 4000):
        z = rng.integers(0, 2, (size, 1)).astype(np.float32)
        x = rng.integers(0, 2, size)
        y = (rng.random(size) < 0.3 + 0.2 * x + 0.1 * z[:, 0]).astype(int)
        tables.append((z, x, y))
    counts = pm.counts_from_tables(*tables)
    preset = pm.PRESETS["default"]
    training = dataclasses.replace(
        preset.training,
        weight_decay=0.0,
        validation_fraction=0.0,
        max_steps=600,
        eval_every=200,
        patience=None,
    )
    network = dataclasses.replace(preset.network, backbone=pm.Backbone(16, 1, "silu"))
    recipe = pm.Recipe(network, training)
    model = pm.fit(jax.random.key(0), counts, recipe).model
    bootstrap = pe.make_bootstrap(
        jax.random.key(1),
        model,
        counts,
        scope,
        num_draws=2000,
        damping=1e-7,
        max_iterations=300,
        # Exact: mu moves with p, which the symmetric curvatures leave out.
        curvature="estimating_equation",
    )
    z = np.array([[0.0], [1.0]], np.float32)
    drawn = pm.atoms_from_raw(bootstrap.draws(model.standardiser(z)), "anchored")
    for kind in (0, 1):
        chosen = counts.z[:, 0] == kind
        joint = counts.observational[chosen].sum(0) / counts.observational[chosen].sum()
        arms = counts.experimental[chosen].sum((0, 2))
        mu = counts.experimental[chosen].sum(0)[:, 1] / arms
        errors = np.sqrt(mu * (1 - mu) / arms)
        # The spread of 2,000 draws has a relative error of 1.6%.
        np.testing.assert_allclose(np.std(drawn.mu[:, kind], axis=0), errors, rtol=0.08)
        people = counts.observational[chosen].sum()
        errors = np.sqrt(joint * (1 - joint) / people)
        np.testing.assert_allclose(
            np.std(drawn.joint[:, kind], axis=0), errors, rtol=0.08
        )
