"""Pieces of the page: templates, numbers as people read them, tables to download."""

import functools
import urllib.parse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat

import pandas as pd

from pns_estimate.answers.unanswered import Unanswered

if TYPE_CHECKING:
    import jinja2

Json = Any  # what JSON holds: for the script of the page, and for summary.json
_LARGEST_SHARE = 1.0


class Cell(NamedTuple):
    """What a cell shows, and the number it is sorted by, if any."""

    shown: str
    value: float | None = None


class Table(NamedTuple):
    """A table to read, and the same to download."""

    caption: str  # read aloud, too
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    file: str = ""  # the name of the download; there is none if empty
    csv: str = ""

    @property
    def address(self) -> str:
        """The download as an address that needs no network."""
        return "data:text/csv;charset=utf-8," + urllib.parse.quote(self.csv)


def to_csv(table: pd.DataFrame) -> str:
    """Writes a table as the files beside the report have it."""
    return table.to_csv(index_label=table.index.name or "row")


@functools.cache
def environment() -> "jinja2.Environment":
    """Loads templates; whatever they are given is escaped."""
    import jinja2  # a report is the only thing that needs it

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("pns_estimate.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.filters |= {
        "percent": percent,
        "points": points,
        "confidence": lambda alpha: f"{100 * (1 - alpha):g}%",
        "p_value": lambda p: "p < 0.001" if p < 0.001 else f"p = {p:.2g}",
        "count": lambda number: f"{number:,.0f}",
    }
    found.globals |= {"percent_range": percent_range}
    found.tests |= {"refused": lambda part: isinstance(part, Unanswered)}
    return found


def render(template: str, **values: Any) -> str:
    """Fills one template."""
    return environment().get_template(template).render(**values)


def percent(value: SupportsFloat | None) -> str:
    """Writes a share as a percentage; 'none' if there is no such share."""
    if value is None:
        return "none"
    return f"{round(100 * float(value), 1) + 0.0:.1f}%"  # never -0.0


def percent_range(low: SupportsFloat, high: SupportsFloat) -> str:
    """Writes two shares as percentages; numbers that are not shares as they are."""
    low, high = float(low), float(high)
    if max(abs(low), abs(high)) > _LARGEST_SHARE:
        return f"{low:.4g} to {high:.4g}"
    return f"{percent(low)} to {percent(high)}"


def points(value: float) -> str:
    """Writes a difference of shares in percentage points, with its sign."""
    return f"{100 * value:+.1f}"


def range_cell(low: SupportsFloat, high: SupportsFloat) -> Cell:
    """Makes a cell of an interval, sorted by its lower end."""
    return Cell(percent_range(low, high), float(low))


def count_cell(number: float) -> Cell:
    """Makes a cell of a number of people or rows."""
    return Cell(f"{number:,.0f}", float(number))


def share_cell(share: float | None) -> Cell:
    """Makes a cell of a share."""
    return Cell(percent(share), share)
