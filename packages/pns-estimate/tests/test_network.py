"""Networks with draws: counts of cells where covariates repeat, a scale where not."""

import dataclasses

import jax
import numpy as np
import pns_bounds as pb
import pns_estimate as pe
import pns_infer as pi
import pytest
from pns_estimate.methods import network
from pns_estimate.methods.network import NetworkSampler
from pns_estimate.methods.protocol import split_key
from pns_estimate.methods.residual import ResidualSampler
from small_tables import deal_rows, fit, small_recipe

ENSEMBLE, EPINET, PLUG_IN = (
    pe.METHODS[name] for name in ("ensemble", "epinet", "plug_in")
)


@pytest.fixture(scope="module")
def rows(tables):
    return deal_rows(EPINET, tables, small_recipe("epinet"), key=3)


@pytest.fixture(scope="module")
def counts(rows):
    return rows.counts()


@pytest.fixture(scope="module")
def learned(rows):
    return EPINET.fit(jax.random.key(3), rows, small_recipe("epinet"))


def urn_probability(shape, counts):
    """Log-probability of outcomes drawn one by one from an urn that adds what it gave."""
    shape, total = np.array(shape, float), 0.0
    for outcome in np.repeat(np.arange(len(counts)), counts.astype(int)):
        total += np.log(shape[outcome] / shape.sum())
        shape[outcome] += 1
    return total


def test_a_network_is_judged_on_held_out_counts_given_those_it_trained_on(
    counts, learned
):
    """Unit by unit from an urn for each cell, at the mean of the network's draws."""
    profile, inner = learned.profile, learned.sampler.inner
    cells = counts.merged()
    held_out = learned.held_out.merged()
    z = held_out.z
    place = [int(np.flatnonzero((cells.z == row).all(axis=1))[0]) for row in z]
    drawn = inner.draws(split_key(jax.random.key(3)).calibrate, z, 64)
    mean = pi.scale_draws(drawn, 0.0)
    joint, mu = np.asarray(mean.joint[0], float), np.asarray(mean.mu[0], float)
    arms = np.stack([1 - mu, mu], axis=-1)
    settings = profile.settings
    point = int(np.argmax(np.where(settings.draw_scale == 0, profile.weight, -1)))
    assert settings.draw_scale[point] == 0
    _, log, trial, log_share, trial_share, factor = (
        float(field[point]) for field in settings
    )
    sizes = sum(np.sum(part, axis=(1, 2)) for part in cells[1:])[place]
    factor = np.where(sizes <= profile.rare_size, factor, 1.0)
    total = -((np.log(log / trial) / 0.5) ** 2) / 2
    for i, cell in enumerate(place):
        own = held_out.observational[i].ravel(), *held_out.experimental[i]
        every = cells.observational[cell].ravel(), *cells.experimental[cell]
        laws = joint[i].ravel(), *arms[i]
        for law, one, all_of_them, strength, share in zip(
            *(laws, own, every, (log, trial, trial)),
            (log_share, trial_share, trial_share),
            strict=True,
        ):
            shape = factor[i] * strength * law + share * (all_of_them - one)
            total += urn_probability(shape, one)
    np.testing.assert_allclose(profile.log_likelihood[point], total, rtol=1e-6)


def test_counts_of_all_rows_are_added_and_reliability_is_the_networks(counts, learned):
    sampler = learned.sampler
    assert isinstance(sampler, ResidualSampler) and learned.is_calibrated
    cells = counts.merged()
    totals = np.concatenate([np.reshape(p, (-1, 4)) for p in cells[1:]], axis=1)
    enough = totals.sum(axis=1) >= 10
    assert 0 < enough.sum()
    wanted = np.where(enough[:, None], totals, 0)
    np.testing.assert_array_equal(sampler.cells.find(cells.z), wanted)
    held_out = learned.held_out_atoms
    for found, network_says in zip(
        held_out, sampler.inner.atoms(learned.held_out.z), strict=True
    ):
        np.testing.assert_array_equal(found, network_says)
    note = learned.notes["weight of people with the same covariates"]
    weight = 1 - sampler.profile.model_weight("observational", 100)
    assert note.startswith(f"{weight:.0%} for 100 people of the log")
    assert learned.profile is sampler.profile


