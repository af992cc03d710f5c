"""One self-contained HTML page about a fit and some people."""

import html
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pns_estimate._files import complete_file

if TYPE_CHECKING:
    from pns_estimate._estimator import PnsEstimator

_BLUE, _ORANGE, _GREY = "#1f5fa8", "#c4581a", "#8a8f98"
_THRESHOLD = 0.25
_MOST_LEVELS = 8

_STYLE = """
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


def write_report(
    path: Path, estimator: "PnsEstimator", people: pd.DataFrame, alpha: float
) -> None:
    """Writes the page; the file appears when complete."""
    parts = _Sections(estimator, people, alpha)
    sections = (
        parts.opening,
        parts.averages,
        parts.sorted_intervals,
        parts.subgroups,
        parts.sure_people,
        parts.data,
        parts.compatibility,
        parts.fit,
        parts.assumptions,
    )
    body = "\n".join(section() for section in sections)
    page = (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{parts.title}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )
    with complete_file(path) as aside:
        aside.write_text(page, encoding="utf-8")


class _Sections:
    """The sections, which share intervals and names."""

    def __init__(self, estimator: "PnsEstimator", people: pd.DataFrame, alpha: float):
        self.estimator, self.people, self.alpha = estimator, people, alpha
        self.intervals = estimator.intervals(people, alpha)
        self.percent = f"{100 * (1 - alpha):g}%"
        self.treatment = _text(estimator.treatment_.column)
        self.outcome = _text(estimator.outcome_.column)
        self.corrected = estimator.method != "plug_in"
        self.title = f"Does {self.treatment} make the difference for {self.outcome}?"

    def opening(self) -> str:
        made = self.estimator
        kind = (
            f"intervals that each contain the person's bounds with {self.percent} "
            "probability"
            if self.corrected
            else "<b>plug-in bounds, which are too narrow on average and promise no "
            "coverage</b>"
        )
        return (
            f"<h1>{self.title}</h1>\n<p>For each of {len(self.people):,} people: the "
            "probability of necessity and sufficiency (PNS), that "
            f"{self.outcome} = <code>{_text(made.outcome_.one)}</code> with "
            f"{self.treatment} = <code>{_text(made.treatment_.one)}</code> and not with "
            f"<code>{_text(made.treatment_.zero)}</code>. No data identify it; they "
            f"bound it. Shown are {kind}. Method: <code>{_text(made.method)}</code>.</p>"
        )

    def averages(self) -> str:
        everybody = np.ones((1, len(self.people)))
        rows = []
        for name, label in (("pns", "benefit (PNS)"), ("harm", "harm")):
            mean = self.estimator.average_groups(
                self.people, everybody, self.alpha, name
            )
            rows.append(
                [
                    label,
                    _range(mean.lower[0], mean.upper[0]),
                    _range(mean.estimate_lower[0], mean.estimate_upper[0]),
                ]
            )
        head = ["average over these people", f"{self.percent} interval"]
        table = _table([*head, "estimated bounds"], rows)
        low, high = rows[0][1].split(" to ")
        return (
            "<h2>On average</h2>\n<p class='answer'>Between "
            f"<b>{low}</b> and <b>{high}</b> of these people get the outcome because of "
            f"the treatment.</p>\n{table}"
        )

    def sorted_intervals(self) -> str:
        made = self.intervals.sort_values(["bound_lower", "bound_upper"])
        share = (np.arange(len(made)) + 0.5) / len(made) * 100
        figure, axes = _figure(8, 3.6)
        axes.fill_between(
            share,
            made["lower"],
            made["upper"],
            color=_BLUE,
            alpha=0.18,
            lw=0,
            label=f"{self.percent} interval",
        )
        axes.plot(share, made["bound_lower"], color=_BLUE, lw=1.2, label="lower bound")
        axes.plot(
            *(share, made["bound_upper"]), ".", color=_ORANGE, ms=2, label="upper bound"
        )
        axes.set(
            xlim=(0, 100),
            ylim=(0, 1),
            ylabel="PNS",
            xlabel="people, by lower bound (%)",
        )
        axes.legend(loc="upper left", frameon=False)
        spread, twin = _figure(8, 2.6)
        bins = np.linspace(0, 1, 41)
        twin.hist(
            made["bound_lower"], bins, color=_BLUE, alpha=0.6, label="lower bound"
        )
        twin.hist(
            made["bound_upper"], bins, color=_ORANGE, alpha=0.6, label="upper bound"
        )
        twin.set(xlim=(0, 1), xlabel="PNS", ylabel="people")
        twin.legend(frameon=False)
        width = float((made["upper"] - made["lower"]).clip(lower=0).mean())
        notes = [f"Mean width {width:.3f}."]
        for flag, words in (
            ("empty", "have ends that cross: no value fits them"),
            ("outside", "have a covariate outside what training saw"),
        ):
            if made[flag].any():
                notes.append(f"{int(made[flag].sum())} people {words}.")
        return (
            "<h2>Person by person</h2>\n"
            + _svg(figure, "Intervals of all people, sorted by their lower bound")
            + _svg(spread, "Distribution of lower and upper bounds")
            + f"<p class='note'>{' '.join(notes)}</p>"
        )

    def subgroups(self) -> str:
        names, masks = [], []
        for covariate in self.estimator.encoder_.covariates:
            values = self.people[covariate.column]
            levels = values.dropna().unique()
            if 2 <= len(levels) <= _MOST_LEVELS:
                for level in sorted(levels, key=str):
                    names.append(f"{covariate.column} = {level}")
                    masks.append((values == level).fillna(False).to_numpy(dtype=bool))
        if not names:
            return (
                "<h2>Subgroups</h2><p>No covariate has "
                f"{_MOST_LEVELS} values or fewer.</p>"
            )
        pns, harm = (
            self.estimator.average_groups(
                self.people, np.array(masks, float), self.alpha, estimand
            )
            for estimand in ("pns", "harm")
        )
        rows = [
            [
                name,
                f"{mask.sum():,}",
                _range(pns.lower[i], pns.upper[i]),
                _range(harm.lower[i], harm.upper[i]),
            ]
            for i, (name, mask) in enumerate(zip(names, masks, strict=True))
        ]
        head = ["group", "people", "average PNS", "average harm"]
        return (
            f"<h2>Subgroups</h2>\n{_table(head, rows)}\n<p class='note'>Each interval "
            f"holds with {self.percent} probability by itself.</p>"
        )

    def sure_people(self) -> str:
        if not self.corrected:
            return ""
        found = self.estimator.threshold_set(self.people, _THRESHOLD, self.alpha)
        return (
            f"<h2>Who surely exceeds {_THRESHOLD:g}?</h2>\n<p>With {self.percent} "
            f"confidence for all at once, PNS exceeds {_THRESHOLD:g} for "
            f"<b>{int(found.sum()):,}</b> of {len(found):,} people.</p>"
        )

    def data(self) -> str:
        rows = []
        for name, entry in self.estimator.summary_.tables.items():
            rows.append(
                [
                    name,
                    f"{entry['rows']:,}",
                    _share(entry["treated"]),
                    _share(entry["outcome_untreated"]),
                    _share(entry["outcome_treated"]),
                ]
            )
        head = [
            "table",
            "rows",
            "treated",
            "outcome if untreated",
            "outcome if treated",
        ]
        names = ", ".join(
            f"<code>{_text(c.column)}</code>"
            for c in self.estimator.encoder_.covariates
        )
        return f"<h2>The data</h2>\n{_table(head, rows)}\n<p>Covariates: {names}.</p>"

    def compatibility(self) -> str:
        made = self.estimator.compatibility()
        bad = made["p_value"] < 0.05
        verdict = (
            "<b>The two tables contradict each other</b>: no single population fits both. "
            "Do not rely on the intervals before the reason is known."
            if bad
            else "The two tables do not contradict each other."
        )
        shown = (
            "p &lt; 0.001" if made["p_value"] < 0.001 else f"p = {made['p_value']:.3f}"
        )
        return (
            f"<h2>Do the tables fit together?</h2>\n<p class='answer{' warn' * bad}'>"
            f"{verdict} ({shown}, {made['strata']} strata.)</p>\n<p class='note'>The "
            f"inequality nearest to failing is {_text(made['constraint'])}, with a slack "
            f"of {made['slack']:.3f}.</p>"
        )

    def fit(self) -> str:
        made = self.estimator.summary_
        figure, axes = _figure(8, 2.8)
        axes.plot(made.steps, made.training, color=_GREY, lw=1.2, label="training")
        axes.plot(made.steps, made.validation, color=_BLUE, lw=1.2, label="held-out")
        axes.set(xlabel="step", ylabel="loss (nats)")
        axes.legend(frameon=False)
        parts = ["<h2>The fit</h2>", _svg(figure, "Training and held-out loss")]
        if made.reliability:
            curves, axes = _figure(4.6, 4.2)
            axes.plot([0, 1], [0, 1], color=_GREY, lw=0.8)
            for name, curve in made.reliability.items():
                axes.plot(
                    curve["predicted"], curve["observed"], lw=1, marker=".", label=name
                )
            axes.set(
                xlim=(0, 1),
                ylim=(0, 1),
                xlabel="predicted",
                ylabel="observed, held-out",
            )
            axes.legend(frameon=False)
            parts.append(_svg(curves, "Predicted probabilities against frequencies"))
            parts.append(
                "<p class='note'>Expected calibration error: "
                f"{made.ece_joint:.4f} for choices and outcomes, {made.ece_mu:.4f} for "
                "outcomes under assignment.</p>"
            )
        if made.spread:
            low, high = made.spread["interval"]
            parts.append(
                "<p class='note'>The spread of the draws was multiplied by "
                f"{high:.2f}: held-out people are best explained by "
                f"{made.spread['scale']:.2f}, and by {low:.2f} to {high:.2f} nearly as "
                "well; the largest is taken.</p>"
            )
        return "\n".join(parts)

    def assumptions(self) -> str:
        calibrated = (
            "Coverage is asymptotic and rests on the draws: they must vary about the "
            "estimate as the estimate does about the truth. A network that is wrong in a "
            "way its draws do not know misses more often."
            if self.corrected
            else "Plug-in bounds carry no statement about sampling error."
        )
        return (
            "<h2>What the numbers assume</h2>\n<ul>\n<li>Both tables describe the same "
            "population: given the covariates, potential outcomes have one law. The test "
            "above can refute this, not prove it.</li>\n<li>In the experiment the "
            "treatment was assigned at random, and everybody took what they were "
            "assigned.</li>\n<li>One person's treatment does not change another's "
            "outcome.</li>\n<li>The observational table may be confounded in any way."
            f"</li>\n<li>{calibrated}</li>\n<li>Person by person means: for people with "
            "these covariates. Two such people may differ.</li>\n</ul>"
        )


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _range(low: float, high: float) -> str:
    return f"{100 * low:.1f}% to {100 * high:.1f}%"


def _share(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.1f}%"


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return (
        f"<div class='scroll'><table>\n<thead><tr>{cells}</tr></thead>\n<tbody>\n{body}"
        "\n</tbody></table></div>"
    )


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _svg(figure: Figure, label: str) -> str:
    """Draws a figure as inline SVG, without the preamble."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "pns", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    inline = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    inline = inline[inline.index("<svg") :]
    return inline.replace("<svg", f"<svg role='img' aria-label='{_text(label)}'", 1)
