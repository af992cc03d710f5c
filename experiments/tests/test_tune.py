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


@pytest.mark.slow
def test_the_best_by_joint_likelihood_comes_first(paths, tmp_path):
    counts, digest = tune.read_counts(paths, "x", "y")
    text = tune.run_search(tune.PRESETS["smoke"], counts, digest, Options(tmp_path))
    rows = read_results(tmp_path / "results.jsonl")
    assert [row["task"]["prior_scale"] for row in rows] == [0.1, 0.3]
    assert all(np.isfinite(row["held_out_loss"]) for row in rows)
    table = pd.read_csv(tmp_path / "table.csv")
    best = table.sort_values("joint_log_likelihood_mean")["prior_scale"].iloc[-1]
    assert f"| {best} |" in text.splitlines()[2]
    # The same folder with other tables is refused.
    counts, digest = tune.read_counts(paths[::-1], "x", "y")
    with pytest.raises(app.UsageError, match="results of another config"):
        tune.run_search(tune.PRESETS["smoke"], counts, digest, Options(tmp_path))


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
    subprocess.run([sys.executable, "-c", code], check=True)
