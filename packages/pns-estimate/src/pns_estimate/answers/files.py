"""Answers as files and as text: CSV, Parquet, what the command prints; people in batches."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pns_models as pm
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, Float

from pns_estimate._errors import Setting, UserError
from pns_estimate._unit import make_unit
from pns_estimate.answers.answers import STRONG, Answers, Unanswered
from pns_estimate.answers.audit import CAVEAT
from pns_estimate.answers.prediction import ENDS
from pns_estimate.answers.subgroups import name_some
from pns_estimate.tables.columns import Encoder
from pns_estimate.tables.files import complete_file
from pns_estimate.tables.readers import Frame, Stream, require_columns
from pns_estimate.tables.rows import choose_sample

_CHUNK = 4096  # distinct people whose draws are held at a time
_MOST_KNOWN = 2**20  # answers that are remembered
_WHOSE = (
    "the trial alone: its own people; these people: those asked about; else: the people of "
    "both tables"
)

Answer = Callable[[pd.DataFrame], pd.DataFrame]


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
    left_out = answers.subgroup_columns.left_out if answers.asked.has_population else []
    if left_out:
        lines.append(
            f"subgroups.csv leaves out {len(left_out)} columns, which --subgroups names: "
            f"{name_some(left_out)}"
        )
    for name, table in answer_tables(answers).items():
        if isinstance(table, Unanswered):
            lines.append(f"no {name}.csv: {table.reason}")
        elif name == "averages":
            unit = make_unit(answers.question.unit)
            lines.append(f"averages ({unit(_WHOSE)})\n{show(table)}")
    return "\n".join(lines)


def show_doubts(answers: Answers) -> str:
    """Says of how many people the answers should be doubted, and why."""
    asked, unit = answers.asked, make_unit(answers.question.unit)
    reasons = {
        "a covariate lies outside what a table holds (is_outside)": asked.num_outside,
        f"learners differ by more than {100 * STRONG:g} points (disagreement)": (
            asked.num_disagreed
        ),
    }
    about = unit(answers.question.about)
    of_all = f"of the {asked.num_people:,} {unit.many} ({about})"
    lines = [f"for {n:,} {of_all} {why}" for why, n in reasons.items() if n]
    return "\n".join(lines)


def show_audit(answers: Answers) -> str:
    """Says what an audit found, or why there is none; nothing if it is not asked."""
    audit = answers.audit
    if isinstance(audit, Unanswered):
        return f"no audit: {audit.reason}"
    return "" if audit is None else f"audit: {audit.sentence} {CAVEAT}"


def show(table: pd.DataFrame) -> str:
    """Returns a table as text with three digits."""
    return table.to_string(float_format=lambda value: f"{value:.3f}")


class StreamedAnswers(NamedTuple):
    """What is held of people once all of them are answered for."""

    num_rows: int  # how many there are
    first: pd.DataFrame  # the first intervals
    sample: pd.DataFrame  # some people, at random; all if they are few


def check_people(table: Frame | Stream, encoder: Encoder) -> None:
    """Reads all people, and raises if there is one who cannot be answered for."""
    require_columns(table, encoder.columns)
    for frame in table.frames(encoder.columns, "checking"):
        _encode(encoder, frame, table)


_OF_RESULTS = (
    *("row", "estimand", *ENDS, "binding_lower", "binding_upper", "is_empty"),
    *("is_outside", "disagreement", "recommendation", "score", "treat"),
)


def check_key(table: Frame | Stream, key: str) -> str | None:
    """Raises unless a column can name people; says so if its values repeat."""
    if key in _OF_RESULTS:
        raise UserError(
            f"the column {key!r} cannot be the ",
            Setting("id"),
            ", because a column of the results has that name; rename it.",
        )
    require_columns(table, [key])
    column = table.column(key)
    if column.num_missing:
        raise UserError(
            Setting("id"),
            f": the column {key!r} of the {table.name} table is missing in "
            f"{column.num_missing:,} rows; complete it.",
        )
    different = column.values.nunique()
    if different == column.num_rows:
        return None
    return (
        f"the {column.num_rows:,} rows to answer for have {different:,} different values "
        f"of {key!r}."
    )


def with_key(table: Frame, key: str) -> Frame:
    """Names the rows of a table by a column; answers for them then carry it."""
    return Frame(table.name, table.frame.set_index(key))


def stream_intervals(
    path: Path,
    table: Frame | Stream,
    encoder: Encoder,
    answer: Answer,
    seed: int = 0,
    csv_path: Path | None = None,
    key: str | None = None,
) -> StreamedAnswers:
    """Writes an interval for each person, in their order; files appear when complete.

    `answer` makes a row of intervals for each person it is given. The seed decides who is
    in the sample. The column `key` names people, else rows are numbered.
    """
    size = table.num_rows()
    chosen = choose_sample(size, seed)
    first, sample, writer = pd.DataFrame(), [], None
    with ExitStack() as files:
        whole = files.enter_context(complete_file(path))
        text = csv_path and files.enter_context(complete_file(csv_path))
        for people, intervals in _answers(table, encoder, answer, key):
            if key is not None:
                intervals.insert(0, key, people[key])
            part = pa.Table.from_pandas(intervals, preserve_index=False)
            if writer is None:
                first = intervals.head()
                writer = files.enter_context(pq.ParquetWriter(whole, part.schema))
            writer.write_table(part)
            if text is not None:
                is_start = intervals.index[0] == 0
                rows = {"index_label": "row"} if key is None else {"index": False}
                intervals.to_csv(text, mode="a", header=is_start, **rows)
            sample.append(people[people.index.isin(chosen)])
    asked = pd.concat(sample, ignore_index=True)
    if key is not None:
        first, asked = first.set_index(key), asked.set_index(key)
    return StreamedAnswers(size, first, asked)


def _answers(
    table: Frame | Stream, encoder: Encoder, answer: Answer, key: str | None = None
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yields people and their intervals; those who share covariates are answered once."""
    place: dict[bytes, int] = {}
    known = pd.DataFrame()
    require_columns(table, encoder.columns)
    num_rows = 0
    columns = [*encoder.columns, *([] if key is None else [key])]
    for people in table.frames(columns, "intervals"):
        people = people.set_axis(pd.RangeIndex(num_rows, num_rows + len(people)))
        num_rows += len(people)
        z, is_outside = _encode(encoder, people, table)
        first, group = pm.distinct_rows(z)
        names = [row.tobytes() for row in z[first]]
        if len(place) > _MOST_KNOWN:
            place, known = {}, pd.DataFrame()
        new = [i for i, name in enumerate(names) if name not in place]
        parts = [known] if len(known) else []
        for start in range(0, len(new), _CHUNK):
            rows = first[new[start : start + _CHUNK]]
            parts.append(answer(people.iloc[rows]))
        known = pd.concat(parts, ignore_index=True)
        known_before = len(place)
        place.update((names[i], known_before + j) for j, i in enumerate(new))
        found = known.iloc[np.array([place[name] for name in names])[group]]
        yield people, found.set_index(people.index).assign(is_outside=is_outside)


def _encode(
    encoder: Encoder, people: pd.DataFrame, table: Frame | Stream
) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, " n"]]:
    try:
        return encoder.encode(people, table.name)
    except UserError as error:
        if isinstance(table, Frame):
            raise
        rows = f"{people.index[0] + 1:,} to {people.index[-1] + 1:,}"
        raise UserError(f"among rows {rows}, ", *error.parts) from error
