"""Tuning sees two tables and no truth."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from absl import app
from pns_experiments import tune
from pns_experiments.options import Options
from pns_experiments.runner import read_results


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("tables")
    for name in ("a", "b"):
        table = pd.DataFrame(
            rng.integers(0, 2, (800, 4)), columns=["z1", "z2", "x", "y"]
        )
        table.to_parquet(folder / f"{name}.parquet")
    return [str(folder / "a.parquet"), str(folder / "b.parquet")]


def test_every_change_is_judged_and_the_best_comes_first(paths, tmp_path, monkeypatch):
    def judge(key, counts, recipe):
        del key
        assert len(counts.z) == 4
        return {"joint_log_likelihood": -abs(recipe.network.prior_scale - 0.3)}

    monkeypatch.setattr(tune, "judge", judge)
    counts, digest = tune.read_counts(paths, "x", "y")
    search = tune.PRESETS["epinet"]
    text = tune.run_search(search, counts, digest, Options(tmp_path))
    rows = read_results(tmp_path / "results.jsonl")
    assert len(rows) == 2 * 2 * 4  # splits, rates, scales
    assert [line.split(" | ")[2] for line in text.splitlines()[2:4]] == ["0.3", "0.3"]
    # The same folder with other tables is refused.
    counts, digest = tune.read_counts(paths[::-1], "x", "y")
    with pytest.raises(app.UsageError, match="results of another config"):
        tune.run_search(search, counts, digest, Options(tmp_path))


def test_a_network_without_a_prior_is_searched_without_its_scale(
    paths, tmp_path, monkeypatch
):
    seen = []
    monkeypatch.setattr(
        tune,
        "judge",
        lambda key, counts, recipe: seen.append(recipe) or {"held_out_loss": 1.0},
    )
    counts, digest = tune.read_counts(paths, "x", "y")
    options = Options(tmp_path, replicate_end=1)
    tune.run_search(tune.PRESETS["anchored"], counts, digest, options)
    assert len(set(seen)) == 9
    assert {recipe.network.kind for recipe in seen} == {"anchored"}


def test_tables_that_cannot_be_used_are_refused(paths, tmp_path):
    with pytest.raises(app.UsageError, match="no file nowhere"):
        tune.read_counts(["nowhere", paths[1]], "x", "y")
    with pytest.raises(app.UsageError, match=r"has no columns \['z'\]"):
        tune.read_counts(paths, "x", "z")
    words = tmp_path / "words.parquet"
    pd.read_parquet(paths[1]).assign(z1="high").to_parquet(words)
    with pytest.raises(app.UsageError, match="not numbers; encode them"):
        tune.read_counts([paths[0], str(words)], "x", "y")


def test_nothing_that_knows_a_truth_is_loaded():
    code = (
        "import sys, pns_experiments.tune\n"
        "assert not {'pns_dgp', 'pns_experiments.replicates'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0
