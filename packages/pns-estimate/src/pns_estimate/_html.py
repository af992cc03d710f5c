"""Small pieces of HTML: escaped text, tables, figures as inline SVG."""

import html
import io
import re
from collections.abc import Sequence
from typing import Any, SupportsFloat

import matplotlib as mpl
from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#1f5fa8", "#c4581a", "#8a8f98"

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff;
  max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2rem; }
svg { max-width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #dfe3e8; }
th:first-child, td:first-child { text-align: left; }
.note { color: #525b68; font-size: .92rem; }
.answer { background: #eef4fb; border-left: 4px solid #1f5fa8; padding: .6rem 1rem; }
.warn { background: #fdf0e7; border-left-color: #c4581a; }
code { overflow-wrap: anywhere; }
"""


def text(value: Any) -> str:
    """Escapes whatever a user may have written."""
    return html.escape(str(value), quote=True)


def percent_range(low: SupportsFloat, high: SupportsFloat) -> str:
    """Writes two shares as percentages."""
    return f"{100 * float(low):.1f}% to {100 * float(high):.1f}%"


def percent(value: float | None) -> str:
    """Writes a share as a percentage; 'none' if there is no such share."""
    return "none" if value is None else f"{100 * value:.1f}%"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Makes a table; cells are escaped."""
    cells = "".join(f"<th>{text(cell)}</th>" for cell in head)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return (
        f"<div class='scroll'><table>\n<thead><tr>{cells}</tr></thead>\n<tbody>\n{body}"
        "\n</tbody></table></div>"
    )


def page(title: str, body: str) -> str:
    """Puts a body into a document that needs no network."""
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def make_figure(width: float, height: float) -> tuple[Figure, Any]:
    """Makes a figure with one pair of axes, without a box around them."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def svg(figure: Figure, label: str) -> str:
    """Draws a figure as inline SVG, without the preamble."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "pns", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawn = buffer.getvalue()
    inline = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    inline = inline[inline.index("<svg") :]
    return inline.replace("<svg", f"<svg role='img' aria-label='{text(label)}'", 1)
