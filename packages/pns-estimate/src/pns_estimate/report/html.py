"""Pieces of the page: templates, numbers as people read them, tables and figures."""

import functools
import hashlib
import io
import re
import urllib.parse
from collections.abc import Sequence
from typing import Any, NamedTuple, SupportsFloat

import jinja2
import markupsafe
import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from pns_estimate.answers.answers import Unanswered

Json = Any  # what JSON holds: for the script of the page, and for summary.json
_LARGEST_SHARE = 1.0
BLUE, ORANGE, GREY = "#1f5fa8", "#b34d12", "#8a8f98"
_INK = "#010203"  # text and lines; the style sheet says which color that is
_VARIABLES = {BLUE: "blue", ORANGE: "orange", GREY: "grey", _INK: "ink"}


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
def environment() -> jinja2.Environment:
    """Loads templates; whatever they are given is escaped."""
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


def make_figure(height: float) -> tuple[Figure, Any]:
    """Makes a figure with one pair of axes, without a box around them."""
    colors = ("text.color", "axes.labelcolor", "axes.edgecolor")
    ticks = ("xtick.color", "ytick.color")
    with mpl.rc_context(dict.fromkeys((*colors, *ticks), _INK)):
        figure = Figure(figsize=(6, height), layout="constrained")
        axes = figure.subplots()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def plain(name: object) -> str:
    """Writes a name as it is: a dollar sign would start mathematics."""
    return str(name).replace("$", r"\$")


def draw_intervals(
    table: pd.DataFrame, names: Sequence[str], title: str, **settings: Any
) -> Any:
    """Draws a line for each interval, the first on top, and a bar for its bounds.

    Args:
      table: with lower, upper, bound_lower and bound_upper.
      names: of the lines.
      title: read aloud.
      **settings: of the axes.
    """
    figure, axes = make_figure(0.8 + 0.23 * len(table))
    place = np.arange(len(table))
    axes.hlines(place, table["lower"], table["upper"], color=BLUE, lw=1.2)
    bounds = table[["bound_lower", "bound_upper"]].to_numpy().T
    axes.hlines(place, *bounds, color=BLUE, lw=5, alpha=0.5)
    axes.set_yticks(place, [plain(name) for name in names])
    axes.invert_yaxis()
    axes.grid(axis="x", color=GREY, alpha=0.3, lw=0.5)
    axes.set(**settings)
    return svg(figure, title)


def svg(figure: Figure, label: str) -> Any:
    """Draws a figure as inline SVG, with a label that is read aloud."""
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
