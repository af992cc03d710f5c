"""Answers as files and as text: CSV, Parquet, and what the command prints."""

from pathlib import Path

import pandas as pd

from pns_estimate.answers.answers import Answers
from pns_estimate.answers.unanswered import Unanswered
from pns_estimate.tables.files import complete_file


def answer_tables(answers: Answers) -> dict[str, pd.DataFrame | Unanswered]:
    """Returns the tables of the files beside the report, by name, or why there is none.

    Averages and subgroups are those of the estimand asked for. Without the people of the
    tables, and without a decision, there are no files to explain.
    """
    first = answers.question.estimands()[0].name
    tables: dict[str, pd.DataFrame | Unanswered] = {}
    if answers.decision is not None:
        tables["decisions"] = answers.decisions
    if not answers.asked.has_population:
        return tables
    groups, subgroups = answers.sorted_groups, answers.subgroups
    averages = answers.averages
    if first in averages.refusals:
        tables["averages"] = Unanswered(averages.refusals[first])
    else:
        tables["averages"] = averages.by_estimand[first]
    tables["sorted_groups"] = groups if isinstance(groups, Unanswered) else groups.table
    tables["subgroups"] = (
        subgroups if isinstance(subgroups, Unanswered) else subgroups[first]
    )
    if answers.decision is not None:
        tables["values"] = answers.values
    return tables


def write_tables(folder: Path, answers: Answers) -> None:
    """Writes the tables that there are."""
    for name, table in answer_tables(answers).items():
        if not isinstance(table, Unanswered):
            write_csv(folder / f"{name}.csv", table)


def write_intervals(folder: Path, answers: Answers) -> None:
    """Writes the intervals of the estimand asked for, as Parquet and as CSV."""
    table = next(iter(answers.intervals.values()))
    with complete_file(folder / "intervals.parquet") as aside:
        table.to_parquet(aside)
    write_csv(folder / "intervals.csv", table)


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Writes a table as text; the file appears when complete."""
    with complete_file(path) as aside:
        table.to_csv(aside, index_label=table.index.name or "row")


def show_averages(answers: Answers) -> str:
    """Returns the averages over the people of the tables, and which files are missing."""
    lines = []
    for name, table in answer_tables(answers).items():
        if isinstance(table, Unanswered):
            lines.append(f"no {name}.csv: {table.reason}")
        elif name == "averages":
            lines.append(f"average over the people of both tables\n{show(table)}")
    return "\n".join(lines)


def show(table: pd.DataFrame) -> str:
    """Returns a table as text with three digits."""
    return table.to_string(float_format=lambda value: f"{value:.3f}")
