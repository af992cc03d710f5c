"""A study at its smallest, run once: what it wrote is read back."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pns_dgp
import pytest
from absl import app
from pns_experiments import study
from pns_experiments.options import Options
from pns_experiments.runner import read_results


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Folder and printed table of the smoke run."""
    folder = tmp_path_factory.mktemp("smoke")
    return folder, study.run_study(study.PRESETS["smoke"], Options(folder))


@pytest.mark.slow
def test_methods_are_scored_against_the_same_truth(smoke):
    rows = read_results(smoke[0] / "results.jsonl")
    by_method = {row["task"]["method"]: row for row in rows}
    assert set(by_method) == {"t_learner", "anchored", "epinet"} and len(rows) == 3
    assert by_method["anchored"]["valid"] == by_method["epinet"]["valid"] == 1
    assert by_method["t_learner"]["valid"] < 1
    for name in ("point_coverage", "set_coverage"):
        assert by_method["anchored"][name] < by_method["epinet"][name]
    widths = [row["oracle_width"] for row in rows]
    assert len(set(widths)) == 1 and 0.1 < widths[0] < 0.3  # the same test points


@pytest.mark.slow
def test_a_run_says_what_computed_it(smoke):
    folder, printed = smoke
    config = json.loads((folder / "config.json").read_text())
    assert config["size"] == "smoke" and config["study"] == "benchmark"
    recipe = config["recipes"]["epinet"]
    assert recipe["network"]["kind"] == "epinet"
    assert recipe["training"]["max_steps"] == 40  # as it was run
    (start,) = json.loads((folder / "results.runs.json").read_text())
    assert "pns-infer" in start["versions"] and start["command"] and start["commit"]
    assert start["device"].startswith("cpu")
    assert (folder / "table.md").read_text() == printed
    table = pd.read_csv(folder / "table.csv")
    rows = read_results(folder / "results.jsonl")
    np.testing.assert_allclose(table["width_mean"], [row["width"] for row in rows])


@pytest.mark.slow
def test_a_second_run_finds_everything_done_and_another_seed_is_refused(smoke):
    folder, printed = smoke
    before = {path.name: path.read_text() for path in folder.glob("results.*")}
    assert study.run_study(study.PRESETS["smoke"], Options(folder)) == printed
    assert before == {path.name: path.read_text() for path in folder.glob("results.*")}
    with pytest.raises(app.UsageError, match="results of another config"):
        study.run_study(study.PRESETS["smoke"], Options(folder, seed=1))


def test_sensitivity_and_robustness_are_presets():
    tasks = study.list_tasks(study.PRESETS["sensitivity_full"], Options("unused"))
    sizes = {(task["observational"], task["experimental"]) for task in tasks}
    assert len(sizes) == 6 and len(tasks) == 60
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
