"""Merges shards of results into tables (Markdown, CSV) and figures (PNG, SVG).

python experiments/summarize.py --out=results/low_dim
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pns_infer as pi
from absl import app, flags
from matplotlib.figure import Figure
from runner import read_results

# tab:results and SPEC: % valid, point coverage, set coverage, width, score.
PAPER = {
    ("li_1", "s_learner"): (76.29, 74.52, 22.49, 0.1730, 0.7295),
    ("li_1", "t_learner"): (74.63, 72.39, 27.46, 0.1782, 0.9874),
    ("li_1", "anchored"): (100, 82.34, 36.36, 0.2041, 0.8102),
    ("li_1", "bootstrap_full"): (100, 98.50, 97.40, 0.3695, 0.6385),
    ("li_1", "bootstrap_last_layer"): (100, 88.10, 73.41, 0.2045, 0.5112),
    ("li_1", "epinet"): (100, 98.19, 95.59, 0.3303, 0.3471),
    ("acic", "anchored"): (100, 85.8, 21.5, 0.163, 0.782),
    ("acic", "bootstrap_last_layer"): (100, 87.5, 35.4, 0.201, 0.720),
    ("acic", "epinet"): (100, 97.3, 86.0, 0.306, 0.363),
}
_COLUMNS = ("valid", "point_coverage", "set_coverage", "width", "score", "oracle_width")
_PERCENT = ("valid", "point_coverage", "set_coverage")


def gather(folder: str | Path) -> list[dict[str, Any]]:
    """Reads all shards of a folder; a task in two of them counts once."""
    rows, seen = [], set()
    for path in sorted(Path(folder).glob("*.jsonl")):
        for row in read_results(path):
            name = tuple(sorted(row["task"].items()))
            if name not in seen:
                seen.add(name)
                rows.append(row)
    return rows


def summarize(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Averages replicates of each setting and method."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        task = {k: v for k, v in row["task"].items() if k != "replicate"}
        groups.setdefault(tuple(task.items()), []).append(row)
    made = []
    for task, members in groups.items():
        scores = [
            pi.Scores(**{name: row[name] for name in pi.Scores._fields})
            for row in members
        ]
        entry: dict[str, Any] = {**dict(task), "replicates": len(members)}
        entry["seconds"] = float(np.mean([row["seconds"] for row in members]))
        entry |= pi.summarize_scores(scores)
        made.append(entry)
    return made


def markdown(entries: list[dict[str, Any]]) -> str:
    """Formats a table, the paper's row beside ours where it has one."""
    head = (
        "| model | rows | method | replicates | % valid | point coverage | set coverage | "
        "width | score | oracle width | paper: point / set / width / score |"
    )
    lines = [head, "|" + "---|" * 11]
    for entry in entries:
        sizes = f"{entry['observational'] // 1000}k + {entry['experimental'] // 1000}k"
        cells = [
            entry["model"],
            sizes,
            f"`{entry['method']}`",
            str(entry["replicates"]),
        ]
        cells += [_cell(name, entry[name]) for name in _COLUMNS]
        paper = PAPER.get((entry["model"], entry["method"]))
        cells.append(
            "{:.1f} / {:.1f} / {:.3f} / {:.3f}".format(*paper[1:]) if paper else ""
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(name: str, summary: pi.Summary) -> str:
    factor, digits = (100, 1) if name in _PERCENT else (1, 3)
    text = f"{factor * summary.mean:.{digits}f}"
    if name != "oracle_width" and np.isfinite(summary.lower) and name != "valid":
        text += f" ± {factor * (summary.upper - summary.mean):.{digits}f}"
    return text


def write_summary(folder: str | Path) -> str:
    """Writes table.md and table.csv beside the results; returns the table."""
    folder = Path(folder)
    entries = summarize(gather(folder))
    if not entries:
        raise ValueError(f"{folder} holds no results.")
    text = markdown(entries)
    _write(folder / "table.md", text)
    aside = folder / "table.csv.part"
    with aside.open("w", newline="") as file:
        names = [k for k in entries[0] if k not in pi.Scores._fields]
        ends = [
            f"{n}_{e}" for n in pi.Scores._fields for e in ("mean", "lower", "upper")
        ]
        writer = csv.writer(file)
        writer.writerow([*names, *ends])
        for entry in entries:
            values = [
                getattr(entry[n], e)
                for n in pi.Scores._fields
                for e in entry[n]._fields
            ]
            writer.writerow([*(entry[n] for n in names), *values])
    aside.replace(folder / "table.csv")
    return text


def _write(path: Path, text: str) -> None:
    aside = path.with_name(path.name + ".part")
    aside.write_text(text)
    aside.replace(path)


def plot_sensitivity(folder: str | Path) -> None:
    """Draws width and score against n_exp, and coverage against the joint size."""
    folder = Path(folder)
    entries = [e for e in summarize(gather(folder)) if e["method"] != "anchored"]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    first = min(e["observational"] for e in entries)
    for axes, names, chosen, size in (
        (
            left,
            ("width", "score"),
            [e for e in entries if e["observational"] == first],
            "experimental",
        ),
        (right, ("point_coverage", "set_coverage"), entries, "experimental"),
    ):
        chosen = sorted(chosen, key=lambda e: (e["observational"], e[size]))
        for name in names:
            means = np.array([entry[name].mean for entry in chosen])
            low = np.array([entry[name].lower for entry in chosen])
            high = np.array([entry[name].upper for entry in chosen])
            margins = np.nan_to_num(np.stack([means - low, high - means]))
            x = [entry[size] for entry in chosen]
            axes.errorbar(x, means, yerr=margins, marker="o", capsize=3, label=name)
        axes.set_xlabel("experimental rows")
        axes.legend(frameon=False)
    right.axhline(0.95, color="grey", lw=0.8)
    for ending in ("png", "svg"):
        figure.savefig(folder / f"sensitivity.{ending}", dpi=150)


def main(argv: Sequence[str]) -> None:
    """Summarizes a folder of results."""
    del argv
    if not gather(flags.FLAGS.out):
        raise app.UsageError(f"{flags.FLAGS.out} holds no results (*.jsonl).")
    print(write_summary(flags.FLAGS.out))


if __name__ == "__main__":
    flags.DEFINE_string("out", None, "Folder of the results.", required=True)
    app.run(main)
