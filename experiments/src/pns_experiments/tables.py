"""Results averaged over replicates, as Markdown and CSV, and what the paper prints.

The paper's numbers are in the data file of this package. Table 1 (tab:results) compares methods, Table 6
(tab:sensitivity) sample sizes.
"""

import csv
import functools
import importlib.resources
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from pns_experiments.runner import read_results

# The high-dimensional model was not run at the paper's sizes: the paper's row is shown
# beside smaller ones, and says its sizes.
_SHOWN_AT_ANY_SIZE = ("acic",)
_SCORES = ("valid", "point_coverage", "set_coverage", "width", "score", "oracle_width")
_RARE = {
    "rare_coverage": "set coverage, rarest fifth of points",
    "few_coverage": "set coverage, points with fewer than 10 twins",
}
_PERCENT = ("valid", "point_coverage", "set_coverage", *_RARE)

Row = dict[str, Any]


class PaperRow(NamedTuple):
    """A row of a table of the paper.

    Attributes:
      model: as in `replicates.make_model`.
      observational: number of observational units.
      experimental: number of experimental units.
      printed_as: what the paper calls the method.
      beside: our methods that the row stands beside.
      valid: percent, or None if the table does not have it; likewise the coverages.
      point_coverage: of PNS.
      set_coverage: of the identified set.
      width: mean width of the intervals.
      score: mean interval score.
    """

    model: str
    observational: int
    experimental: int
    printed_as: str
    beside: tuple[str, ...]
    valid: float | None
    point_coverage: float
    set_coverage: float
    width: float
    score: float

    def __str__(self) -> str:
        """Formats the numbers as tables of results show them."""
        valid = "–" if self.valid is None else f"{self.valid:.1f}"
        return (
            f"{valid} / {self.point_coverage:.1f} / {self.set_coverage:.1f} / "
            f"{self.width:.3f} / {self.score:.3f}"
        )


@functools.cache
def read_table(label: str) -> tuple[PaperRow, ...]:
    """Reads a table by its LaTeX label."""
    file = importlib.resources.files("pns_experiments") / "data" / "paper_tables.json"
    rows = json.loads(file.read_text())["tables"][label]["rows"]
    return tuple(PaperRow(**row | {"beside": tuple(row["beside"])}) for row in rows)


def find_row(label: str, entry: dict[str, Any]) -> str:
    """Finds what the paper prints for an entry of ours, as text; '' if it does not.

    Args:
      label: of the table.
      entry: has model, method, and numbers of observational and experimental units.
    """
    sizes = entry["observational"], entry["experimental"]
    for row in read_table(label):
        if row.model != entry["model"] or entry["method"] not in row.beside:
            continue
        if (row.observational, row.experimental) == sizes:
            return str(row)
        if row.model in _SHOWN_AT_ANY_SIZE:
            return f"{row} ({format_sizes(row.observational, row.experimental)})"
    return ""


def format_sizes(observational: int, experimental: int) -> str:
    """Formats sample sizes in thousands."""
    return f"{observational / 1000:g}k + {experimental / 1000:g}k"


class Summary(NamedTuple):
    """A mean over replicates with its 95% Monte Carlo interval; NaN for one replicate."""

    mean: float
    lower: float
    upper: float


def summarize_values(values: Sequence[float]) -> Summary:
    """Averages the values of replicates, with Student's interval of their mean.

    The points of a replicate share one fit and are not independent, so the interval is
    that of the mean over replicates.
    """
    count, mean, margin = len(values), float(np.mean(values)), np.nan
    if count > 1:
        error = np.std(values, ddof=1) / np.sqrt(count)
        margin = float(special.stdtrit(count - 1, 0.975) * error)
    return Summary(mean, mean - margin, mean + margin)


def gather(folder: str | Path) -> list[Row]:
    """Reads all shards of a folder; a task in two of them counts once."""
    rows, seen = [], set()
    for path in sorted(Path(folder).glob("*.jsonl")):
        for row in read_results(path):
            name = tuple(sorted(row["task"].items()))
            if name not in seen:
                seen.add(name)
                rows.append(row)
    return rows


def average(rows: list[Row]) -> list[Row]:
    """Averages the replicates of each task.

    Returns:
      The fields of the task, the number of replicates, and a `Summary` of every number
      with its 95% Monte Carlo interval, in the order of first appearance.
    """
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        task = tuple((k, v) for k, v in row["task"].items() if k != "replicate")
        groups.setdefault(task, []).append(row)
    entries = []
    for task, members in groups.items():
        entry: Row = {**dict(task), "replicates": len(members)}
        names = dict.fromkeys(name for member in members for name in member)
        for name in names:
            if name != "task":
                values = [member[name] for member in members if name in member]
                entry[name] = summarize_values(values)
        entries.append(entry)
    return entries


def score_table(entries: list[Row], find_paper_row: Callable[[Row], str]) -> str:
    """Formats scores in Markdown, the paper's row beside ours where it has one."""
    extra = [name for name in _RARE if any(name in entry for entry in entries)]
    head = [
        *("model", "rows", "method", "replicates", "% valid", "point coverage"),
        *("set coverage", "width", "score", "oracle width"),
        *(_RARE[name] for name in extra),
        "paper: valid / point / set / width / score",
    ]
    rows = [
        [
            entry["model"],
            format_sizes(entry["observational"], entry["experimental"]),
            f"`{entry['method']}`",
            str(entry["replicates"]),
            *(_score_cell(column, entry[column]) for column in _SCORES),
            *(
                _score_cell(name, entry[name]) if name in entry else ""
                for name in extra
            ),
            find_paper_row(entry),
        ]
        for entry in entries
    ]
    return _markdown(head, rows)


def number_table(entries: list[Row]) -> str:
    """Lists all means, with half the width of their Monte Carlo intervals."""
    names = list(dict.fromkeys(n for entry in entries for n in entry if n != "seconds"))
    rows = [[_number_cell(entry.get(name, "")) for name in names] for entry in entries]
    return _markdown([name.replace("_", " ") for name in names], rows)


def csv_table(entries: list[Row]) -> str:
    """Writes means and both ends of their Monte Carlo intervals, unrounded."""
    flat = [_flatten(entry) for entry in entries]
    head = list(dict.fromkeys(name for row in flat for name in row))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([row.get(name, "") for name in head] for row in flat)
    return file.getvalue()


def _flatten(entry: Row) -> Row:
    flat = {}
    for name, value in entry.items():
        if isinstance(value, Summary):
            flat |= {f"{name}_{end}": number for end, number in value._asdict().items()}
        else:
            flat[name] = value
    return flat


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _score_cell(name: str, summary: Summary) -> str:
    factor, digits = (100, 1) if name in _PERCENT else (1, 3)
    text = f"{factor * summary.mean:.{digits}f}"
    margin = factor * (summary.upper - summary.mean)
    if name == "oracle_width" or not np.isfinite(margin):
        return text
    if name == "valid" and margin == 0:
        return text
    return f"{text} ± {margin:.{digits}f}"


def _number_cell(value: Any) -> str:
    if not isinstance(value, Summary):
        return str(value)
    text = _number(value.mean)
    margin = value.upper - value.mean
    if np.isfinite(value.lower) and margin > 1e-12 * abs(value.mean):  # no rounding
        text += f" ± {margin:.2g}"
    return text


def _number(value: float) -> str:
    if value.is_integer():
        return f"{value:.0f}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.1f}"
