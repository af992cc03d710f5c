"""The engine: same loss on counts and rows, resuming, stopping, constrained optimum."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from flax import nnx
from pns_models import _noise, _training
from scipy import optimize


def make_config(kind="anchored", backbone=None, **sizes):
    """Makes a config of any kind; sizes that it does not have are left out."""
    config_class = pm.NETWORKS[kind]
    names = [field.name for field in dataclasses.fields(config_class)]
    known = {name: size for name, size in sizes.items() if name in names}
    return config_class(backbone or pm.Backbone(), **known)


SMALL = pm.Backbone(width=16, depth=1, activation="silu")


def draw_tables(n=3000, m=2000, seed=0):
    """Binary covariates; X and Y depend on them and on something hidden."""
    rng = np.random.default_rng(seed)
    made = []
    for size, randomized in ((n, False), (m, True)):
        z = rng.integers(0, 2, (size, 4)).astype(np.float32)
        hidden = rng.integers(0, 2, size)
        lean = 0.25 + 0.2 * z[:, 0] + 0.3 * hidden
        x = (rng.random(size) < (0.5 if randomized else lean)).astype(int)
        respond = 0.1 + 0.3 * hidden + 0.2 * x * z[:, 1] + 0.2 * z[:, 2]
        made.append((z, x, (rng.random(size) < respond).astype(int)))
    return made


def recipe(kind="anchored", **training):
    settings = {"max_steps": 60, "eval_every": 20, "patience": None, **training}
    network = make_config(kind, SMALL, index_dim=4, num_members=3)
    return pm.Recipe(network, pm.TrainConfig(**settings))


@pytest.mark.parametrize("kind", ["anchored", "s_learner", "ensemble"])
def test_counts_and_rows_have_the_same_loss_and_gradient(kind):
    tables = draw_tables()
    network = recipe(kind).network.make(jax.random.key(0), 4)
    structure, params = nnx.split(network, nnx.Param)
    indices = network.training_indices(jax.random.key(1), 2)
    results = []
    for merge in (False, True):
        counts = pm.counts_from_tables(*tables, merge=merge)
        cells = jnp.asarray(_training._flat_cells(counts))

        def loss(params, counts=counts, cells=cells):
            raw = nnx.merge(structure, params).raw(jnp.asarray(counts.z), indices)
            totals = jnp.array([3000.0, 2000.0])
            return pm.loss_by_index(raw, cells, totals, network.link, True).mean()

        results.append(jax.value_and_grad(loss)(params))
    (loss_rows, gradient_rows), (loss_merged, gradient_merged) = results
    np.testing.assert_allclose(loss_rows, loss_merged, rtol=1e-5)
    for one, other in zip(
        jax.tree.leaves(gradient_rows), jax.tree.leaves(gradient_merged), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=2e-6)


def test_the_loss_is_the_mean_negative_log_likelihood_of_each_table():
    tables = draw_tables(50, 30)
    counts = pm.counts_from_tables(*tables, merge=True)
    raw = jax.random.normal(jax.random.key(0), (1, len(counts.z), 6))
    totals = jnp.array([50.0, 30.0])
    loss = pm.loss_by_index(raw, _training._flat_cells(counts), totals, "anchored")
    atoms = pm.atoms_from_raw(raw[0], "anchored")
    expected = 0.0
    for source, (z, x, y) in enumerate(tables):
        for row in range(len(z)):
            (where,) = np.flatnonzero(np.all(counts.z == z[row], axis=1))
            if source == 0:
                expected -= np.log(atoms.joint[where, x[row], y[row]]) / 50
            else:
                mu = float(atoms.mu[where, x[row]])
                expected -= np.log(mu if y[row] else 1 - mu) / 30
    np.testing.assert_allclose(loss[0], expected, rtol=1e-5)


@pytest.mark.slow
def test_minibatches_of_rows_and_full_batches_of_counts_reach_the_same_loss():
    tables = draw_tables(8000, 6000)
    losses = []
    for training in (
        {"merge": False, "batch_size": 512, "max_steps": 600, "learning_rate": 3e-3},
        {"merge": True, "batch_size": None, "max_steps": 300, "learning_rate": 1e-2},
    ):
        fitted = pm.fit(
            jax.random.key(0),
            pm.counts_from_tables(*tables, merge=training["merge"]),
            recipe(held_out_fraction=0.0, weight_decay=0.0, **training),
        )
        fresh = pm.counts_from_tables(*draw_tables(40_000, 40_000, seed=9))
        losses.append(held_out_loss(fitted.model, fresh))
    # 0.003 is half a per cent of what the covariates explain here.
    assert abs(losses[0] - losses[1]) < 0.003


def held_out_loss(model, counts) -> float:
    atoms = model.atoms(counts.z)
    outcome = np.stack([1 - atoms.mu, atoms.mu], axis=-1)
    return sum(
        -np.sum(cells * np.log(p)) / cells.sum()
        for cells, p in (
            (counts.observational, atoms.joint),
            (counts.experimental, outcome),
        )
    )


@pytest.mark.slow
def test_the_anchored_net_finds_the_constrained_maximum_likelihood_estimate():
    """One cell per z: the estimate is the frequency, where that is compatible.

    The experiment of the second cell contradicts the survey by chance, so there the
    optimum lies on the boundary; scipy finds it in the space of probabilities.
    """
    observational = np.array([[[30, 20], [25, 25]], [[10, 40], [30, 20]]], np.float32)
    experimental = np.array([[[60, 40], [40, 60]], [[70, 30], [50, 50]]], np.float32)
    counts = pm.Counts(
        np.array([[0.0], [1.0]], np.float32), observational, experimental
    )
    fitted = pm.fit(
        jax.random.key(0),
        counts,
        recipe(
            weight_decay=0.0,
            held_out_fraction=0.0,
            max_steps=4000,
            eval_every=1000,
            schedule="cosine",
        ),
    )
    atoms = fitted.model.atoms(counts.z)
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


@pytest.mark.parametrize("kind", ["anchored", "hypermodel", "ensemble"])
@pytest.mark.parametrize("batch_size", [None, 64])
def test_the_training_step_is_traced_once(kind, batch_size, monkeypatch):
    calls = []
    original = _training.loss_by_index

    def counting(*args, **kwargs):
        calls.append(kwargs.get("training", False))
        return original(*args, **kwargs)

    monkeypatch.setattr(_training, "loss_by_index", counting)
    setup = recipe(
        kind,
        batch_size=batch_size,
        merge=batch_size is None,
        data_noise="exponential",
        max_steps=40,
        eval_every=10,
        num_indices=3,
    )
    pm.fit(jax.random.key(7), pm.counts_from_tables(*draw_tables(700, 500)), setup)
    assert calls.count(True) == 1  # one program for all four chunks


def test_epochs_count_passes_over_the_rows():
    counts = pm.counts_from_tables(*draw_tables(300, 200), merge=False)
    for batch_size, steps in ((100, 15), (200, 8)):  # 7.5 batches are begun 8 times
        setup = recipe(
            batch_size=batch_size,
            merge=False,
            epochs=3,
            max_steps=None,
            held_out_fraction=0.0,
        )
        history = pm.fit(jax.random.key(0), counts, setup).history
        assert history.step[-1] == steps
        assert np.all(np.isnan(history.held_out))


def test_a_step_takes_the_loss_of_its_batch_with_the_noise_of_its_people():
    """One step by hand: the batch stands for all rows, people keep their directions."""
    counts = pm.counts_from_tables(*draw_tables(300, 200), merge=False)
    setup = recipe("ensemble", batch_size=64, merge=False, data_noise="exponential")
    names = ("network", "split", "batches", "index", "noise")
    keys = {name: jax.random.key(i) for i, name in enumerate(names)}
    network = setup.network.make(keys["network"], 4)
    run = _training._Run(
        network, setup, counts, counts, pm.make_standardizer(counts), keys
    )
    rows, members = run.batches(0, 1).rows[0], jnp.eye(3)
    assert run.batches(0, 1).cells is None  # noise is each person's own
    directions = _noise.cell_directions(network, keys["noise"], rows)
    cells = _noise.noisy_cells(
        run.data.quantiles, run.data.which[rows], directions, members
    )
    raw = network.raw(run.data.z[rows], members)
    totals = jnp.array([300.0, 200.0]) * 64 / 500
    expected = pm.loss_by_index(raw, cells, totals, "anchored", True).mean()
    np.testing.assert_allclose(run._chunk(0, 1)[1][0], expected, rtol=1e-4)


def test_decay_spares_biases_and_what_makes_draws_differ():
    for kind in ("hypermodel", "epinet"):
        network = recipe(kind).network.make(jax.random.key(0), 3)
        params = jax.tree.map(jnp.ones_like, nnx.state(network, nnx.Param))
        config = pm.TrainConfig(learning_rate=0.1, weight_decay=0.5)
        tx = _training._make_optimizer(config, 10, params)
        still = jax.tree.map(jnp.zeros_like, params)
        updates, _ = tx.update(still, tx.init(params), params)
        moved = set()
        for path, leaf in jax.tree_util.tree_leaves_with_path(updates):
            name = jax.tree_util.keystr(path)
            if "kernels" in name and "['head']" not in name:
                np.testing.assert_allclose(leaf, -0.05, atol=1e-7)
                moved.add(name)
            else:
                np.testing.assert_array_equal(leaf, 0)
        assert len(moved) >= 2


def test_the_cosine_schedule_ends_at_zero():
    params = {"w": jnp.ones(2)}
    config = pm.TrainConfig(schedule="cosine", weight_decay=0.0)
    tx = _training._make_optimizer(config, 10, params)
    state = tx.init(params)
    sizes = []
    for _ in range(11):
        updates, state = tx.update(params, state, params)
        sizes.append(float(-updates["w"][0]))
    np.testing.assert_allclose(sizes[0], config.learning_rate, rtol=1e-4)
    np.testing.assert_allclose(sizes[5], config.learning_rate / 2, rtol=1e-3)
    np.testing.assert_allclose(sizes[10], 0, atol=1e-9)


def test_evaluation_in_blocks_and_a_last_short_chunk(monkeypatch):
    counts = pm.counts_from_tables(*draw_tables(300, 200), merge=False)
    setup = recipe(max_steps=5, eval_every=3, merge=False)
    whole = pm.fit(jax.random.key(0), counts, setup).history
    assert whole.step.tolist() == [3, 5]
    monkeypatch.setattr(_training, "_EVAL_ROWS", 16)
    blocks = pm.fit(jax.random.key(0), counts, setup).history
    np.testing.assert_allclose(blocks.held_out, whole.held_out, rtol=1e-5)


def test_the_standardizer_knows_the_training_part_alone():
    counts = pm.counts_from_tables(*draw_tables(60, 40), merge=False)
    fitted = pm.fit(jax.random.key(0), counts, recipe(max_steps=4, merge=False))
    held = fitted.held_out
    num_held = held.observational.sum() + held.experimental.sum()
    expected = (counts.z.sum(0) - held.z.sum(0)) / (100 - num_held)
    np.testing.assert_allclose(fitted.model.standardizer.mean, expected, rtol=1e-5)


def test_fractional_weights_of_merged_rows_keep_the_fit():
    """Merged cells with fractional sums must not vanish from training whole."""
    rng = np.random.default_rng(0)
    tables = draw_tables(3000, 2000)
    weights = (rng.uniform(0.5, 1.5, 3000), rng.uniform(0.5, 1.5, 2000))
    counts = pm.counts_from_tables(*tables, weights=weights, merge=True)
    train, held = pm.split_counts(np.random.default_rng(1), counts, 0.2)
    for part, whole, out in zip(train[1:], counts[1:], held[1:], strict=True):
        np.testing.assert_allclose(out.sum() / whole.sum(), 0.2, atol=0.03)
        assert np.all((part > 0) == (whole > 0))  # no cell is lost


def test_training_stops_when_patience_ends_and_keeps_the_best():
    counts = pm.counts_from_tables(*draw_tables(150, 100))
    setup = recipe(
        learning_rate=3e-2,
        weight_decay=0.0,
        max_steps=5000,
        eval_every=5,
        patience=4,
        held_out_fraction=0.3,
    )
    fitted = pm.fit(jax.random.key(0), counts, setup)
    best = int(np.argmin(fitted.history.held_out))
    assert len(fitted.history.step) == best + 1 + 4 < 1000
    reached = held_out_loss(fitted.model, fitted.held_out)
    np.testing.assert_allclose(reached, fitted.history.held_out[best], rtol=1e-5)


def test_a_key_names_the_run():
    counts = pm.counts_from_tables(*draw_tables(500, 300))
    first, again, other = (
        pm.fit(jax.random.key(k), counts, recipe()).model.atoms(counts.z).mu
        for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_loss_that_is_not_finite_names_its_step():
    counts = pm.counts_from_tables(*draw_tables(500, 300))
    wild = recipe(learning_rate=1e30, weight_decay=0.0)
    with pytest.raises(pm.DivergedError, match=r"not finite at step \d+ of 60"):
        pm.fit(jax.random.key(0), counts, wild)
    history = pm.fit(jax.random.key(0), counts, wild, abort_on_nan=False).history
    assert history.step[-1] == 60


RUN = """
import sys, jax, numpy as np, pns_models as pm
sys.path.insert(0, {tests!r})
from test_training import draw_tables, recipe
counts = pm.counts_from_tables(*draw_tables(700, 500), merge=False)
setup = recipe("hypermodel", batch_size=64, merge=False, max_steps=400, eval_every=10,
               data_noise="exponential", num_indices=2, patience=30)
