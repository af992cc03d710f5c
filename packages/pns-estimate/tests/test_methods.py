"""Uncertainty methods: one protocol, standard errors of frequencies, calibration."""

import dataclasses

import jax
import numpy as np
import pns_bounds as pb
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm
import pytest
from small_tables import FoldedMethod, LinearMethod, deal_rows, small_recipe

KINDS = {name: name for name in ("crossfit", "epinet", "ensemble")}  # others: anchored
OURS = [
    name for name in pe.METHODS if name not in (LinearMethod.name, FoldedMethod.name)
]


@pytest.mark.parametrize("name", OURS)
def test_every_method_keeps_the_protocol_and_survives_saving(name, tables, tmp_path):
    method = pe.METHODS[name]
    assert method.name == name and method.sentence
    recipe = small_recipe(KINDS.get(name, "anchored"))
    if name.startswith("bootstrap"):
        bootstrap = dataclasses.replace(method.bootstrap, num_draws=30)
        method = dataclasses.replace(method, bootstrap=bootstrap)
    rows = deal_rows(method, tables, recipe)
    learned = method.fit(jax.random.key(0), rows, recipe)
    sampler = learned.sampler
    assert len(learned.held_out.z)
    if name == "crossfit":  # a ridge, which takes no steps
        assert learned.history is None
    else:
        assert len(learned.history.step)
    pe.SAMPLERS.save(sampler, tmp_path / "sampler")
    loaded = pe.SAMPLERS.load(tmp_path / "sampler")
    z = rows.z[:7]
    for found, wanted in zip(loaded.atoms(z), sampler.atoms(z), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert sampler.has_draws == loaded.has_draws == (name != "plug_in")
    if not sampler.has_draws:
        with pytest.raises(pm.NoDrawsError):
            sampler.draws(jax.random.key(1), z, 30)
        return
    key = jax.random.key(1)
    drawn = sampler.draws(key, z, 30)
    assert drawn.joint.shape == (30, 7, 2, 2) and drawn.mu.shape == (30, 7, 2)
    assert np.all(pb.is_compatible(drawn))
    for found, wanted in zip(loaded.draws(key, z, 30), drawn, strict=True):
        np.testing.assert_array_equal(found, wanted)
    # Draws are coherent: a person's do not depend on who is asked about together.
    alone = sampler.draws(key, z[3:4], 30)
    np.testing.assert_allclose(alone.mu[:, 0], drawn.mu[:, 3], atol=1e-5)
    assert np.all(drawn.mu.std(axis=0) > 1e-5)


def test_a_plug_in_corrects_nothing_and_has_no_band(tables, people):
    estimator = pe.PnsEstimator("plug_in", recipe=small_recipe("anchored"))
    estimator.fit(*tables, treatment="x", outcome="y")
    prediction = estimator.predict(people)
    answer = prediction.intervals()
    sharp = pb.pns_bounds(prediction.sampler.atoms(prediction.z[prediction.place]))
    np.testing.assert_allclose(answer["lower"], sharp.lower, atol=1e-6)
    np.testing.assert_allclose(answer["upper"], sharp.upper, atol=1e-6)
    np.testing.assert_allclose(
        prediction.average()[:2],
        [answer["lower"].mean(), answer["upper"].mean()],
        rtol=1e-5,
    )
    with pytest.raises(pe.UserError, match="has no band"):
        prediction.band()


def test_names_of_methods_are_taken_once():
    with pytest.raises(ValueError, match="already; known are"):
        pe.register_method(LinearMethod())


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
    counts = pm.rows_from_tables(*tables).counts(merge=None)
    training = dataclasses.replace(
        pm.PRESETS["default"].training,
        weight_decay=0.0,
        held_out_fraction=0.0,
        max_steps=600,
        eval_every=200,
        patience=None,
    )
    recipe = pm.Recipe(pm.AnchoredConfig(pm.Backbone(16, 1, "silu")), training)
    model = pm.fit(jax.random.key(0), counts, recipe).model
    bootstrap = pe.make_bootstrap(
        jax.random.key(1),
        model,
        counts,
        scope,
        num_draws=2000,
        # Exact: mu moves with p, which the symmetric curvatures leave out.
        config=pi.SolveConfig(
            curvature="estimating_equation", damping=1e-7, max_iterations=300
        ),
    )
    z = np.array([[0.0], [1.0]], np.float32)
    drawn = pm.atoms_from_raw(bootstrap.draws(model.standardizer(z)), "anchored")
    for kind in (0, 1):
        chosen = counts.z[:, 0] == kind
        joint = counts.observational[chosen].sum(0) / counts.observational[chosen].sum()
        arms = counts.experimental[chosen].sum((0, 2))
        mu = counts.experimental[chosen].sum(0)[:, 1] / arms
        errors = np.sqrt(mu * (1 - mu) / arms)
        # A standard deviation over 2,000 draws has a relative error of 1.6%.
        np.testing.assert_allclose(np.std(drawn.mu[:, kind], axis=0), errors, rtol=0.08)
        units = counts.observational[chosen].sum()
        errors = np.sqrt(joint * (1 - joint) / units)
        np.testing.assert_allclose(
            np.std(drawn.joint[:, kind], axis=0), errors, rtol=0.08
        )


class Binomial:
    """Draws mu of everybody as the posterior of one proportion, times a factor."""

    def __init__(self, factor):
        self.factor = factor

    def draws(self, key, z, num_draws):
        noise = np.asarray(jax.random.normal(key, (num_draws, len(z), 2)))
        mu = 0.5 + self.factor * 0.02 * noise
        return pb.Atoms(np.full((num_draws, len(z), 2, 2), 0.25), mu)


def test_calibration_undoes_a_wrong_scale():
    """The outcome varies with sd 0.02 between cells of 2,000; the draws' sd is off."""
    rng = np.random.default_rng(0)
    rows = 200
    mu = 0.5 + 0.02 * rng.standard_normal((rows, 2))
    arms = rng.binomial(2000, mu)
    held_out = pm.Counts(
        np.arange(rows, dtype=np.float32)[:, None],
        np.full((rows, 2, 2), 1.0),
        np.stack([2000 - arms, arms], axis=-1).astype(float),
    )
    for factor in (0.5, 1.0, 2.0):
        found = pe.calibrate_sampler(
            jax.random.key(0), Binomial(factor), lambda z: z, held_out
        )
        # 400 proportions: the log of the scale has a standard error of about 0.05.
        np.testing.assert_allclose(found.draw_scale * factor, 1, rtol=0.2)


@pytest.mark.parametrize("num_covariates", [15, 200])
def test_the_default_network_of_bootstrap_full_is_solved_directly(num_covariates):
    method = pe.METHODS["bootstrap_full"]
    network = method.recipe.network.make(jax.random.key(0), num_covariates)
    scale = pm.Standardizer(*np.zeros((2, num_covariates)), np.zeros(1, bool))
    params = pm.FittedModel(network, method.recipe, scale).plain_functions().params
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert 4000 < size <= method.bootstrap.config.direct_up_to
