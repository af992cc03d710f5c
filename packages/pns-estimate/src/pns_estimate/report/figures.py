"""Figures of the report: inline SVG whose colors the style sheet decides."""

import hashlib
import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

BLUE, ORANGE, GREY = "#1f5fa8", "#b34d12", "#8a8f98"
_INK = "#010203"  # text and lines; the style sheet says which color that is
_VARIABLES = {BLUE: "blue", ORANGE: "orange", GREY: "grey", _INK: "ink"}


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
