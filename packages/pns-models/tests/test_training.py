"""The engine: what `fit` learns, when it stops, and what it refuses."""

import jax
import numpy as np
import pns_models as pm
import pytest
from flax import nnx
from pns_models import _step
from pns_models._network import Frozen
from scipy import optimize

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def counts(small):
    """Counts of 500 units on 8 rows."""
    return pm.rows_from_tables(*small.tables()).counts()


def held_out_loss(model, counts) -> float:
    """Computes the loss in NumPy, from probabilities."""
    atoms = model.atoms(counts.z)
    outcome = np.stack([1 - atoms.mu, atoms.mu], axis=-1)
    return sum(
        -np.sum(part * np.log(p)) / part.sum()
        for part, p in (
            (counts.observational, atoms.joint),
            (counts.experimental, outcome),
        )
    )


@pytest.mark.slow
def test_minibatches_of_rows_and_full_batches_of_counts_reach_the_same_loss(small):
    tables = small.tables(8000, 6000)
    fresh = pm.rows_from_tables(*small.tables(40_000, 40_000, seed=9)).counts(
        merge=None
    )
    losses = []
    for merge, training in (
        (False, {"batch_size": 512, "max_steps": 600, "learning_rate": 3e-3}),
        (True, {"batch_size": None, "max_steps": 300, "learning_rate": 1e-2}),
    ):
        result = pm.fit(
            jax.random.key(0),
            pm.rows_from_tables(*tables).counts(merge=merge),
            small.recipe(
                held_out_fraction=0.0, weight_decay=0.0, eval_every=100, **training
            ),
        )
        losses.append(held_out_loss(result.model, fresh))
    # 0.003 is half a per cent of what the covariates explain here.
    assert abs(losses[0] - losses[1]) < 0.003


def test_the_anchored_net_finds_the_constrained_maximum_likelihood_estimate(small):
    """One row per z: the estimate is the frequency, where that is compatible.

    The experiment of the second row contradicts the survey by chance, so there the
    optimum lies on the boundary; scipy finds it in the space of probabilities.
    """
    observational = np.array([[[30, 20], [25, 25]], [[10, 40], [30, 20]]], np.float32)
    experimental = np.array([[[60, 40], [40, 60]], [[70, 30], [50, 50]]], np.float32)
    counts = pm.Counts(
        np.array([[0.0], [1.0]], np.float32), observational, experimental
    )
    recipe = small.recipe(
        weight_decay=0.0,
        held_out_fraction=0.0,
        max_steps=3000,
        eval_every=1000,
        schedule="cosine",
    )
    atoms = pm.fit(jax.random.key(0), counts, recipe).model.atoms(counts.z)
    joint = observational / observational.sum((1, 2), keepdims=True)
    np.testing.assert_allclose(atoms.joint, joint, atol=0.003)
    for row in range(2):
        p = joint[row]

        def loss(mu, cells=experimental[row]):
            return -np.sum(cells * np.log(np.stack([1 - mu, mu], axis=-1)))

        best = optimize.minimize(
            loss,
            (p[:, 1] + 1 - p[:, 0]) / 2,
            bounds=list(zip(p[:, 1], 1 - p[:, 0], strict=True)),
        )
        np.testing.assert_allclose(atoms.mu[row], best.x, atol=0.01)
    assert experimental[1, 0, 1] / 100 < joint[1, 0, 1]  # the contradiction is there
    np.testing.assert_allclose(atoms.mu[1, 0], joint[1, 0, 1], atol=0.01)


@pytest.mark.parametrize(("batch_size", "steps"), [(100, 15), (200, 8)])
def test_epochs_count_passes_over_the_rows(small, batch_size, steps):
    """Three passes over 500 rows: 7.5 batches of 200 are begun 8 times."""
    counts = pm.rows_from_tables(*small.tables()).counts(merge=False)
    recipe = small.recipe(
        batch_size=batch_size,
        merge=False,
        epochs=3,
        max_steps=None,
        held_out_fraction=0.0,
    )
    keys = _step.RunKeys(*jax.random.split(jax.random.key(0), 5))
    network = recipe.network.make(keys.network, 3)
    run, _ = _step.make_run(network, recipe.training, counts, counts, keys)
    assert run.num_steps == steps


def test_a_run_without_held_out_units_has_no_held_out_loss(small, counts):
    recipe = small.recipe(held_out_fraction=0.0)
    result = pm.fit(jax.random.key(0), counts, recipe)
    assert result.history.step.tolist() == [10, 20]
    assert np.all(np.isnan(result.history.held_out))
    assert len(result.held_out.z) == 0


def test_evaluation_in_blocks_and_a_last_short_chunk(small, monkeypatch):
    counts = pm.rows_from_tables(*small.tables()).counts(merge=False)
    recipe = small.recipe(max_steps=5, eval_every=3, merge=False)
    whole = pm.fit(jax.random.key(0), counts, recipe).history
    assert whole.step.tolist() == [3, 5]
    monkeypatch.setattr(_step, "_EVAL_ROWS", 16)
    blocks = pm.fit(jax.random.key(0), counts, recipe).history
    np.testing.assert_allclose(blocks.held_out, whole.held_out, rtol=1e-5)