fit = pm.fit(jax.random.key(3), counts, setup, checkpoint_dir={folder!r},
             checkpoint_seconds=0)
np.savez({out!r}, mu=fit.model.atoms(counts.z).mu, **fit.history._asdict())
"""


@pytest.mark.slow
def test_a_run_that_was_killed_resumes_to_the_bit_identical_result(tmp_path):
    """Kill -9 in the middle, then the same command again."""
    tests = str(Path(__file__).parent)

    def command(name):
        code = RUN.format(
            tests=tests, folder=str(tmp_path / name), out=str(tmp_path / f"{name}.npz")
        )
        return [sys.executable, "-c", code]

    subprocess.run(command("whole"), check=True)
    process = subprocess.Popen(command("killed"))
    steps = tmp_path / "killed" / "steps"
    for _ in range(1200):
        time.sleep(0.05)
        if steps.is_dir() and any(p.name.isdigit() for p in steps.iterdir()):
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed.npz").exists(), "it ended before it was killed"
    subprocess.run(command("killed"), check=True)
    with (
        np.load(tmp_path / "whole.npz") as whole,
        np.load(tmp_path / "killed.npz") as resumed,
    ):
        for name in ("mu", "step", "training", "held_out"):
            np.testing.assert_array_equal(whole[name], resumed[name])


@pytest.mark.parametrize("batch_size", [None, 512])
def test_a_run_stopped_while_it_waits_for_a_better_loss_resumes(
    tmp_path, monkeypatch, batch_size
):
    """The best parameters and the patience spent are part of the state."""
    sizes = (150, 100) if batch_size is None else (900, 700)
    counts = pm.counts_from_tables(*draw_tables(*sizes), merge=batch_size is None)
    setup = recipe(
        batch_size=batch_size,
        merge=batch_size is None,
        learning_rate=3e-2,
        weight_decay=0.0,
        max_steps=5000,
        eval_every=5,
        patience=4,
        held_out_fraction=0.3,
    )
    whole = pm.fit(jax.random.key(0), counts, setup)
    stop = len(whole.history.step) - 2  # the best evaluation lies behind
    remember, seen = _training._Run._remember, []

    def broken(self, held_out):
        seen.append(held_out)
        if len(seen) > stop:
            raise KeyboardInterrupt
        remember(self, held_out)

    monkeypatch.setattr(_training._Run, "_remember", broken)
    options = {"checkpoint_dir": tmp_path, "checkpoint_seconds": 0}
    with pytest.raises(KeyboardInterrupt):
        pm.fit(jax.random.key(0), counts, setup, **options)
    monkeypatch.setattr(_training._Run, "_remember", remember)
    again = pm.fit(jax.random.key(0), counts, setup, **options)
    np.testing.assert_array_equal(again.history.step, whole.history.step)
    np.testing.assert_array_equal(
        again.model.atoms(counts.z).mu, whole.model.atoms(counts.z).mu
    )


def test_checkpoints_of_another_run_are_refused(tmp_path):
    tables = draw_tables(300, 200)
    counts = pm.counts_from_tables(*tables)
    pm.fit(jax.random.key(0), counts, recipe(), checkpoint_dir=tmp_path)
    z, x, y = tables[0]
    flipped = pm.counts_from_tables((z, x, 1 - y), tables[1])
    for key, data, setup in (
        (1, counts, recipe()),
        (0, counts, recipe(max_steps=80)),
        (0, counts._replace(z=counts.z + 1), recipe()),
        (0, flipped, recipe()),
    ):
        with pytest.raises(ValueError, match="checkpoints of another run"):
            pm.fit(jax.random.key(key), data, setup, checkpoint_dir=tmp_path)
    finished = pm.fit(jax.random.key(0), counts, recipe(), checkpoint_dir=tmp_path)
    assert finished.history.step.tolist() == [20, 40, 60]


@pytest.mark.parametrize("preset", pm.PRESETS)
def test_every_preset_survives_json_and_starts(preset):
    setup = pm.PRESETS[preset]
    assert pm.Recipe.from_json(json.loads(json.dumps(setup.to_json()))) == setup
    network = setup.network.make(jax.random.key(0), 15)
    indices = network.draw_indices(jax.random.key(1), 2)
    assert network.raw(jnp.zeros((3, 15)), indices).shape == (2, 3, 6)


def test_paper_presets_are_those_of_the_tables():
    low, high, bootstrap = (
        pm.PRESETS[name]
        for name in ("paper_low_dim", "paper_high_dim", "paper_bootstrap")
    )
    assert (low.network.index_dim, high.network.index_dim) == (20, 18)
    assert (low.training.learning_rate, high.training.learning_rate) == (3e-4, 3e-5)
    assert (low.training.epochs, high.training.epochs) == (800, 4600)
    assert (low.network.hidden, high.network.hidden) == ((64, 64), (32, 32))
    assert (low.network.prior_scale, high.network.prior_scale) == (1.0, 1.25)
    assert (low.network.backbone.width, high.network.backbone.width) == (128, 256)
    assert bootstrap.training.batch_size == 256 and bootstrap.training.epochs == 100
    for setup in (low, high, bootstrap):
        assert setup.training.patience is None and setup.training.weight_decay == 0
        assert setup.network.backbone.depth == 3
        assert setup.network.backbone.activation == "relu"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 5}, "either epochs or max_steps"),
        ({"max_steps": None}, "either epochs or max_steps"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"held_out_fraction": 1.0}, r"held_out_fraction must lie in \[0, 1\)"),
        ({"patience": 3, "held_out_fraction": 0.0}, "needs a held_out_fraction"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive"),
        ({"schedule": "linear"}, "schedule must be one of"),
        ({"data_noise": "normal"}, "data_noise must be one of"),
    ],
)
def test_settings_that_contradict_are_told(change, message):
    with pytest.raises(ValueError, match=message):
        recipe(**change)


def test_data_that_cannot_be_trained_on_are_told():
    counts = pm.counts_from_tables(*draw_tables(300, 200))
    nobody = counts._replace(experimental=np.zeros_like(counts.experimental))
    with pytest.raises(pm.TooFewRowsError, match="training part needs units") as raised:
        pm.fit(jax.random.key(0), nobody, recipe())
    assert raised.value.part == "training"
    assert raised.value.observational > 200 and raised.value.experimental == 0
    z = np.zeros((2, 4))
    pair = (z, np.array([0, 1]), np.array([1, 0]))
    few = pm.counts_from_tables(draw_tables(300, 1)[0], pair)
    with pytest.raises(pm.TooFewRowsError, match="part needs units of both sources"):
        pm.fit(jax.random.key(0), few, recipe())
    for bad in (np.nan, -1.0, -0.5):
        cells = counts.observational.copy()
        cells[0, 0, 0] = bad
        with pytest.raises(ValueError, match="observational counts must be finite"):
            pm.fit(jax.random.key(0), counts._replace(observational=cells), recipe())
    one_arm = counts.experimental.copy()
    one_arm[:, 1] = 0
    with pytest.raises(ValueError, match="units in both arms.* 0 in treatment"):
        pm.fit(jax.random.key(0), counts._replace(experimental=one_arm), recipe())
    with pytest.raises(TypeError, match="recipe must be a Recipe"):
        pm.fit(jax.random.key(0), counts, "default")
    with pytest.raises(ValueError, match="make them with counts_from_tables"):
        pm.fit(jax.random.key(0), counts._replace(z=counts.z[:-1]), recipe())
    with pytest.raises(ValueError, match=r"in columns \[0, 1, 2, 3\]"):
        pm.fit(jax.random.key(0), counts._replace(z=counts.z * np.nan), recipe())
