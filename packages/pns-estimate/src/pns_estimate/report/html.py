"""Pieces of the page: words, numbers as people read them, templates, tables and figures."""

import functools
import hashlib
import io
import re
import urllib.parse
from collections.abc import Sequence
from typing import Any, NamedTuple, SupportsFloat

import jinja2
import jinja2.ext
import jinja2.lexer
import markupsafe
import matplotlib as mpl
import numpy as np
import pandas as pd
import pns_bounds as pb
from matplotlib.figure import Figure
from matplotlib.text import Text

from pns_estimate._state import FitSummary
from pns_estimate._unit import Unit, make_unit
from pns_estimate.answers.answers import Unanswered
from pns_estimate.answers.question import Question

Json = Any  # what JSON holds: for the script of the page, and for summary.json
_LARGEST_SHARE = 1.0
BLUE, ORANGE, GREY = "#1f5fa8", "#b34d12", "#8a8f98"
_INK = "#010203"  # text and lines; the style sheet says which color that is
_VARIABLES = {BLUE: "blue", ORANGE: "orange", GREY: "grey", _INK: "ink"}
_SYMBOL = re.compile(r"mu[01]|p[01][01]|P\(y\)")


class Words(NamedTuple):
    """Names of the two values of treatment and outcome, and verbs."""

    treated: str  # such as 'drug = 1'
    untreated: str
    outcome: str  # such as 'death = 1'
    causes: str  # the verb for PNS
    good: str | None  # what people want, 'pns' or 'harm'; None if that was not said
    unit: Unit = Unit()  # what a person is called
    gains_in: str | None = None  # the money of gains and costs

    def money(self, amount: str) -> str:
        """Adds the money to an amount, if it was said."""
        return amount if self.gains_in is None else f"{amount} {self.gains_in}"

    def verb(self, name: str) -> str:
        """Says what the treatment does to the outcome in PNS, and in harm."""
        return self.causes if name == "pns" else "prevents"

    def judgment(self, name: str) -> str:
        """Returns 'benefit' or 'harm', or nothing if it was not said which is which."""
        if self.good is None or name not in ("pns", "harm"):
            return ""
        return "benefit" if name == self.good else "harm"

    def judged(self, name: str) -> str:
        """Says what the treatment does to the outcome, and whether that is good."""
        judgment = self.judgment(name)
        return self.verb(name) + (f" ({judgment})" if judgment else "")

    def label(self, estimand: pb.Estimand) -> str:
        """Names an estimand in a few words."""
        name = estimand.name
        if name in ("pns", "harm"):
            judgment = self.judgment(name)
            return (f"{judgment}: " if judgment else "") + (
                f"{self.treated} {self.verb(name)} {self.outcome}"
            )
        return {
            "pn": f"was {self.treated} necessary for {self.outcome} (PN)",
            "ps": f"would {self.treated} suffice for {self.outcome} (PS)",
            "always": f"{self.outcome} either way",
            "never": f"{self.outcome} neither way",
        }.get(name, name)

    def symbols(self) -> dict[str, str]:
        """Explains the six probabilities that bounds are made of, and their sum."""
        no_outcome = f"no {self.outcome}"
        choices = {"1": self.treated, "0": self.untreated}
        arms = {
            f"mu{x}": f"chance of {self.outcome} if assigned {choice}"
            for x, choice in choices.items()
        }
        cells = {
            f"p{x}{y}": f"share of the log with {choice} and {happened}"
            for x, choice in choices.items()
            for y, happened in (("1", self.outcome), ("0", no_outcome))
        }
        return {**arms, **cells, "P(y)": f"share of the log with {self.outcome}"}

    def explain(self, formula: str) -> str:
        """Writes a formula of those probabilities in words."""
        symbols = self.symbols()
        plain = formula.replace(" - ", " − ").replace("<=", "≤")
        return _SYMBOL.sub(lambda found: f"[{symbols[found[0]]}]", plain)


def make_words(summary: FitSummary, question: Question) -> Words:
    """Takes names from labels or tables, and verbs that suit the outcome."""
    treatment, outcome = summary.treatment, summary.outcome
    is_bad, label = question.outcome_is_bad, question.treatment_label
    return Words(
        treated=label or f"{treatment.column} = {treatment.one}",
        untreated=f"no {label}" if label else f"{treatment.column} = {treatment.zero}",
        outcome=question.outcome_label or f"{outcome.column} = {outcome.one}",
        causes="causes" if is_bad else "brings about",
        good={None: None, True: "harm", False: "pns"}[is_bad],
        unit=make_unit(question.unit),
        gains_in=question.gains_in,
    )


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


class _InUnits(jinja2.ext.Extension):
    """Writes the unit in place of people in the text of templates, not in values."""

    def filter_stream(self, stream: Any) -> Any:
        """Changes what is text, and texts within expressions."""
        unit = vars(self.environment)["unit"]
        escaped = Unit(*map(str, map(markupsafe.escape, unit)))
        for token in stream:
            is_text = token.type in ("data", "string")
            if is_text and not str(stream.name).endswith((".js", ".css")):
                write = (
                    escaped if token.type == "data" else unit
                )  # Jinja escapes strings
                token = jinja2.lexer.Token(token.lineno, token.type, write(token.value))
            yield token


@functools.cache
def environment(unit: Unit = Unit()) -> jinja2.Environment:  # noqa: B008 (immutable)
    """Loads templates; whatever they are given is escaped."""
    found = jinja2.Environment(
        extensions=[_InUnits],
        loader=jinja2.PackageLoader("pns_estimate.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    vars(found)["unit"] = unit
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


def render(template: str, *, words: Words, **values: Any) -> str:
    """Fills one template, with the unit in the place of people."""
    found = environment(words.unit).get_template(template)
    return found.render(words=words, **values)


def percent(value: SupportsFloat | None) -> str:
    """Writes a share as a percentage; 'none' if there is no such share."""
    if value is None:
        return "none"
    return f"{round(100 * float(value), 1) + 0.0:.1f}%"  # never -0.0


def percent_range(low: SupportsFloat, high: SupportsFloat) -> str:
    """Writes two shares as percentages; numbers that are not shares as they are."""
    low, high = float(low), float(high)
    if low > high:
        ends = [percent_range(end, end).split(" to ")[0] for end in (low, high)]
        return f"no possible value (the ends cross: {ends[0]} and {ends[1]})"
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

    The title is read aloud; settings are those of the axes.
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
