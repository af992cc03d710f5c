"""Each program of experiments/ from the command line, once and at its smallest.

What the programs compute is tested in experiments/tests; here flags reach it, and its
results reach files.
"""

import json

import numpy as np
import pandas as pd
import pytest


def read_rows(folder, shard="results"):
    text = (folder / f"{shard}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_benchmark_and_summarize(run_program, tmp_path):
    out = f"--out={tmp_path}"
    options = ("--preset=smoke_sensitivity", "--models=li:7", "--methods=anchored")
    printed = run_program("benchmark", *options, "--shard=one", out)
    (row,) = read_rows(tmp_path, "one")
    assert row["task"]["model"] == "li:7" and row["task"]["method"] == "anchored"
    assert row["valid"] == 1 and 0 < row["width"] < 1
    assert (tmp_path / "table.md").read_text() in printed
    (start,) = json.loads((tmp_path / "one.runs.json").read_text())
    assert start["command"].startswith("benchmark.py --preset=smoke_sensitivity")
    # A second machine's shard has another replicate.
    row["task"]["replicate"] = 1
    (tmp_path / "two.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "sensitivity.svg").unlink()
    assert "| `anchored` | 2 |" in run_program("summarize", out)
    assert (tmp_path / "sensitivity.svg").stat().st_size > 5000


@pytest.mark.slow
def test_bias(run_program, tmp_path):
    options = ("--preset=smoke", "--replicate_end=1", f"--out={tmp_path}")
    printed = run_program("bias", *options)
    assert len(read_rows(tmp_path)) == 8
    assert (tmp_path / "table.md").read_text() in printed


@pytest.mark.slow
def test_compute_measures_in_a_process_of_its_own(run_program, tmp_path):
    run_program("compute", "--preset=smoke", f"--out={tmp_path}")
    (row,) = read_rows(tmp_path)
    assert row["points_1_s"] > 0 and row["solves_s"] > 0
    assert row["reference_s_per_point"] > 0 and 0.1 < row["peak_memory_gb"] < 8
    assert "| reference s per point |" in (tmp_path / "table.md").read_text()


@pytest.mark.slow
def test_tune(run_program, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("observational", "experimental"):
        table = pd.DataFrame(rng.integers(0, 2, (300, 3)), columns=["z", "x", "y"])
        table.to_parquet(tmp_path / f"{name}.parquet")
    given = [
        f"--{name}={tmp_path / name}.parquet"
        for name in ("observational", "experimental")
    ]
    run_program("tune", *given, "--preset=smoke", f"--out={tmp_path / 'out'}")
    rows = read_rows(tmp_path / "out")
    assert [row["task"]["prior_scale"] for row in rows] == [0.1, 0.3]
    for name in ("held_out_loss", "ece_mu", "joint_log_likelihood", "draw_scale"):
        assert all(np.isfinite(row[name]) for row in rows)


@pytest.mark.slow
def test_demo_prints_the_coverage_it_reached(run_program, tmp_path):
    sizes = ("--observational=1000", "--experimental=700", "--people=60")
    options = ("--method=plug_in", f"--out={tmp_path / 'demo'}")
    printed = run_program("demo", *sizes, *options)
    assert "of the intervals contain" in printed and "report.html" in printed
    assert len(pd.read_csv(tmp_path / "demo" / "run" / "intervals.csv")) == 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "options", "printed"),
    [
        ("dgp_speed", ("--li_rows=500", "--acic_rows=50", "--points=5"), "x normals"),
        ("infer_speed", ("--part=clr", "--draws=150", "--points=500"), "150 draws x 5"),
        (
            "model_speed",
            ("--part=draws", "--draws=64", "--points=50", "--product=128"),
            "64 draws x 50",
        ),
    ],
)
def test_speeds(run_program, program, options, printed):
    assert printed in run_program(program, *options)


@pytest.mark.slow
def test_hillstrom(run_program, tmp_path):
    rng = np.random.default_rng(0)
    n = 1500
    table = pd.DataFrame(
        {
            "recency": rng.integers(1, 13, n),
            "history": rng.gamma(2, 100, n).round(2),
            "mens": rng.integers(0, 2, n),
            "womens": rng.integers(0, 2, n),
            "zip_code": rng.choice(["Urban", "Rural"], n),
            "newbie": rng.integers(0, 2, n),
            "channel": rng.choice(["Web", "Phone"], n),
            "segment": rng.choice(["Mens E-Mail", "No E-Mail", "Womens E-Mail"], n),
            "visit": rng.integers(0, 2, n),
        }
    )
    table.to_csv(tmp_path / "trial.csv", index=False)
    options = (f"--csv={tmp_path / 'trial.csv'}", "--method=plug_in")
    out = tmp_path / "out"
    printed = run_program("hillstrom", *options, f"--out={out}")
    assert "compatibility: p = " in printed and "average harm: " in printed
    assert (out / "report.html").stat().st_size > 5000 and (out / "model").is_dir()
    assert pd.read_csv(out / "intervals.csv")["lower"].between(0, 1).all()
