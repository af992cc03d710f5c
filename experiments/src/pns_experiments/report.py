"""The tables and figures of a folder of results, whichever study filled it."""

from collections.abc import Callable
from pathlib import Path

from absl import app

from pns_experiments.figures import draw_bias, draw_sensitivity, draw_tradeoff
from pns_experiments.paper import find_row
from pns_experiments.runner import read_config, write_text
from pns_experiments.tables import (
    Row,
    average,
    csv_table,
    gather,
    number_table,
    score_table,
)


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
