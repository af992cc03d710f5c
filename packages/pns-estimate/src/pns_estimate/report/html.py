"""Pieces of the report: templates, tables that can be downloaded, figures as inline SVG."""

import functools
import hashlib
import io
import re
import urllib.parse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

if TYPE_CHECKING:
    import jinja2

BLUE, ORANGE, GREY = "#1f5fa8", "#b34d12", "#8a8f98"
_INK = "#010203"  # text and lines; the style sheet says which color that is
_VARIABLES = {BLUE: "blue", ORANGE: "orange", GREY: "grey", _INK: "ink"}
_LARGEST_SHARE = 1.0


class Cell(NamedTuple):
    """What a cell shows, and the number it is sorted by, if any."""

    shown: str
    value: float | None = None


class Table(NamedTuple):
    """A table to read, and the same to download.

    Attributes:
      caption: what it holds; read aloud, and the title of its download.
      head: names of the columns.
      rows: cells.
      file: the name of the download; none if empty.
      csv: what is downloaded.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    file: str = ""
    csv: str = ""

    def cells(self) -> list[list[Cell]]:
        """Returns the rows with every entry a cell."""
        return [
            [cell if isinstance(cell, Cell) else Cell(str(cell)) for cell in row]
            for row in self.rows
        ]

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
        "confidence": confidence,
        "p_value": p_value,
        "count": lambda number: f"{number:,.0f}",
    }
    found.globals |= {"percent_range": percent_range}
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
    """Writes two shares as percentages; numbers that are no shares as they are."""
    low, high = float(low), float(high)
    if max(abs(low), abs(high)) > _LARGEST_SHARE:
        return f"{low:.4g} to {high:.4g}"
    return f"{percent(low)} to {percent(high)}"


def range_cell(low: SupportsFloat, high: SupportsFloat) -> Cell:
    """Makes a cell of an interval, sorted by its lower end."""
    return Cell(percent_range(low, high), float(low))


def points(value: float) -> str:
    """Writes a difference of shares in percentage points, with its sign."""
    return f"{100 * value:+.1f}"


def confidence(alpha: float) -> str:
    """Writes the probability of not missing."""
    return f"{100 * (1 - alpha):g}%"


def p_value(value: float) -> str:
    """Writes a p-value with its sign of equality."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def make_figure(width: float, height: float) -> tuple[Figure, Any]:
    """Makes a figure with one pair of axes, without a box around them."""
    colors = ("text.color", "axes.labelcolor", "axes.edgecolor")
    ticks = ("xtick.color", "ytick.color")
    with mpl.rc_context(dict.fromkeys((*colors, *ticks), _INK)):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def svg(figure: Figure, label: str) -> Any:
    """Draws a figure as inline SVG whose colors the style sheet decides."""
    import markupsafe

    for text in figure.findobj(Text):  # a legend's, too, which knows no style
        text.set_color(_INK)
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": label, "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    inline = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    inline = inline[inline.index("<svg") :]
    # Names of groups repeat from figure to figure, and so do those of letters.
    inline = re.sub(r'<g id="[^"]*"', "<g", inline)
    key = hashlib.sha256(label.encode()).hexdigest()[:8]
    inline = re.sub(r'(id="|href="#)(?=[A-Z])', rf"\1f{key}-", inline)
    for color, name in _VARIABLES.items():
        inline = inline.replace(color, f"var(--{name})")
    named = f'<svg role="img" aria-label="{markupsafe.escape(label)}"'
    return markupsafe.Markup(inline.replace("<svg", named, 1))
