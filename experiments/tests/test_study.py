"""Presets of the study; tests/test_programs.py runs it at its smallest."""

import dataclasses
from pathlib import Path

import pns_dgp
import pytest
from absl import app
from pns_experiments import study
from pns_experiments.options import Options


def test_sensitivity_and_robustness_are_presets():
    tasks = study.list_tasks(study.PRESETS["sensitivity_full"], Options(Path("unused")))
    sizes = {(task["observational"], task["experimental"]) for task in tasks}
    assert len(sizes) == 6 and len(tasks) == 120  # two methods, ten replicates
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
