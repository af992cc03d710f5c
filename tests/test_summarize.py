"""Tables of results: replicates averaged, the paper's row beside the right method."""

import json
import shutil
import sys

import numpy as np
import pytest
from absl import app
from binaries import EXPERIMENTS

sys.path.insert(0, str(EXPERIMENTS))
import summarize

TABLE = (100_000, 50_000)


def write_rows(folder, program, tasks, shard="results"):
    """Writes made-up scores; the width is the replicate's number over ten."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"program": program}))
    scores = dict.fromkeys(summarize.pi.Scores._fields, 0.5)
    with (folder / f"{shard}.jsonl").open("a") as file:
        for task in tasks:
            width = (1 + task["replicate"]) / 10
            row = {"task": task, **scores, "width": width, "seconds": 1.0}
            file.write(json.dumps(row) + "\n")


def make_task(method, replicate=0, sizes=TABLE):
    return {
        "model": "li_1",
        "observational": sizes[0],
        "experimental": sizes[1],
        "replicate": replicate,
        "method": method,
    }


def test_shards_are_merged_and_a_task_in_two_of_them_counts_once(tmp_path):
    write_rows(tmp_path, "benchmark", [make_task("anchored", i) for i in (0, 1)])
    write_rows(tmp_path, "benchmark", [make_task("anchored", i) for i in (1, 2)], "b")
    (entry,) = summarize.average(summarize.gather(tmp_path))
    assert entry["replicates"] == 3
    widths = np.array([0.1, 0.2, 0.3])
    # Student's 97.5% quantile with two degrees of freedom is 4.303.
    margin = 4.303 * widths.std(ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(entry["width"].mean, 0.2)
    np.testing.assert_allclose(entry["width"].upper, 0.2 + margin, rtol=1e-3)


@pytest.mark.parametrize(
    ("program", "model", "method", "sizes", "paper"),
    [
        ("benchmark", "li_1", "epinet", TABLE, "100.0 / 98.2 / 95.6 / 0.330 / 0.347"),
        (
            "benchmark",
            "li_1",
            "paper_epinet_low_dim",
            TABLE,
            "100.0 / 98.2 / 95.6 / 0.330 / 0.347",
        ),
        ("benchmark", "li_1", "t_learner", TABLE, "74.6 / 72.4 / 27.5 / 0.178 / 0.987"),
        ("sensitivity", "li_1", "epinet", TABLE, "100.0 / 98.2 / 95.6 / 0.318 / 0.336"),
        ("sensitivity", "li_1", "anchored", TABLE, ""),
        ("benchmark", "li_1", "anchored", (30_000, 20_000), ""),
        ("benchmark", "li_1", "ensemble", TABLE, ""),
        ("robustness", "li:7", "epinet", TABLE, ""),
        (
            "benchmark",
            "acic",
            "epinet",
            (200_000, 100_000),
            "100.0 / 97.3 / 86.0 / 0.306 / 0.363 (2400k + 1000k)",
        ),
    ],
)
def test_the_papers_row_stands_beside_the_method_it_is_of(
    tmp_path, program, model, method, sizes, paper
):
    write_rows(tmp_path, program, [make_task(method, 0, sizes) | {"model": model}])
    text = summarize.write_report(tmp_path)
    assert text.splitlines()[2].split(" | ")[-1].rstrip(" |") == paper


def test_sensitivity_draws_a_line_for_each_method(tmp_path):
    tasks = [
        make_task(method, 0, sizes)
        for method in ("anchored", "epinet")
        for sizes in ((100_000, 20_000), TABLE, (500_000, 500_000))
    ]
    write_rows(tmp_path, "sensitivity", tasks)
    summarize.write_report(tmp_path)
    drawn = (tmp_path / "sensitivity.svg").read_text()
    for method in ("anchored", "epinet"):
        assert f"{method}: set coverage" in drawn


def test_folders_that_no_program_filled_are_told(tmp_path):
    with pytest.raises(app.UsageError, match="holds no results"):
        summarize.write_report(tmp_path)
    write_rows(tmp_path, "benchmark", [make_task("anchored")])
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(app.UsageError, match="no config.json that names"):
        summarize.write_report(tmp_path)


def test_a_single_replicate_shows_no_monte_carlo_interval(tmp_path):
    write_rows(tmp_path, "benchmark", [make_task("anchored")])
    assert "±" not in summarize.write_report(tmp_path)


@pytest.mark.parametrize(
    "folder",
    sorted(path.parent for path in (EXPERIMENTS / "results").glob("*/config.json")),
    ids=lambda folder: folder.name,
)
def test_committed_tables_are_those_of_the_committed_results(tmp_path, folder):
    copy = shutil.copytree(folder, tmp_path / folder.name)
    made = summarize.write_report(copy)
    assert made == (folder / "table.md").read_text()
    starts = [json.loads(path.read_text()) for path in folder.glob("*.runs.json")]
    assert len(starts) == len(list(folder.glob("*.jsonl")))
    assert all(
        start["command"] and start["commit"] for part in starts for start in part
    )


def test_tables_in_the_readme_are_those_of_the_results():
    shown = [
        line
        for line in (EXPERIMENTS.parent / "README.md").read_text().splitlines()
        if line.startswith(("| li_1 |", "| acic |", "| li:"))
    ]
    there = {
        line
        for path in (EXPERIMENTS / "results").glob("*/table.md")
        for line in path.read_text().splitlines()
    }
    assert len(shown) >= 10 and set(shown) <= there
