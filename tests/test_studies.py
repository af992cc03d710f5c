"""The studies at their smallest: they end, and what they wrote is read back."""

import json
import subprocess

import numpy as np
import pandas as pd
import pytest
from binaries import command, read_rows, run


@pytest.mark.slow
def test_the_benchmark_scores_its_methods_and_says_what_made_them(tmp_path):
    printed = run("benchmark", "--preset=smoke", f"--out={tmp_path}")
    rows = read_rows(tmp_path)
    by_method = {row["task"]["method"]: row for row in rows}
    assert set(by_method) == {"t_learner", "anchored", "epinet"} and len(rows) == 3
    assert by_method["anchored"]["valid"] == by_method["epinet"]["valid"] == 1
    assert by_method["t_learner"]["valid"] < 1
    for name in ("point_coverage", "set_coverage"):
        assert by_method["anchored"][name] < by_method["epinet"][name]
    widths = [row["oracle_width"] for row in rows]
    assert len(set(widths)) == 1 and 0.1 < widths[0] < 0.3  # the same test points
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["size"] == "smoke" and config["program"] == "benchmark"
    starts = json.loads((tmp_path / "results.runs.json").read_text())
    assert len(starts) == 1 and "pns-infer" in starts[0]["versions"]
    assert starts[0]["device"].startswith("cpu") and starts[0]["commit"]
    assert starts[0]["command"].startswith("benchmark.py --preset=smoke")
    recipes = config["recipes"]
    assert recipes["epinet"]["network"]["kind"] == "epinet"
    assert recipes["epinet"]["training"]["max_steps"] == 40  # as it was run
    assert (tmp_path / "table.md").read_text() in printed
    table = pd.read_csv(tmp_path / "table.csv")
    np.testing.assert_allclose(table["width_mean"], [row["width"] for row in rows])
    # A second call finds everything done.
    before = (tmp_path / "results.jsonl").read_text()
    run("benchmark", "--preset=smoke", f"--out={tmp_path}")
    assert (tmp_path / "results.jsonl").read_text() == before
    assert json.loads((tmp_path / "results.runs.json").read_text()) == starts
    done = subprocess.run(
        command("benchmark", "--preset=smoke", "--seed=1", f"--out={tmp_path}"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0 and "results of another config" in done.stderr


@pytest.mark.slow
def test_sensitivity_and_robustness_write_tables_and_figures(tmp_path):
    run("sensitivity", "--preset=smoke", f"--out={tmp_path / 's'}")
    sizes = {row["task"]["experimental"] for row in read_rows(tmp_path / "s")}
    assert sizes == {500, 1000}
    for ending in ("png", "svg"):
        assert (tmp_path / "s" / f"sensitivity.{ending}").stat().st_size > 5000
    options = ("--preset=smoke", "--models=7,8", "--methods=anchored")
    run("robustness", *options, f"--out={tmp_path / 'r'}")
    rows = read_rows(tmp_path / "r")
    assert [row["task"]["model"] for row in rows] == ["li:7", "li:8"]
    assert all(row["valid"] == 1 for row in rows)
    # Shards of several machines are merged.
    options = (*options, "--shard=second", "--replicate_start=1", "--replicate_end=2")
    run("robustness", *options, f"--out={tmp_path / 'r'}")
    assert len(read_rows(tmp_path / "r", "second")) == 2
    assert "| 2 |" in run("summarize", f"--out={tmp_path / 'r'}")
    # Tables and figures of any study can be made again from its results.
    (tmp_path / "s" / "sensitivity.svg").unlink()
    table = (tmp_path / "s" / "table.md").read_text()
    assert table in run("summarize", f"--out={tmp_path / 's'}")
    assert (tmp_path / "s" / "sensitivity.svg").exists()


@pytest.mark.slow
def test_bias_shows_the_curse_and_its_cure(tmp_path):
    run("bias", "--preset=smoke", f"--out={tmp_path}")
    rows = read_rows(tmp_path)
    assert len(rows) == 16 and len({row["plug_in_bias"] for row in rows}) == 16
    for row in rows:
        noise, gap = row["task"]["noise"], row["task"]["gap"]
        if gap == 0:  # two and four normals: 0.56 and 1.03; standard error below 0.06
            expected = {2: 0.564, 4: 1.029}[row["task"]["num_terms"]]
            assert abs(row["plug_in_bias"] / noise - expected) < 0.2
        elif gap > 4 * noise:  # the other terms hardly matter
            assert abs(row["plug_in_bias"] / noise) < 0.2
        # 250 estimates: a share has a standard error of 0.014.
        assert row["corrected_coverage"] > 0.95 - 3 * 0.014 - 0.02
        assert row["corrected_coverage"] < 1 or gap < 4 * noise  # it is sharp there
        if gap <= noise:
            assert row["plug_in_coverage"] < row["half_median_coverage"]
    assert (tmp_path / "bias.png").stat().st_size > 5000
    table = pd.read_csv(tmp_path / "table.csv")
    assert len(table) == 8 and np.all(table["replicates"] == 2)
    first = [rows[0]["plug_in_bias"], rows[8]["plug_in_bias"]]
    np.testing.assert_allclose(table["plug_in_bias_mean"][0], np.mean(first))
