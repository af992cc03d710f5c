"""Fitted models: predictions, draws, files."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _model


def make_config(kind="anchored", backbone=None, **sizes):
    """Makes a config of any kind; sizes that it does not have are left out."""
    config_class = pm.NETWORKS[kind]
    names = [field.name for field in dataclasses.fields(config_class)]
    known = {name: size for name, size in sizes.items() if name in names}
    return config_class(backbone or pm.Backbone(), **known)


KINDS = ["anchored", "s_learner", "t_learner", "hypermodel", "epinet", "ensemble"]


@pytest.fixture(scope="module")
def fits():
    """One small fit of each kind."""
    rng = np.random.default_rng(0)
    made = [
        (
            rng.normal([0.0, 50.0, 1.0], [1.0, 9.0, 0.0], size=(n, 3)),
            rng.integers(0, 2, n),
            rng.integers(0, 2, n),
        )
        for n in (400, 300)
    ]
    counts = pm.counts_from_tables(*made)
    fitted = {}
    for kind in KINDS:
        network = make_config(
            kind, pm.Backbone(width=8, depth=1), index_dim=4, num_members=3
        )
        training = pm.TrainConfig(max_steps=10, eval_every=5)
        fitted[kind] = pm.fit(jax.random.key(0), counts, pm.Recipe(network, training))
    return fitted


def people(n=700, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal([0.0, 50.0, 1.0], [1.0, 9.0, 0.0], size=(n, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_a_person_has_the_same_atoms_alone_and_among_others(fits, kind):
    model = fits[kind].model
    together = model.atoms(people())
    assert together.joint.shape == (700, 2, 2) and together.mu.shape == (700, 2)
    alone = model.atoms(people()[123:124])
    np.testing.assert_allclose(alone.mu[0], together.mu[123], rtol=1e-5)
    order = np.random.default_rng(2).permutation(700)
    shuffled = model.atoms(people()[order])
    np.testing.assert_allclose(shuffled.joint, together.joint[order], rtol=1e-5)
    assert model.atoms(np.zeros((0, 3))).mu.shape == (0, 2)


@pytest.mark.parametrize("kind", ["hypermodel", "epinet", "ensemble"])
def test_draws_are_coherent_valid_and_do_not_depend_on_their_number(fits, kind):
    model = fits[kind].model
    key = jax.random.key(3)
    z = people(300)
    draws = model.draws(key, z, 37)
    assert draws.joint.shape == (37, 300, 2, 2) and draws.mu.shape == (37, 300, 2)
    assert np.all(pb.is_compatible(draws))
    few = model.draws(key, z, 5)
    np.testing.assert_array_equal(few.mu, draws.mu[:5])
    # Coherent: a draw of two people together is their draw apart.
    part = model.draws(key, z[250:], 37)
    np.testing.assert_allclose(part.mu, draws.mu[:, 250:], rtol=1e-5)
    chunks = list(model.stream_draws(key, z, 37, draws_per_chunk=10))
    assert [len(chunk.mu) for chunk in chunks] == [10, 10, 10, 7]
    streamed = np.concatenate([chunk.mu for chunk in chunks])
    np.testing.assert_allclose(streamed, draws.mu, rtol=1e-5)
    assert draws.mu.std(0).min() > 0


@pytest.mark.parametrize("kind", ["anchored", "s_learner", "t_learner"])
def test_a_network_without_index_says_that_it_has_no_draws(fits, kind):
    with pytest.raises(pm.NoDrawsError, match=f"{kind!r} has no draws"):
        fits[kind].model.draws(jax.random.key(0), people(5), 10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_predicts_bit_for_bit_the_same(fits, kind, tmp_path):
    model = fits[kind].model
    model.save(tmp_path / "deep" / "model")
    loaded = pm.load(tmp_path / "deep" / "model")
    assert loaded.recipe == model.recipe
    z = people(50)
    np.testing.assert_array_equal(loaded.atoms(z).joint, model.atoms(z).joint)
    np.testing.assert_array_equal(loaded.atoms(z).mu, model.atoms(z).mu)
    if model.is_epistemic:
        pair = [m.draws(jax.random.key(1), z, 20) for m in (loaded, model)]
        np.testing.assert_array_equal(pair[0].mu, pair[1].mu)
        np.testing.assert_array_equal(pair[0].joint, pair[1].joint)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["model"]


def test_folders_that_hold_no_model_are_told(fits, tmp_path):
    model = fits["anchored"].model
    with pytest.raises(pm.DamagedModelError, match="holds no model"):
        pm.load(tmp_path / "nowhere")
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="exists already"):
        model.save(tmp_path / "model")
    card = tmp_path / "model" / "model.json"
    good = card.read_text()
    for change, message in (
        ({"format": 99}, "is in format 99, and this version"),
        ({"recipe": {}}, "model.json does not fit"),
        ({"standardizer": {}}, "model.json does not fit"),
    ):
        card.write_text(json.dumps({**json.loads(good), **change}))
        with pytest.raises(pm.DamagedModelError, match=message):
            pm.load(tmp_path / "model")
    wider = json.loads(good)
    wider["recipe"]["network"]["backbone"]["width"] = 9
    card.write_text(json.dumps(wider))
    with pytest.raises(
        pm.DamagedModelError, match="do not have the shapes of this network"
    ):
        pm.load(tmp_path / "model")
    card.write_text(good[:100])
    with pytest.raises(pm.DamagedModelError, match="holds no model"):
        pm.load(tmp_path / "model")
    card.write_text(good)
    shutil.rmtree(tmp_path / "model" / "arrays")
    with pytest.raises(pm.DamagedModelError, match="its arrays cannot be read"):
        pm.load(tmp_path / "model")


def test_people_that_do_not_fit_are_told(fits):
    model = fits["anchored"].model
    with pytest.raises(ValueError, match=r"shape \[n, 3\], as in training"):
        model.atoms(np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"in columns \[2\]"):
        model.atoms([[0.0, 0.0, np.nan]])
    with pytest.raises(ValueError, match="num_draws must be at least 1"):
        fits["epinet"].model.draws(jax.random.key(0), people(5), 0)


def test_constant_columns_are_reported_by_the_model(fits):
    np.testing.assert_array_equal(
        fits["anchored"].model.standardizer.constant, [False, False, True]
    )


def untrained(kind):
    config = make_config(
        kind, pm.Backbone(width=8, depth=1), index_dim=4, num_members=3
    )
    scale = pm.Standardizer(
        np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(3, bool)
    )
    return pm.FittedModel(config.make(jax.random.key(0), 3), pm.Recipe(config), scale)


@pytest.mark.parametrize("kind", ["hypermodel", "ensemble"])
def test_blocks_of_people_share_the_indices_of_a_draw(kind, monkeypatch):
    model, key = untrained(kind), jax.random.key(1)
    z = np.random.default_rng(0).normal(size=(600, 3))
    atoms, draws = model.atoms(z), model.draws(key, z, 5)
    monkeypatch.setattr(_model, "_ROWS", 256)
    np.testing.assert_allclose(model.atoms(z).mu, atoms.mu, rtol=1e-5)
    np.testing.assert_allclose(model.draws(key, z, 5).mu, draws.mu, rtol=1e-5)


@pytest.mark.parametrize("kind", ["hypermodel", "epinet", "ensemble"])
def test_the_point_estimate_is_the_link_of_mean_raw_numbers(kind):
    model = untrained(kind)
    z = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    indices = model.network.central_indices()
    raw = model.network.raw(z, indices).mean(axis=0)
    expected = pm.atoms_from_raw(raw, "anchored")
    np.testing.assert_allclose(model.atoms(z).mu, expected.mu, rtol=1e-4)
    if kind == "hypermodel":
        assert len(indices) == 32
        np.testing.assert_allclose(indices.mean(axis=0), 0, atol=1e-6)
    if kind == "epinet":
        np.testing.assert_allclose(raw, model.network.base.encode(z), rtol=1e-5)
