"""Runs that were interrupted: they resume to the bit-identical result, or say why not."""

import os
import runpy
import signal
import subprocess
import sys
import time

import chex
import jax
import numpy as np
import pns_models as pm
import pytest
from pns_models import _checkpoints, _step, _training

pytestmark = pytest.mark.usefixtures("quick_compilation")

# Runs in this process and, to be killed, in another one.
RUN = """
import jax, numpy as np, pns_models as pm

def run(folder):
    rng = np.random.default_rng(0)
    tables = [
        (rng.integers(0, 2, (n, 3)), rng.integers(0, 2, n), rng.integers(0, 2, n))
        for n in (700, 500)
    ]
    counts = pm.rows_from_tables(*tables).counts(merge=False)
    training = pm.TrainConfig(batch_size=64, merge=False, max_steps=400, patience=40)
    network = pm.AnchoredConfig(pm.Backbone(8, 1))
    return pm.fit(jax.random.key(3), counts, pm.Recipe(network, training),
                  checkpoint_dir=folder, checkpoint_seconds=0)
"""


@pytest.mark.slow
def test_a_run_that_was_killed_resumes_to_the_bit_identical_result(tmp_path):
    """Kill -9 in the middle, then the same call again."""
    script, folder = tmp_path / "script.py", tmp_path / "killed"
    script.write_text(f'{RUN}\nif __name__ == "__main__":\n    run({str(folder)!r})\n')
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # as here
    process = subprocess.Popen([sys.executable, script], env=environment)
    jax.clear_caches()  # of other tests, compiled with other settings
    run = runpy.run_path(str(script))["run"]
    steps = folder / "steps"
    for _ in range(2400):
        time.sleep(0.05)
        if steps.is_dir() and any(p.name.isdigit() for p in steps.iterdir()):
            break
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
    resumed, whole = run(folder), run(None)
    chex.assert_trees_all_equal(resumed.history, whole.history)
    z = whole.held_out.z
    chex.assert_trees_all_equal(resumed.model.atoms(z), whole.model.atoms(z))


def interrupt(monkeypatch, evaluations):
    """Stops a run after some evaluations."""
    remember, seen = _training.remember, []

    def broken(state, held_out):
        seen.append(held_out)
        if len(seen) > evaluations:
            raise KeyboardInterrupt
        return remember(state, held_out)

    monkeypatch.setattr(_training, "remember", broken)


@pytest.mark.parametrize(("kind", "batch_size"), [("anchored", 64), ("epinet", None)])
def test_a_run_stopped_while_it_waits_for_a_better_loss_resumes(
    small, tmp_path, monkeypatch, kind, batch_size
):
    """The best parameters and the patience spent are part of the state."""
    sizes = (150, 100) if batch_size is None else (300, 200)
    counts = pm.rows_from_tables(*small.tables(*sizes)).counts(batch_size is None)
    recipe = small.recipe(
        kind,
        data_noise="exponential",
        batch_size=batch_size,
        merge=batch_size is None,
        learning_rate=0.1,
        weight_decay=0.0,
        max_steps=2000,
        eval_every=5,
        patience=4,
        held_out_fraction=0.3,
    )
    whole = pm.fit(jax.random.key(0), counts, recipe)
    stop = len(whole.history.step) - 2  # the best evaluation lies behind
    options = {"checkpoint_dir": tmp_path, "checkpoint_seconds": 0}
    with monkeypatch.context() as context:
        interrupt(context, stop)
        with pytest.raises(KeyboardInterrupt):
            pm.fit(jax.random.key(0), counts, recipe, **options)
    compiled = _step.train_chunk._cache_size()
    again = pm.fit(jax.random.key(0), counts, recipe, **options)
    assert _step.train_chunk._cache_size() == compiled
    chex.assert_trees_all_equal(again.history, whole.history)
    z = counts.z[:20]
    chex.assert_trees_all_equal(again.model.atoms(z), whole.model.atoms(z))


def test_checkpoints_of_another_run_are_refused(small, tmp_path, monkeypatch):
    tables = small.tables()
    counts = pm.rows_from_tables(*tables).counts()
    pm.fit(jax.random.key(0), counts, small.recipe(), checkpoint_dir=tmp_path)
    z, x, y = tables[0]
    flipped = pm.rows_from_tables((z, x, 1 - y), tables[1]).counts()
    for key, data, recipe in (
        (1, counts, small.recipe()),
        (0, counts, small.recipe(max_steps=80)),
        (0, counts._replace(z=counts.z + 1), small.recipe()),
        (0, flipped, small.recipe()),
    ):
        with pytest.raises(ValueError, match="checkpoints of another run"):
            pm.fit(jax.random.key(key), data, recipe, checkpoint_dir=tmp_path)
    again = pm.fit(jax.random.key(0), counts, small.recipe(), checkpoint_dir=tmp_path)
    assert again.history.step.tolist() == [10, 20]
    monkeypatch.setattr(_checkpoints, "_FORMAT", 3)
    with pytest.raises(ValueError, match="or version of pns-models"):
        pm.fit(jax.random.key(0), counts, small.recipe(), checkpoint_dir=tmp_path)


def test_a_damaged_checkpoint_is_told(small, tmp_path):
    counts = pm.rows_from_tables(*small.tables()).counts()
    pm.fit(jax.random.key(0), counts, small.recipe(), checkpoint_dir=tmp_path)
    (tmp_path / "steps" / "20" / "state" / "_METADATA").write_text("{")
    with pytest.raises(pm.DamagedModelError, match="step 20 cannot be read; delete"):
        pm.fit(jax.random.key(0), counts, small.recipe(), checkpoint_dir=tmp_path)


def test_a_state_is_restored_by_name(tmp_path):
    state = {"a": np.arange(3.0), "b": {"c": np.ones(2)}}
    checkpoints = _checkpoints.RunCheckpoints(tmp_path, {})
    checkpoints.save(7, state, [(7, 0.5, float("nan"))])
    restored, history = checkpoints.restore(state)
    chex.assert_trees_all_equal(restored, state)
    assert history[0][:2] == (7, 0.5) and np.isnan(history[0][2])
    with pytest.raises(pm.DamagedModelError):
        checkpoints.restore({"a": state["a"], "other": state["b"]})
    checkpoints.close()