def test_rows_that_were_not_merged_are_judged_the_same(learned, rows):
    """The held-out rows of a cell count together, as rest they would be seen twice."""
    plain = learned._replace(sampler=learned.sampler.inner)
    times = rows.copies.astype(int)
    single = rows.take(np.repeat(np.arange(len(times)), times))
    ones = np.ones(len(single.z))
    profiles = [
        network._add_counts(jax.random.key(0), plain, each, 10).profile
        for each in (rows, single._replace(weights=ones, copies=ones))
    ]
    for left, right in zip(profiles[0].settings, profiles[1].settings, strict=True):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_allclose(profiles[0].weight, profiles[1].weight, rtol=1e-6)


@pytest.mark.parametrize("name", ["epinet", "ensemble", "bootstrap_last_layer"])
def test_a_saved_network_with_counts_gives_the_same_draws(
    name, tables, people, tmp_path
):
    kind = "anchored" if name.startswith("bootstrap") else name
    estimator = fit(*tables, method=name, recipe=small_recipe(kind))
    assert isinstance(estimator._state.sampler.inner, ResidualSampler)
    assert estimator.summary_.draw_scale is None
    estimator.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    before, after = (e.predict(people) for e in (estimator, loaded))
    pd_before, pd_after = before.intervals(), after.intervals()
    assert pd_before.equals(pd_after)
    key = jax.random.key(0)
    drawn, again = (p.sampler.draws(key, p.z, 50) for p in (before, after))
    assert np.all(pb.is_compatible(drawn))
    for one, other in zip(drawn, again, strict=True):
        np.testing.assert_array_equal(one, other)
    with np.load(tmp_path / "model/sampler/inner/settings.npz") as stored:
        assert stored["counts"].sum(axis=1).min() >= 10


def test_without_twins_a_network_is_scaled_as_before(tables, people):
    rng = np.random.default_rng(0)
    unique = [t.assign(age=rng.uniform(20, 70, len(t))) for t in tables]
    estimator = fit(*unique, method="epinet", recipe=small_recipe("epinet"))
    state = estimator._state
    assert isinstance(state.sampler.inner, NetworkSampler) and not state.summary.notes
    scale = estimator.summary_.draw_scale
    assert state.sampler.draw_scale == scale.interval[1]
    assert not state.sampler.is_posterior
    assert np.isfinite(estimator.intervals(people)["upper"]).all()


def test_a_user_may_refuse_counts_and_set_their_least_size(rows):
    recipe, key = small_recipe("epinet"), jax.random.key(0)
    with_counts = EPINET.fit(key, rows, recipe).sampler
    refused = EPINET.fit(key, rows, pe.NetworkRecipe(recipe, None))
    assert isinstance(refused.sampler, NetworkSampler) and not refused.is_calibrated
    z = rows.z[:5]
    for one, other in zip(
        refused.sampler.atoms(z), with_counts.inner.atoms(z), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    many = EPINET.fit(key, rows, pe.NetworkRecipe(recipe, 60)).sampler
    assert 0 < len(many.cells.z) < len(with_counts.cells.z)
    assert many.cells.counts.sum(axis=1).min() >= 60
    assert pe.NetworkRecipe(recipe, 60).to_json() == {
        "recipe": recipe.to_json(),
        "least_cell_size": 60,
    }


def test_no_counts_without_held_out_rows_or_draws(tables, rows):
    recipe = small_recipe("ensemble")
    training = dataclasses.replace(
        recipe.training, held_out_fraction=0.0, patience=None
    )
    recipe = dataclasses.replace(recipe, training=training)
    seen = deal_rows(ENSEMBLE, tables, recipe)
    learned = ENSEMBLE.fit(jax.random.key(0), seen, recipe)
    assert isinstance(learned.sampler, NetworkSampler) and not learned.is_calibrated
    plug_in = PLUG_IN.fit(jax.random.key(0), rows, small_recipe("anchored"))
    assert isinstance(plug_in.sampler, NetworkSampler)
