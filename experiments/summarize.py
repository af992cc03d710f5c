"""Merges shards of results into tables (Markdown, CSV) and figures (PNG, SVG).

Every program calls it at its end; after runs on several machines, with their files in one
folder, call it yourself.

  python experiments/summarize.py --out=results/low_dim
"""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pns_infer as pi
from absl import app, flags
from matplotlib.figure import Figure
from runner import read_results, write_text

# tab:results: % valid, point coverage, set coverage, width, score.
PAPER = {
    ("li_1", "s_learner"): (76.29, 74.52, 22.49, 0.1730, 0.7295),
    ("li_1", "t_learner"): (74.63, 72.39, 27.46, 0.1782, 0.9874),
    ("li_1", "anchored"): (100, 82.34, 36.36, 0.2041, 0.8102),
    ("li_1", "bootstrap_full"): (100, 98.50, 97.40, 0.3695, 0.6385),
    ("li_1", "bootstrap_last_layer"): (100, 88.10, 73.41, 0.2045, 0.5112),
    ("li_1", "epinet"): (100, 98.19, 95.59, 0.3303, 0.3471),
    ("acic", "anchored"): (100, 85.80, 21.50, 0.1630, 0.7815),
    ("acic", "bootstrap_last_layer"): (100, 87.50, 35.40, 0.2010, 0.7200),
    ("acic", "epinet"): (100, 97.30, 86.00, 0.3060, 0.3630),
}
PAPER_SIZES = {"li_1": (100_000, 50_000), "acic": (2_400_000, 1_000_000)}
# tab:sensitivity, by observational and experimental rows.
PAPER_SENSITIVITY = {
    (100_000, 20_000): (100, 98.3, 95.3, 0.330, 0.350),
    (100_000, 50_000): (100, 98.2, 95.6, 0.318, 0.336),
    (100_000, 80_000): (100, 97.9, 95.5, 0.310, 0.330),
    (100_000, 100_000): (100, 97.7, 95.1, 0.307, 0.326),
    (500_000, 500_000): (100, 97.7, 95.4, 0.307, 0.326),
    (1_000_000, 1_000_000): (100, 97.8, 95.5, 0.306, 0.325),
}
# The paper's tables by the names of its own recipes.
_PAPER_NAMES = {
    "paper_bootstrap_full": "bootstrap_full",
    "paper_bootstrap_last_layer": "bootstrap_last_layer",
    "paper_epinet_low_dim": "epinet",
    "paper_epinet_high_dim": "epinet",
}
_COLUMNS = ("valid", "point_coverage", "set_coverage", "width", "score", "oracle_width")
_PERCENT = ("valid", "point_coverage", "set_coverage")

Row = dict[str, Any]


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
      The fields of the task, the number of replicates, and a `pi.Summary` of every number
      with its 95% Monte Carlo interval, in the order of first appearance.
    """
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        task = tuple((k, v) for k, v in row["task"].items() if k != "replicate")
        groups.setdefault(task, []).append(row)
    made = []
    for task, members in groups.items():
        entry: Row = {**dict(task), "replicates": len(members)}
        for name in members[0]:
            if name != "task":
                entry[name] = pi.summarize_values([member[name] for member in members])
        made.append(entry)
    return made


def write_report(folder: str | Path) -> str:
    """Writes the tables and figures of whatever program filled a folder.

    Returns:
      The table in Markdown.
    """
    folder = Path(folder)
    entries = average(gather(folder))
    if not entries:
        raise app.UsageError(f"{folder} holds no results (*.jsonl).")
    config = folder / "config.json"
    program = json.loads(config.read_text()).get("program") if config.exists() else None
    if program not in _REPORTS:
        raise app.UsageError(
            f"{folder} has no config.json that names one of {list(_REPORTS)}; the program "
            "that made the results writes it."
        )
    text = _REPORTS[program](folder, entries)
    write_text(folder / "table.md", text)
    write_text(folder / "table.csv", _csv(entries))
    return text


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _csv(entries: list[Row]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    head: dict[str, None] = {}
    flat = []
    for entry in entries:
        row = {}
        for name, value in entry.items():
            if isinstance(value, pi.Summary):
                row |= {f"{name}_{end}": v for end, v in value._asdict().items()}
            else:
                row[name] = value
        flat.append(row)
        head |= dict.fromkeys(row)
    writer.writerow(head)
    writer.writerows([row.get(name, "") for name in head] for row in flat)
    return file.getvalue()


def _report_scores(folder: Path, entries: list[Row]) -> str:
    """Formats a table of scores, the paper's row beside ours where it has one."""
    del folder
    return _score_table(entries, _find_paper_row)