def test_the_standardizer_knows_the_training_part_alone(small):
    counts = pm.rows_from_tables(*small.tables()).counts(merge=False)
    recipe = small.recipe(max_steps=5, eval_every=3, merge=False)
    result = pm.fit(jax.random.key(0), counts, recipe)
    held = result.held_out
    num_held = held.observational.sum() + held.experimental.sum()
    expected = (counts.z.sum(0) - held.z.sum(0)) / (500 - num_held)
    np.testing.assert_allclose(result.model.standardizer.mean, expected, rtol=1e-5)


def test_training_stops_when_patience_ends_and_keeps_the_best(small):
    counts = pm.rows_from_tables(*small.tables(150, 100)).counts()
    recipe = small.recipe(
        learning_rate=0.1,
        weight_decay=0.0,
        max_steps=2000,
        eval_every=5,
        patience=4,
        held_out_fraction=0.3,
    )
    result = pm.fit(jax.random.key(0), counts, recipe)
    best = int(np.argmin(result.history.held_out))
    assert len(result.history.step) == best + 1 + 4 < 400
    reached = held_out_loss(result.model, result.held_out)
    np.testing.assert_allclose(reached, result.history.held_out[best], rtol=1e-5)


def test_a_key_names_the_run(small, counts):
    first, again, other = (
        pm.fit(jax.random.key(k), counts, small.recipe()).model.atoms(counts.z).mu
        for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("kind", ["hypermodel", "epinet"])
def test_a_frozen_prior_does_not_move_under_adamw(fits, kind):
    model = fits[kind].model
    assert model.recipe.training.weight_decay == 1  # what a prior must not feel
    key = jax.random.split(jax.random.key(5), 5)[0]
    start = model.recipe.network.make(key, 3)
    frozen, learned = (Frozen, True), (pm.Kernel, False)
    for variable, same in (frozen, learned):
        before, after = (nnx.state(net, variable) for net in (start, model.network))
        pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        equal = [bool(np.array_equal(a, b)) for a, b in pairs]
        assert len(equal) >= 2
        assert all(equal) if same else not any(equal)


def test_a_loss_that_is_not_finite_names_its_step(small, counts):
    wild = small.recipe(learning_rate=1e30, weight_decay=0.0)
    with pytest.raises(pm.DivergedError, match=r"not finite at step \d+ of 20"):
        pm.fit(jax.random.key(0), counts, wild)


def test_parts_that_lack_a_source_are_told(small, counts):
    none = counts._replace(experimental=np.zeros_like(counts.experimental))
    with pytest.raises(pm.TooFewRowsError, match="training part needs units") as raised:
        pm.fit(jax.random.key(0), none, small.recipe())
    assert raised.value.part == "training"
    assert raised.value.observational > 200 and raised.value.experimental == 0
    pair = (np.zeros((2, 3)), np.array([0, 1]), np.array([1, 0]))
    few = pm.rows_from_tables(small.tables()[0], pair).counts(merge=None)
    with pytest.raises(pm.TooFewRowsError, match="held-out part needs units") as raised:
        pm.fit(jax.random.key(0), few, small.recipe(held_out_fraction=0.01))
    assert raised.value.part == "held-out"


def test_data_that_cannot_be_trained_on_are_told(small, counts):
    for bad in (np.nan, -1.0, -0.5):
        cells = counts.observational.copy()
        cells[0, 0, 0] = bad
        with pytest.raises(ValueError, match="observational counts must be finite"):
            pm.fit(
                jax.random.key(0),
                counts._replace(observational=cells),
                small.recipe(),
            )
    one_arm = counts.experimental.copy()
    one_arm[:, 1] = 0
    with pytest.raises(ValueError, match="units in both arms.* 0 in treatment"):
        pm.fit(jax.random.key(0), counts._replace(experimental=one_arm), small.recipe())
    with pytest.raises(TypeError, match="recipe must be a Recipe"):
        pm.fit(jax.random.key(0), counts, "default")
    for change, message in (
        ({"z": counts.z[:-1]}, "make them with rows_from_tables"),
        ({"z": counts.z * np.nan}, r"in columns \[0, 1, 2\]"),
    ):
        with pytest.raises(ValueError, match=message):
            pm.fit(jax.random.key(0), counts._replace(**change), small.recipe())


def test_units_that_are_held_out_by_the_caller_are_not_seen(small):
    tables = small.tables(400, 300)
    counts = pm.rows_from_tables(*tables).counts(merge=False)
    seen, held_out = (
        pm.Counts(*(part[rows] for part in counts))
        for rows in (np.arange(700) % 5 > 0, np.arange(700) % 5 == 0)
    )
    recipe = small.recipe(max_steps=5, eval_every=5)
    result = pm.fit(jax.random.key(0), seen, recipe, held_out=held_out)
    for found, wanted in zip(result.held_out, held_out, strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(
        result.model.standardizer.mean, seen.z.mean(axis=0), rtol=1e-5
    )
