"""Tables of results: replicates averaged, the paper's row beside the right method."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from absl import app
from pns_experiments import tables
from pns_experiments.report import write_report
from pns_experiments.tables import PaperRow, read_table

EXPERIMENTS = Path(__file__).resolve().parent.parent
LABELS = ("tab:results", "tab:sensitivity")
NAMES = ("valid", "point_coverage", "set_coverage", "width", "score")
SHOWN = re.compile(r"\| (\S+) \| (\d+)k \+ (\d+)k \| `(\w+)` \|.*\| ([^|]+) \|")
RESULTS = Path(__file__).resolve().parent.parent / "results"
SIZES = (100_000, 50_000)


def shown_rows(path: Path):
    """Reads model, sizes, method and the paper's column of every row of a page."""
    for line in path.read_text().splitlines():
        if match := SHOWN.fullmatch(line):
            model, observational, experimental, method, text = match.groups()
            sizes = int(observational) * 1000, int(experimental) * 1000
            yield model, sizes, method, text.strip()


def agrees(text: str, row: PaperRow) -> bool:
    """Compares numbers as shown with a row: percentages to 0.1, the others to 0.001."""
    shown = text.partition(" (")[0].split(" / ")
    values = [getattr(row, name) for name in NAMES]
    for number, value, step in zip(
        shown, values, (0.1,) * 3 + (1e-3,) * 2, strict=True
    ):
        if value is None or number == "–":
            if (value is None) != (number == "–"):
                return False
        elif abs(float(number) - value) > step / 2 + 1e-9:
            return False
    return True


