"""Presets of the study; tests/test_programs.py runs it at its smallest."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pns_bounds as pb
import pns_dgp
import pytest
from absl import app
from pns_experiments import study
from pns_experiments.methods import Answer
from pns_experiments.options import Options


def test_sensitivity_and_robustness_are_presets():
    tasks = study.list_tasks(study.PRESETS["sensitivity_full"], Options(Path("unused")))
    sizes = {(task["observational"], task["experimental"]) for task in tasks}
    assert len(sizes) == 6 and len(tasks) == 240  # four methods, ten replicates
    robustness = study.PRESETS["robustness"]
    assert robustness.models == tuple(f"li:{seed}" for seed in range(901, 906))
    # What its documentation says of these seeds.
    assert not set(range(901, 906)) & set(pns_dgp.LI_PANEL_SEEDS)
    assert pns_dgp.is_near_degenerate(pns_dgp.random_li_model(901))


def test_unknown_methods_and_models_list_the_known():
    smoke = study.PRESETS["smoke"]
    with pytest.raises(app.UsageError, match=r"no such method: \['x'\]; .*'epinet'"):
        dataclasses.replace(smoke, methods=("anchored", "x"))
    with pytest.raises(app.UsageError, match=r"no such model: \['li:x'\]; .* acic"):
        dataclasses.replace(smoke, models=("li:x",))


def test_final_members_are_twenty_that_nobody_has_seen():
    names = study.FINAL_MEMBERS
    seeds = {int(name.split(":")[1]) for name in names}
    assert len(seeds) == len(names) == 20
    assert not seeds & {*range(901, 916), *pns_dgp.LI_PANEL_SEEDS}


def test_stability_changes_the_methods_seed_and_nothing_else(monkeypatch):
    """A method that answers with its key and the data that it saw."""
    small = dataclasses.replace(
        study.PRESETS["stability"], sizes=((300, 200),), num_test=20, size="smoke"
    )
    seen = []

    class Recorder:
        def answer(self, key, tables, z, alpha, size):
            seen.append((np.asarray(jax.random.key_data(key)), tables.experimental.y))
            wide = pb.Interval(np.zeros(len(z)), np.ones(len(z)))
            atoms = pb.atoms_from_counts(*np.ones((2, len(z), *pb.BINARY.joint_shape)))
            return Answer(wide, atoms)

    monkeypatch.setitem(study.METHODS, "crossfit", Recorder())
    tasks = study.list_tasks(small, Options(Path("unused")))
    assert [task["replicate"] for task in tasks] == [0, 1, 2]
    for task in tasks:
        study.score_method(small, task, seed=0)
    keys, outcomes = zip(*seen, strict=True)
    assert len({tuple(key) for key in keys}) == 3
    for other in outcomes[1:]:
        np.testing.assert_array_equal(outcomes[0], other)
    other_tables = dataclasses.replace(small, same_tables=False)
    study.score_method(other_tables, tasks[1], seed=0)
    assert np.any(np.asarray(seen[-1][1]) != np.asarray(outcomes[0]))


def test_points_with_few_twins_are_scored_apart():
    small = dataclasses.replace(study.PRESETS["smoke"], models=("li:7",))
    task = study.list_tasks(small, Options(Path("unused")))[0]
    row = study.score_method(small, {**task, "method": "anchored"}, seed=0)
    assert 0 <= row["rare_coverage"] <= 1 and 0 <= row["few_coverage"] <= 1
    points = study.draw_replicate("li:7", 2000, 1000, 100, 0, seed=0)
    wide = pb.Interval(np.zeros(100), np.ones(100))
    assert study._score_rare(points, wide) == {"rare_coverage": 1, "few_coverage": 1}
    twins = study.count_twins(points.tables, points.z)
    none = pb.Interval(np.where(twins < 10, 1.0, 0.0), np.ones(100))
    assert study._score_rare(points, none)["few_coverage"] == 0
