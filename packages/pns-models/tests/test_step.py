"""The compiled step: one program for equal runs, one step by hand, and what decays."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from flax import nnx
from pns_models import _batches, _step
from pns_models._links import loss_by_index
from pns_models._step import Optimizer, decays, make_optimizer
from pns_models._training import next_chunk

pytestmark = pytest.mark.usefixtures("quick_compilation")

KINDS = ["anchored", "s_learner", "t_learner", "hypermodel", "epinet", "ensemble"]


@pytest.mark.parametrize("kind", KINDS)
def test_equal_networks_have_equal_graph_definitions(small, kind):
    first, second = (nnx.graphdef(small.network(kind, key=key)) for key in (0, 1))
    assert first == second and hash(first) == hash(second)
    # Also after a round trip, as at the end of training, and as loading makes it.
    merged = nnx.merge(*nnx.split(small.network(kind)))
    abstract = nnx.eval_shape(lambda: small.network(kind))
    for other in (nnx.graphdef(merged), nnx.graphdef(abstract)):
        assert first == other and hash(first) == hash(other)
    relu = small.network(kind, backbone=pm.Backbone(8, 1, "relu"))
    assert nnx.graphdef(relu) != first


def count_traces(monkeypatch, most):
    """Wraps the step so that it counts its traces and may not have more than `most`."""
    calls = []
    original = _step.train_step

    def train_step(*args):
        calls.append(1)
        return original(*args)

    chex.clear_trace_counter()
    limited = chex.assert_max_traces(train_step, n=most)
    monkeypatch.setattr(_step, "train_step", limited)
    return calls


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_fit_of_one_recipe_traces_no_step(fits, small, kind, monkeypatch):
    """With data noise and another key; `fits` holds the first."""
    calls = count_traces(monkeypatch, most=0)
    second = small.fit(kind, key=6)
    assert not calls
    first = fits[kind].history.training
    assert not np.array_equal(first, second.history.training)


def test_a_fit_traces_the_step_once(small, monkeypatch):
    """Four chunks, with better and worse evaluations between them."""
    calls = count_traces(monkeypatch, most=1)
    counts = pm.rows_from_tables(*small.tables()).counts()
    recipe = small.recipe(max_steps=40, learning_rate=0.3)
    history = pm.fit(jax.random.key(0), counts, recipe).history
    assert len(calls) == 1
    assert len(set(np.sign(np.diff(history.held_out)))) == 2


def test_two_fits_by_minibatches_trace_the_step_once(small, monkeypatch):
    calls = count_traces(monkeypatch, most=1)
    recipe = small.recipe(
        batch_size=64, merge=False, learning_rate=0.011, held_out_fraction=0.0
    )
    counts = pm.rows_from_tables(*small.tables()).counts(merge=False)
    for key in (0, 1):
        pm.fit(jax.random.key(key), counts, recipe)
    assert len(calls) == 1


def test_a_step_takes_the_loss_of_its_batch_with_the_noise_of_its_units(small):
    """One step by hand: the batch stands for all rows, units keep their directions."""
    counts = pm.rows_from_tables(*small.tables(300, 200)).counts(merge=False)
    recipe = small.recipe(
        "ensemble", batch_size=64, merge=False, data_noise="exponential"
    )
    keys = _step.RunKeys(*jax.random.split(jax.random.key(0), 5))
    network = recipe.network.make(keys.network, 3)
    run, state = _step.make_run(network, recipe.training, counts, counts, keys)
    rows, members = run.batches(0, 1).rows[0], jnp.eye(3)
    assert run.batches(0, 1).weights is None  # noise is each unit's own

    @jax.jit
    def loss(z, which):
        directions = _batches.row_directions(network, keys.noise, rows)
        weights = _batches.noisy_weights(run.data.quantiles, which, directions, members)
        totals = jnp.array([300.0, 200.0]) * 64 / 500
        raw = network.raw(z, members)
        return loss_by_index(raw, weights, totals, "anchored", True).mean()

    z, which = np.asarray(run.data.z)[rows], np.asarray(run.data.which)[rows]
    after, losses = next_chunk(run, state, 0, 1)
    np.testing.assert_allclose(losses[0], loss(z, which), rtol=1e-4)
    assert int(after.step) == 1
    chex.assert_trees_all_equal_shapes_and_dtypes(after, state)


def test_steps_of_several_members_are_one_mapped_step(small):
    """A leading axis over states and weights is a `vmap` away."""
    counts = pm.rows_from_tables(*small.tables()).counts()
    recipe = small.recipe()
    keys = _step.RunKeys(*jax.random.split(jax.random.key(0), 5))
    runs = [
        _step.make_run(
            recipe.network.make(key, 3), recipe.training, counts, counts, keys
        )
        for key in jax.random.split(keys.network, 2)
    ]
    run, states = runs[0][0], [state for _, state in runs]
    weights = np.stack([run.data.weights] * 2)
    weights[1, :2] *= np.array([[0.5], [0.0]])  # the second has its own first two rows

    @jax.jit
    def step(state, weights):
        data = run.data._replace(weights=weights)
        return _step.train_step(run.program, state, run.fixed, data, run.keys, None)

    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
    together = jax.tree.map(np.asarray, jax.jit(jax.vmap(step))(stacked, weights))
    for member, (state, own) in enumerate(zip(states, weights, strict=True)):
        alone = step(state, own)
        chex.assert_trees_all_close(
            jax.tree.map(lambda x, m=member: x[m], together), alone, atol=1e-5
        )


def is_predicting_kernel(path) -> bool:
    """Says by its place what decays: kernels, but not what makes draws differ.

    The hypermodel's generated output is `learner.kernel`, no member of `kernels`.
    """
    return "kernels" in path and "head" not in path


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_that_predict_decay_and_nothing_else(small, kind):
    params = nnx.state(small.network(kind), nnx.Param)
    params = jax.tree.map(jnp.ones_like, params)
    tx = Optimizer(0.1, 0.5, None).transformation()
    still = jax.tree.map(jnp.zeros_like, params)
    updates, _ = tx.update(still, tx.init(params), params)
    moved = set()
    for path, update in nnx.to_flat_state(updates):
        expected = -0.05 if is_predicting_kernel(path) else 0.0
        np.testing.assert_allclose(update[...], expected, atol=1e-7)
        moved.add(expected)
    assert moved == {-0.05, 0.0}


def test_a_type_decides_and_a_name_does_not():
    class Odd(nnx.Module):
        def __init__(self):
            self.kernels = nnx.Param(jnp.ones(2))
            self.head = pm.Kernel(jnp.ones(2))

    mask = decays(nnx.state(Odd()))
    assert nnx.to_pure_dict(mask) == {"kernels": False, "head": True}


def test_settings_are_taken_from_a_training():
    config = pm.TrainConfig(learning_rate=0.3, weight_decay=0.2)
    assert make_optimizer(config, 10) == Optimizer(0.3, 0.2, None)
    # The number of steps is part of the program only if the schedule needs it.
    assert make_optimizer(config, 10) == make_optimizer(config, 20)
    cosine = pm.TrainConfig(schedule="cosine")
    assert make_optimizer(cosine, 10) != make_optimizer(cosine, 20)


def test_the_cosine_schedule_ends_at_zero():
    params = {"w": jnp.ones(2)}
    tx = Optimizer(0.01, 0.0, 10).transformation()
    state = tx.init(params)
    sizes = []
    for _ in range(11):
        updates, state = tx.update(params, state, params)
        sizes.append(float(-updates["w"][0]))
    np.testing.assert_allclose(sizes[0], 0.01, rtol=1e-4)
    np.testing.assert_allclose(sizes[5], 0.005, rtol=1e-3)
    np.testing.assert_allclose(sizes[10], 0, atol=1e-9)