PAGES = [
    EXPERIMENTS / "results" / "README.md",
    *sorted((EXPERIMENTS / "results").glob("*/table.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_numbers_shown_are_numbers_of_the_file(page):
    rows = [row for label in LABELS for row in read_table(label)]
    for model, sizes, method, text in shown_rows(page):
        beside = [
            row
            for row in rows
            if row.model == model
            and method in row.beside
            and (model == "acic" or (row.observational, row.experimental) == sizes)
        ]
        assert not text or any(agrees(text, row) for row in beside), (method, text)


def test_each_row_of_the_paper_is_shown_beside_the_method_it_is_of():
    shown = {
        (model, method)
        for page in PAGES[1:]
        for model, _, method, text in shown_rows(page)
        if text
    }
    for row in read_table("tab:results"):
        assert (row.model, row.beside[0]) in shown, row


def paper_text() -> str:
    default = EXPERIMENTS.parent.parent / "shared" / "paper.tex"
    path = Path(os.environ.get("PNS_PAPER", default))
    if not path.is_file():
        pytest.skip("the paper's source is not here; PNS_PAPER names it")
    return path.read_text()


def printed_table(label: str) -> list[list[str]]:
    """Splits the rows of a LaTeX table; confidence intervals and markup removed."""
    text = paper_text()
    table = text[text.index(rf"\label{{{label}}}") :]
    table = table[: table.index(r"\end{tabular}")]
    rows = []
    for line in table.splitlines():
        line = re.sub(r"\{\\(tiny|scriptsize)[^}]*\}", "", line)
        line = re.sub(r"\\textbf\{([^}]*)\}", r"\1", line).replace(".\\ ", ". ")
        cells = [cell.strip(" \\") for cell in line.split("&")]
        if len(cells) > 4 and re.fullmatch(r"[\d.]+", cells[-1]):
            rows.append(cells)
    return rows


def test_the_file_has_table_1_as_printed():
    printed = printed_table("tab:results")
    rows = read_table("tab:results")
    assert [cells[0] for cells in printed] == [row.printed_as for row in rows]
    models = [row.model for row in rows]
    assert models == ["li_1"] * 6 + ["acic"] * 3
    values = [[getattr(row, name) for name in NAMES] for row in rows]
    np.testing.assert_array_equal(
        np.array(values), [[float(cell) for cell in cells[1:]] for cells in printed]
    )


def test_the_file_has_the_table_of_sample_sizes_as_printed():
    printed = {}  # 100k + 100k stands twice
    for cells in printed_table("tab:sensitivity"):
        sizes = tuple(
            int(cell[:-1]) * {"k": 1000, "M": 1_000_000}[cell[-1]] for cell in cells[:2]
        )
        printed[sizes] = [float(cell) for cell in cells[2:]]
    rows = {
        (row.observational, row.experimental): row
        for row in read_table("tab:sensitivity")
    }
    assert rows.keys() == printed.keys()
    for sizes, row in rows.items():
        assert row.valid is None  # the table has no such column
        fractions = [row.point_coverage / 100, row.set_coverage / 100]
        np.testing.assert_allclose(
            [*fractions, row.width, row.score], printed[sizes], atol=1e-12
        )


def write_rows(folder, study, tasks, shard="results"):
    """Writes invented scores; the width is the replicate's number over ten."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"study": study}))
    scores = dict.fromkeys((*tables._SCORES, "empty"), 0.5)
    with (folder / f"{shard}.jsonl").open("a") as file:
        for task in tasks:
            width = (1 + task["replicate"]) / 10
            row = {"task": task, **scores, "width": width, "seconds": 1.0}
            file.write(json.dumps(row) + "\n")


def make_task(method, replicate=0, sizes=SIZES):
    return {
        "model": "li_1",
        "observational": sizes[0],
        "experimental": sizes[1],
        "replicate": replicate,
        "method": method,
    }


def test_summaries_have_students_interval():
    found = tables.summarize_values([0.94, 0.96, 0.98])
    margin = 4.302653 * 0.02 / np.sqrt(3)  # t quantile with 2 degrees of freedom
    np.testing.assert_allclose(found, (0.96, 0.96 - margin, 0.96 + margin), rtol=1e-6)
    alone = tables.summarize_values([0.3])
    assert alone.mean == 0.3 and np.isnan(alone.lower)


def test_shards_are_merged_and_a_task_in_two_of_them_counts_once(tmp_path):
    write_rows(tmp_path, "benchmark", [make_task("anchored", i) for i in (0, 1)])
    write_rows(tmp_path, "benchmark", [make_task("anchored", i) for i in (1, 2)], "b")
    (entry,) = tables.average(tables.gather(tmp_path))
    assert entry["replicates"] == 3
    widths = np.array([0.1, 0.2, 0.3])
    # Student's 97.5% quantile with two degrees of freedom is 4.303.
    margin = 4.303 * widths.std(ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(entry["width"].mean, 0.2)
    np.testing.assert_allclose(entry["width"].upper, 0.2 + margin, rtol=1e-3)


@pytest.mark.parametrize(
    ("study", "model", "method", "sizes", "paper"),
    [
        ("benchmark", "li_1", "epinet", SIZES, "100.0 / 98.2 / 95.6 / 0.330 / 0.347"),
        (
            "benchmark",
            "li_1",
            "paper_epinet_low_dim",
            SIZES,
            "100.0 / 98.2 / 95.6 / 0.330 / 0.347",
        ),
        ("benchmark", "li_1", "t_learner", SIZES, "74.6 / 72.4 / 27.5 / 0.178 / 0.987"),
        ("sensitivity", "li_1", "epinet", SIZES, "– / 98.2 / 95.6 / 0.318 / 0.336"),
        ("sensitivity", "li_1", "anchored", SIZES, ""),
        ("benchmark", "li_1", "anchored", (30_000, 20_000), ""),
        ("benchmark", "li_1", "ensemble", SIZES, ""),
        ("robustness", "li:7", "epinet", SIZES, ""),
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
    tmp_path, study, model, method, sizes, paper
):
    write_rows(tmp_path, study, [make_task(method, 0, sizes) | {"model": model}])
    text = write_report(tmp_path)
    assert text.splitlines()[2].split(" | ")[-1].rstrip(" |") == paper


def test_sensitivity_draws_a_line_for_each_method(tmp_path):
    tasks = [
        make_task(method, 0, sizes)
        for method in ("anchored", "epinet")
        for sizes in ((100_000, 20_000), SIZES, (500_000, 500_000))
    ]
    write_rows(tmp_path, "sensitivity", tasks)
    write_report(tmp_path)
    drawn = (tmp_path / "sensitivity.svg").read_text()
    for method in ("anchored", "epinet"):
        assert f"{method}: set coverage" in drawn
    assert (tmp_path / "sensitivity.png").stat().st_size > 5000


def test_tuning_puts_the_best_first(tmp_path):
    (tmp_path / "config.json").write_text('{"study": "tune"}')
    rows = [
        {"task": {"rate": rate, "replicate": 0}, "joint_log_likelihood": likelihood}
        for rate, likelihood in ((0.1, -3.0), (0.2, -1.0), (0.3, -2.0))
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "results.jsonl").write_text(text)
    lines = write_report(tmp_path).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| 0.2", "| 0.3", "| 0.1"]


def test_folders_that_no_program_filled_are_refused(tmp_path):
    with pytest.raises(app.UsageError, match="holds no results"):
        write_report(tmp_path)
    write_rows(tmp_path, "benchmark", [make_task("anchored")])
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(app.UsageError, match="no config.json that names"):
        write_report(tmp_path)


def test_a_single_replicate_shows_no_monte_carlo_interval(tmp_path):
    write_rows(tmp_path, "benchmark", [make_task("anchored")])
    assert "±" not in write_report(tmp_path)


@pytest.mark.parametrize(
    "folder",
    sorted(path.parent for path in RESULTS.glob("*/config.json")),
    ids=lambda folder: folder.name,
)
def test_committed_tables_are_those_of_the_committed_results(tmp_path, folder):
    copy = shutil.copytree(folder, tmp_path / folder.name)
    assert write_report(copy) == (folder / "table.md").read_text()
    assert (copy / "table.csv").read_text() == (folder / "table.csv").read_text()
    starts = [json.loads(path.read_text()) for path in folder.glob("*.runs.json")]
    assert len(starts) == len(list(folder.glob("*.jsonl")))
    assert all(
        start["command"] and start["commit"] for part in starts for start in part
    )