def _score_table(entries: list[Row], find_paper_row: Callable[[Row], str]) -> str:
    head = (
        "model | rows | method | replicates | % valid | point coverage | set coverage | "
        "width | score | oracle width | paper: valid / point / set / width / score"
    )
    rows = [
        [
            entry["model"],
            _sizes_text((entry["observational"], entry["experimental"])),
            f"`{entry['method']}`",
            str(entry["replicates"]),
            *(_cell(column, entry[column]) for column in _COLUMNS),
            find_paper_row(entry),
        ]
        for entry in entries
    ]
    return _markdown(head.split(" | "), rows)


def _find_paper_row(entry: Row) -> str:
    """Finds a row of tab:results; that of other sizes says so, if there is no better."""
    model, sizes = entry["model"], (entry["observational"], entry["experimental"])
    name: str = entry["method"]
    paper = PAPER.get((model, _PAPER_NAMES.get(name, name)))
    if paper is None or (model == "li_1" and sizes != PAPER_SIZES[model]):
        return ""
    text = _paper_text(paper)
    if sizes != PAPER_SIZES[model]:
        text += f" ({_sizes_text(PAPER_SIZES[model])})"
    return text


def _paper_text(row: tuple[float, ...]) -> str:
    return "{:.1f} / {:.1f} / {:.1f} / {:.3f} / {:.3f}".format(*row)


def _sizes_text(sizes: tuple[int, int]) -> str:
    return f"{sizes[0] // 1000}k + {sizes[1] // 1000}k"


def _cell(name: str, summary: pi.Summary) -> str:
    factor, digits = (100, 1) if name in _PERCENT else (1, 3)
    text = f"{factor * summary.mean:.{digits}f}"
    margin = factor * (summary.upper - summary.mean)
    if name == "oracle_width" or not np.isfinite(margin):
        return text
    if name == "valid" and margin == 0:
        return text
    return f"{text} ± {margin:.{digits}f}"


