"""The tables and figures of a folder of results, whichever study filled it.

Figures are written as PNG and SVG.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from absl import app
from matplotlib.figure import Figure

from pns_experiments.runner import read_config, write_text
from pns_experiments.tables import (
    Row,
    average,
    csv_table,
    find_row,
    gather,
    number_table,
    score_table,
)


def draw_sensitivity(folder: Path, entries: list[Row]) -> None:
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
    _save(figure, folder / "sensitivity")


def draw_bias(folder: Path, entries: list[Row]) -> None:
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
    _save(figure, folder / "bias")


def draw_tradeoff(folder: Path, entries: list[Row]) -> None:
    """Draws width against set coverage by factor of the draws; factor 1 is filled."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for number, entry in enumerate(entries):
        names = [n.removeprefix("width_") for n in entry if n.startswith("width_")]
        coverage = [100 * entry[f"set_coverage_{name}"].mean for name in names]
        width = [entry[f"width_{name}"].mean for name in names]
        color = f"C{number}"
        axes.plot(coverage, width, "o-", color=color, mfc="none", label=entry["method"])
        one = names.index("1")
        axes.plot(coverage[one], width[one], "o", color=color, ms=9)
    oracle = entries[0]["oracle_width"].mean
    axes.axhline(oracle, color="grey", lw=0.8, ls=":", label="the identified set")
    axes.axvline(95, color="grey", lw=0.8)
    axes.set(xlabel="set coverage, % (promised: 95)", ylabel="mean width")
    axes.legend(frameon=False)
    _save(figure, folder / "tradeoff")


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


def _save(figure: Figure, path: Path) -> None:
    for ending in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{ending}"), dpi=150)


def write_report(folder: str | Path) -> str:
    """Writes table.md, table.csv and the figures of a folder of results.

    Returns:
      The table in Markdown.
    """
    folder = Path(folder)
    entries = average(gather(folder))
    if not entries:
        raise app.UsageError(f"{folder} holds no results (*.jsonl).")
    study = (read_config(folder) or {}).get("study")
    if study not in _REPORTS:
        raise app.UsageError(
            f"{folder} has no config.json that names one of {list(_REPORTS)}; the program "
            "that computed the results writes it."
        )
    text = _REPORTS[study](folder, entries)
    write_text(folder / "table.md", text)
    write_text(folder / "table.csv", csv_table(entries))
    return text


def _report_scores(folder: Path, entries: list[Row]) -> str:
    del folder
    return score_table(entries, lambda entry: find_row("tab:results", entry))


def _report_sensitivity(folder: Path, entries: list[Row]) -> str:
    draw_sensitivity(folder, entries)
    return score_table(entries, lambda entry: find_row("tab:sensitivity", entry))


def _report_bias(folder: Path, entries: list[Row]) -> str:
    draw_bias(folder, entries)
    return number_table(entries)


def _report_tradeoff(folder: Path, entries: list[Row]) -> str:
    draw_tradeoff(folder, entries)
    return number_table(entries)


def _report_numbers(folder: Path, entries: list[Row]) -> str:
    del folder
    return number_table(entries)


def _report_tuning(folder: Path, entries: list[Row]) -> str:
    """Puts the best first: greatest joint likelihood, or least loss without draws."""
    del folder
    best = "joint_log_likelihood" if "joint_log_likelihood" in entries[0] else None
    return number_table(
        sorted(
            entries, key=lambda e: -e[best].mean if best else e["held_out_loss"].mean
        )
    )


_REPORTS: dict[str, Callable[[Path, list[Row]], str]] = {
    "benchmark": _report_scores,
    "robustness": _report_scores,
    "sensitivity": _report_sensitivity,
    "bias": _report_bias,
    "tradeoff": _report_tradeoff,
    "compute": _report_numbers,
    "tune": _report_tuning,
    "average": _report_numbers,
}
