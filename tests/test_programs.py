"""The other programs at their smallest: timing, tuning, the demo."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from binaries import EXPERIMENTS, command, read_rows, run


@pytest.mark.slow
def test_compute_times_every_method_in_a_process_of_its_own(tmp_path):
    run("compute", "--preset=smoke", f"--out={tmp_path}")
    rows = {row["task"]["method"]: row for row in read_rows(tmp_path)}
    assert set(rows) == {"bootstrap_last_layer", "bootstrap_full", "epinet"}
    for row in rows.values():
        assert row["points_1_s"] > 0 and row["points_50_s"] > 0
        assert 0.1 < row["peak_memory_gb"] < 8
    for name in ("bootstrap_last_layer", "bootstrap_full"):
        assert rows[name]["reference_s_per_point"] > 0 and rows[name]["solves_s"] > 0
    assert "| reference s per point |" in (tmp_path / "table.md").read_text()


@pytest.mark.slow
def test_tuning_sees_tables_and_no_truth(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        table = pd.DataFrame(
            rng.integers(0, 2, (800, 4)), columns=["z1", "z2", "x", "y"]
        )
        table.to_parquet(tmp_path / f"{name}.parquet")
    options = ("--preset=smoke", f"--out={tmp_path / 'out'}")
    paths = (tmp_path / "a.parquet", tmp_path / "b.parquet")
    names = ("--observational", "--experimental")
    given = [f"{name}={path}" for name, path in zip(names, paths, strict=True)]
    run("tune", *given, *options)
    rows = read_rows(tmp_path / "out")
    assert len(rows) == 4  # two settings, two splits each
    assert all(np.isfinite(row["held_out_loss"]) for row in rows)
    table = pd.read_csv(tmp_path / "out" / "table.csv")
    best = table.sort_values("joint_log_likelihood_mean")["prior_scale"].iloc[-1]
    first = (tmp_path / "out" / "table.md").read_text().splitlines()[2]
    assert f"| {best} |" in first
    # The same folder with other tables is refused.
    given = [f"{name}={path}" for name, path in zip(names, paths[::-1], strict=True)]
    done = subprocess.run(
        command("tune", *given, *options), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "results of another config" in done.stderr
    for given, message in (
        (["--observational=nowhere", f"--experimental={paths[1]}"], "no file nowhere"),
        (
            [f"{n}={p}" for n, p in zip(names, paths, strict=True)] + ["--outcome=z"],
            "has no columns ['z']",
        ),
    ):
        done = subprocess.run(
            command("tune", *given, *options),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0 and message in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    # No oracle by construction: nothing that could give it one is ever loaded.
    code = "import sys, tune; assert not {'pns_dgp', 'methods'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=EXPERIMENTS, check=True)


@pytest.mark.slow
def test_the_demo_prints_the_coverage_it_reached(tmp_path):
    options = ("--observational=2000", "--experimental=1500", "--people=60")
    printed = run("demo", *options, f"--out={tmp_path / 'demo'}")
    assert "of the intervals contain" in printed and "report.html" in printed
    assert len(pd.read_csv(tmp_path / "demo" / "run" / "intervals.csv")) == 60