def _report_sensitivity(folder: Path, entries: list[Row]) -> str:
    """Draws width and score against n_exp, and coverage against the joint size."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    first = min(entry["observational"] for entry in entries)
    for method in dict.fromkeys(entry["method"] for entry in entries):
        mine = [entry for entry in entries if entry["method"] == method]
        varying = [entry for entry in mine if entry["observational"] == first]
        for name in ("width", "score"):
            _plot_line(left, varying, lambda entry: entry["experimental"], name)
        for name in ("point_coverage", "set_coverage"):
            _plot_line(right, mine, _joint_size, name)
    left.set_xlabel(f"experimental rows, beside {first:,} observational ones")
    right.set_xlabel("rows of both tables")
    right.axhline(0.95, color="grey", lw=0.8)
    for axes in (left, right):
        axes.legend(frameon=False)
    _save_figure(figure, folder / "sensitivity")

    def find_paper_row(entry: Row) -> str:
        sizes = entry["observational"], entry["experimental"]
        known = entry["method"] == "epinet" and sizes in PAPER_SENSITIVITY
        return _paper_text(PAPER_SENSITIVITY[sizes]) if known else ""

    return _score_table(entries, find_paper_row)


def _plot_line(
    axes: Any, entries: list[Row], size: Callable[[Row], int], name: str
) -> None:
    """Plots means with Monte Carlo intervals against a size."""
    chosen = sorted(entries, key=size)
    means = np.array([entry[name].mean for entry in chosen])
    ends = [[entry[name][i] for entry in chosen] for i in (1, 2)]
    sizes = [size(entry) for entry in chosen]
    axes.set_xticks(sizes, [f"{s / 1000:g}k" for s in sizes])
    axes.errorbar(
        sizes,
        means,
        yerr=np.nan_to_num(np.abs(np.array(ends) - means)),
        marker="o",
        capsize=3,
        label=f"{chosen[0]['method']}: {name.replace('_', ' ')}",
    )


def _joint_size(entry: Row) -> int:
    return entry["observational"] + entry["experimental"]


def _report_bias(folder: Path, entries: list[Row]) -> str:
    """Draws bias and coverage against the gap, by number of terms, at one noise."""
    noises = sorted({entry["noise"] for entry in entries})
    noise = noises[len(noises) // 2]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, count in enumerate(sorted({e["num_terms"] for e in entries})):
        chosen = [e for e in entries if (e["num_terms"], e["noise"]) == (count, noise)]
        gaps = [entry["gap"] for entry in chosen]
        for axes, name, style in (
            (left, "plug_in_bias", "o:"),
            (left, "half_median_bias", "o-"),
            (right, "plug_in_coverage", "o:"),
            (right, "corrected_coverage", "o-"),
        ):
            label = f"{count} terms" if style == "o-" else None
            means = [entry[name].mean for entry in chosen]
            axes.plot(gaps, means, style, color=f"C{number}", label=label)
    for axes, title in ((left, "bias"), (right, "share of bounds below the truth")):
        axes.set(xlabel=f"gap between terms (noise {noise})", ylabel=title)
    left.axhline(0, color="black", lw=0.6)
    left.legend(frameon=False, title="corrected (dotted: plug-in)")
    right.axhline(0.95, color="black", lw=0.6)
    right.set_ylim(0, 1.02)
    _save_figure(figure, folder / "bias")
    return _report_numbers(folder, entries)


def _report_tuning(folder: Path, entries: list[Row]) -> str:
    """Puts the best first: greatest joint likelihood, or least loss without draws."""
    best = "joint_log_likelihood" if "joint_log_likelihood" in entries[0] else None
    return _report_numbers(
        folder,
        sorted(
            entries, key=lambda e: -e[best].mean if best else e["held_out_loss"].mean
        ),
    )


def _report_numbers(folder: Path, entries: list[Row]) -> str:
    """Lists all means, with half the width of their Monte Carlo intervals."""
    del folder
    names = list(dict.fromkeys(n for entry in entries for n in entry if n != "seconds"))
    rows = []
    for entry in entries:
        cells = []
        for name in names:
            value = entry.get(name, "")
            if isinstance(value, pi.Summary):
                text = _number(value.mean)
                if np.isfinite(value.lower) and value.upper > value.mean:
                    text += f" ± {value.upper - value.mean:.2g}"
                value = text
            cells.append(str(value))
        rows.append(cells)
    return _markdown([name.replace("_", " ") for name in names], rows)


def _number(value: float) -> str:
    if value.is_integer():
        return f"{value:.0f}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.1f}"


def _save_figure(figure: Figure, path: Path) -> None:
    for ending in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{ending}"), dpi=150)


_REPORTS: dict[str, Callable[[Path, list[Row]], str]] = {
    "benchmark": _report_scores,
    "robustness": _report_scores,
    "sensitivity": _report_sensitivity,
    "bias": _report_bias,
    "compute": _report_numbers,
    "tune": _report_tuning,
}


def main(argv: Sequence[str]) -> None:
    """Summarizes a folder of results."""
    del argv
    print(write_report(flags.FLAGS.out))


if __name__ == "__main__":
    flags.DEFINE_string("out", None, "Folder of the results.", required=True)
    app.run(main)
