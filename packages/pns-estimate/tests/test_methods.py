"""Ways to be uncertain: errors of frequencies, and spread judged by neighbours."""

import dataclasses

import jax
import numpy as np
import pns_bounds as pb
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm
import pytest
from pns_estimate import _methods


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


class _Coin:
    """Draws the same law, with some spread, for everybody."""

    def draws(self, key, z, num_draws):
        shape = (num_draws, len(z))
        mu = 0.4 + 0.2 * np.random.default_rng(0).random((*shape, 2))
        return pb.Atoms(np.full((*shape, 2, 2), 0.25), mu)


def test_the_spread_is_judged_by_groups_of_neighbours_where_nobody_has_a_twin(
    monkeypatch,
):
    seen = []
    original = pi.calibrate_spread
    monkeypatch.setattr(
        _methods.pi,
        "calibrate_spread",
        lambda *args: seen.append(args[3]) or original(*args),
    )
    rng = np.random.default_rng(0)
    one = np.eye(4)[rng.integers(0, 4, 400)].reshape(-1, 2, 2)
    first = (np.arange(400) < 200)[:, None, None]  # each is in one table
    for z, copies in ((rng.random((400, 2)), 1), (rng.integers(0, 2, (400, 2)), 3)):
        held_out = pm.Counts(
            z.astype(np.float32), copies * one * first, copies * one * ~first
        )
        pe.judge_spread(jax.random.key(0), _Coin(), lambda z: z, held_out, 20)
    assert np.all(np.bincount(seen[0]) >= 8) and len(seen[0]) == 400
    assert seen[1] is None  # people who share a row are judged by it
