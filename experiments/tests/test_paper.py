"""The paper's numbers: the data file, the tables that show them, and the paper itself."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from pns_experiments.paper import PaperRow, read_table

EXPERIMENTS = Path(__file__).resolve().parent.parent
LABELS = ("tab:results", "tab:sensitivity")
NAMES = ("valid", "point_coverage", "set_coverage", "width", "score")
SHOWN = re.compile(r"\| (\S+) \| (\d+)k \+ (\d+)k \| `(\w+)` \|.*\| ([^|]+) \|")


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
