"""Each program of experiments/ from the command line, once and at its smallest.

What the programs compute is tested in experiments/tests; here flags reach it, and its
results reach files.
"""

import dataclasses
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from absl import app
from pns_experiments import study
from pns_experiments.options import Options

# Other than those of the preset.
MODEL, METHODS = "li:903", ("anchored", "t_learner", "epinet")


def read_rows(folder):
    lines = (folder / "results.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def benchmark(run_program, tmp_path_factory):
    """Folder and output of one run of the benchmark."""
    folder = tmp_path_factory.mktemp("benchmark")
    chosen = (f"--models={MODEL}", f"--methods={','.join(METHODS)}")
    options = ("--preset=smoke", *chosen, f"--out={folder}")
    return folder, run_program("benchmark", *options)


@pytest.mark.slow
def test_benchmark_scores_methods_against_the_same_truth(benchmark):
    rows = read_rows(benchmark[0])
    by_method = {row["task"]["method"]: row for row in rows}
    assert tuple(by_method) == METHODS and len(rows) == 3
    assert {row["task"]["model"] for row in rows} == {MODEL}
    assert by_method["anchored"]["valid"] == by_method["epinet"]["valid"] == 1
    assert by_method["t_learner"]["valid"] < 1
    for name in ("point_coverage", "set_coverage"):
        assert by_method["anchored"][name] < by_method["epinet"][name]
    widths = [row["oracle_width"] for row in rows]
    assert len(set(widths)) == 1 and 0.1 < widths[0] < 0.3  # the same test points


@pytest.mark.slow
def test_benchmark_says_what_computed_its_results(benchmark):
    folder, printed = benchmark
    config = json.loads((folder / "config.json").read_text())
    assert config["size"] == "smoke" and config["study"] == "benchmark"
    recipe = config["recipes"]["epinet"]
    assert recipe["network"]["kind"] == "epinet"
    assert recipe["training"]["max_steps"] == 40  # as it was run
    (start,) = json.loads((folder / "results.runs.json").read_text())
    assert start["command"].startswith("benchmark.py --preset=smoke")
    assert "pns-infer" in start["versions"] and start["commit"]
    assert start["device"].startswith("cpu")
    assert (folder / "table.md").read_text() in printed
    table = pd.read_csv(folder / "table.csv")
    widths = [row["width"] for row in read_rows(folder)]
    np.testing.assert_allclose(table["width_mean"], widths)


@pytest.mark.slow
def test_a_second_run_finds_everything_done_and_another_seed_is_refused(benchmark):
    folder, printed = benchmark
    before = {path.name: path.read_text() for path in folder.glob("results.*")}
    smoke = dataclasses.replace(
        study.PRESETS["smoke"], models=(MODEL,), methods=METHODS
    )
    assert study.run_study(smoke, Options(folder)) in printed
    assert before == {path.name: path.read_text() for path in folder.glob("results.*")}
    with pytest.raises(app.UsageError, match="results of another config"):
        study.run_study(smoke, Options(folder, seed=1))


@pytest.mark.slow
def test_summarize_merges_the_shards_of_several_machines(
    benchmark, run_program, tmp_path
):
    copy = shutil.copytree(benchmark[0], tmp_path / "copy")
    row = read_rows(copy)[0]
    row["task"]["replicate"] = 1
    (copy / "second.jsonl").write_text(json.dumps(row) + "\n")
    (copy / "table.csv").unlink()
    printed = run_program("summarize", f"--out={copy}")
    assert "| `anchored` | 2 |" in printed and "| `epinet` | 1 |" in printed
    assert list(pd.read_csv(copy / "table.csv")["replicates"]) == [2, 1, 1]


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
    assert row["points_2_s"] > 0 and row["solves_s"] > 0
    # A difference of two times, which may be of either sign for tables this small.
    assert np.isfinite(row["reference_s_per_point"])
    assert 0.1 < row["peak_memory_gb"] < 8
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
    (row,) = read_rows(tmp_path / "out")
    assert row["task"]["prior_scale"] == 0.3
    for name in ("held_out_loss", "ece_mu", "joint_log_likelihood", "draw_scale"):
        assert np.isfinite(row[name])


@pytest.mark.slow
def test_demo_prints_the_coverage_it_reached(run_program, tmp_path):
    sizes = ("--observational=1000", "--experimental=700", "--people=60")
    options = ("--method=plug_in", f"--out={tmp_path / 'demo'}")
    printed = run_program("demo", *sizes, *options)
    assert "of the intervals contain" in printed and "report.html" in printed
    assert len(pd.read_csv(tmp_path / "demo" / "run" / "intervals.csv")) == 60


def test_large_tables_are_written_in_files(run_program, tmp_path):
    sizes = ("--observational=500", "--experimental=300", "--people=70")
    options = ("--rows_per_file=200", "--nofit", f"--out={tmp_path}")
    assert "--memory_gb=6.0" in run_program("large_tables", *sizes, *options)
    for name, rows, columns in (
        ("observational", 500, 20),
        ("experimental", 300, 20),
        ("people", 70, 18),
    ):
        assert len(list((tmp_path / name).iterdir())) == -(-rows // 200)
        table = pd.read_parquet(tmp_path / name)
        assert table.shape == (rows, columns)
        assert table["region"].nunique() == 4 and table["is_member"].dtype == bool
        files = sorted((tmp_path / name).iterdir())
        if len(files) > 1:  # each has people of its own
            first, second = (pd.read_parquet(path) for path in files[:2])
            assert not first.head(100).equals(second.head(100))


@pytest.mark.slow
def test_speeds_are_lines_of_json(run_program):
    printed = run_program(
        "speed", "--preset=smoke", "--measure=machine", "--measure=answers"
    )
    machine, *answers = (json.loads(line) for line in printed.splitlines())
    assert machine["measure"] == "machine" and machine["gflops"] > 0
    assert [line["measure"] for line in answers] == ["answers"] * 3
    assert all(line["seconds"] > 0 for line in answers)
    assert answers[0]["goal_seconds"] == 3 and answers[1]["goal_ratio"] == 3
    assert answers[1]["worst_residual"] < 1e-3


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
