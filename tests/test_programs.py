"""The other programs at their smallest: timing, tuning, the demo."""

import ast

import numpy as np
import pandas as pd
import pytest
from binaries import EXPERIMENTS, read_rows, run


@pytest.mark.slow
def test_compute_times_every_method_in_a_process_of_its_own(tmp_path):
    run("compute", "--preset=smoke", f"--out={tmp_path}")
    rows = {row["task"]["method"]: row for row in read_rows(tmp_path)}
    assert set(rows) == {"bootstrap_last_layer", "epinet"}
    for row in rows.values():
        assert row["points_1_s"] > 0 and row["points_50_s"] > 0
        assert 0.1 < row["peak_memory_gb"] < 8
    assert rows["bootstrap_last_layer"]["reference_s_per_point"] > 0


@pytest.mark.slow
def test_tuning_sees_tables_and_no_truth(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        table = pd.DataFrame(
            rng.integers(0, 2, (800, 4)), columns=["z1", "z2", "x", "y"]
        )
        table.to_parquet(tmp_path / f"{name}.parquet")
    printed = run(
        "tune",
        f"--observational={tmp_path / 'a.parquet'}",
        f"--experimental={tmp_path / 'b.parquet'}",
        "--preset=smoke",
        f"--out={tmp_path / 'out'}",
    )
    rows = read_rows(tmp_path / "out")
    assert len(rows) == 2 and "joint_log_likelihood" in printed
    assert all(np.isfinite(row["held_out_loss"]) for row in rows)
    # No oracle by construction: it imports nothing that could give it one.
    tree = ast.parse((EXPERIMENTS / "tune.py").read_text())
    modules = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not modules & {"pns_dgp", "methods", "benchmark", "importlib"}


@pytest.mark.slow
def test_the_demo_prints_the_coverage_it_reached(tmp_path):
    options = ("--observational=2000", "--experimental=1500", "--people=60")
    printed = run("demo", *options, f"--out={tmp_path / 'demo'}")
    assert "of the intervals contain" in printed and "report.html" in printed
    assert len(pd.read_csv(tmp_path / "demo" / "run" / "intervals.csv")) == 60
