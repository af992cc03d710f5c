"""The report's sections about people: averages, intervals, subgroups."""

import numpy as np
import pandas as pd

from pns_estimate._html import (
    BLUE,
    ORANGE,
    make_figure,
    percent_range,
    svg,
    table,
    text,
)
from pns_estimate._prediction import Prediction
from pns_estimate._summary import FitSummary

_THRESHOLD = 0.25
_MOST_LEVELS = 8


def title(summary: FitSummary) -> str:
    """Asks the question of the page."""
    treatment, outcome = summary.treatment.column, summary.outcome.column
    return f"Does {text(treatment)} make the difference for {text(outcome)}?"


def opening(prediction: Prediction, summary: FitSummary, alpha: float) -> str:
    """Says what is shown, for whom, and what it promises."""
    kind = (
        f"intervals that each contain the person's bounds with {_percent(alpha)} "
        "probability"
        if prediction.sampler.has_draws
        else "<b>plug-in bounds, which are too narrow on average and promise no "
        "coverage</b>"
    )
    treatment, outcome = summary.treatment, summary.outcome
    return (
        f"<h1>{title(summary)}</h1>\n<p>For each of {len(prediction.people):,} people: "
        "the probability of necessity and sufficiency (PNS), that "
        f"{text(outcome.column)} = <code>{text(outcome.one)}</code> with "
        f"{text(treatment.column)} = <code>{text(treatment.one)}</code> and not with "
        f"<code>{text(treatment.zero)}</code>. No data identify it; they bound it. Shown "
        f"are {kind}. Method: <code>{text(summary.method)}</code>, "
        f"{text(summary.method_sentence)}.</p>"
    )


def averages(prediction: Prediction, alpha: float) -> str:
    """Shows the mean over all people of benefit and harm."""
    rows = []
    for name, label in (("pns", "benefit (PNS)"), ("harm", "harm")):
        mean = prediction.average(alpha=alpha, estimand=name)
        rows.append(
            [
                label,
                percent_range(mean.lower, mean.upper),
                percent_range(mean.bound_lower, mean.bound_upper),
            ]
        )
    head = ["average over these people", f"{_percent(alpha)} interval"]
    low, high = rows[0][1].split(" to ")
    return (
        f"<h2>On average</h2>\n<p class='answer'>Between <b>{low}</b> and <b>{high}</b> "
        "of these people get the outcome because of the treatment.</p>\n"
        + table([*head, "estimated bounds"], rows)
        + "<p class='note'>From the draws of these people, so it shares whatever the "
        "draws share; averages over the people of the tables are sharper, and need a "
        "fit by 'crossfit' that was not loaded from a file.</p>"
    )


def each_person(prediction: Prediction, alpha: float) -> str:
    """Draws the intervals of all people, and the distribution of their bounds."""
    intervals = prediction.intervals(alpha)
    width = float((intervals["upper"] - intervals["lower"]).clip(lower=0).mean())
    notes = [f"Mean width {width:.3f}."]
    for flag, words in (
        ("is_empty", "have ends that cross: no value fits them"),
        ("is_outside", "have a covariate outside what training saw"),
    ):
        if intervals[flag].any():
            notes.append(f"{int(intervals[flag].sum())} people {words}.")
    return (
        "<h2>Person by person</h2>\n"
        + _draw_intervals(intervals, _percent(alpha))
        + _draw_bounds(intervals)
        + f"<p class='note'>{' '.join(notes)}</p>"
    )


def _draw_intervals(intervals: pd.DataFrame, confidence: str) -> str:
    ordered = intervals.sort_values(["bound_lower", "bound_upper"])
    share = (np.arange(len(ordered)) + 0.5) / len(ordered) * 100
    figure, axes = make_figure(8, 3.6)
    axes.fill_between(
        share,
        ordered["lower"],
        ordered["upper"],
        color=BLUE,
        alpha=0.18,
        lw=0,
        label=f"{confidence} interval",
    )
    axes.plot(share, ordered["bound_lower"], color=BLUE, lw=1.2, label="lower bound")
    axes.plot(
        *(share, ordered["bound_upper"]), ".", color=ORANGE, ms=2, label="upper bound"
    )
    axes.set(
        xlim=(0, 100), ylim=(0, 1), ylabel="PNS", xlabel="people, by lower bound (%)"
    )
    axes.legend(loc="upper left", frameon=False)
    return svg(figure, "Intervals of all people, sorted by their lower bound")


def _draw_bounds(intervals: pd.DataFrame) -> str:
    figure, axes = make_figure(8, 2.6)
    bins = np.linspace(0, 1, 41)
    for name, color in (("lower", BLUE), ("upper", ORANGE)):
        values = intervals[f"bound_{name}"]
        axes.hist(values, bins, color=color, alpha=0.6, label=f"{name} bound")
    axes.set(xlim=(0, 1), xlabel="PNS", ylabel="people")
    axes.legend(frameon=False)
    return svg(figure, "Distribution of lower and upper bounds")


def subgroups(prediction: Prediction, alpha: float) -> str:
    """Shows averages by the values of covariates that have few of them."""
    names, masks = [], []
    for column in prediction.people.columns:
        values = prediction.people[column]
        levels = values.dropna().unique()
        if 2 <= len(levels) <= _MOST_LEVELS:
            for level in sorted(levels, key=str):
                names.append(f"{column} = {level}")
                masks.append((values == level).fillna(False).to_numpy(dtype=bool))
    if not names:
        return (
            f"<h2>Subgroups</h2><p>No covariate has {_MOST_LEVELS} values or fewer.</p>"
        )
    weights = np.array(masks, float)
    pns, harm = (
        prediction.average_groups(weights, alpha, name) for name in ("pns", "harm")
    )
    rows = [
        [
            name,
            f"{mask.sum():,}",
            percent_range(pns.lower[i], pns.upper[i]),
            percent_range(harm.lower[i], harm.upper[i]),
        ]
        for i, (name, mask) in enumerate(zip(names, masks, strict=True))
    ]
    head = ["group", "people", "average PNS", "average harm"]
    return (
        f"<h2>Subgroups</h2>\n{table(head, rows)}\n<p class='note'>Each interval "
        f"holds with {_percent(alpha)} probability by itself.</p>"
    )


def sure_people(prediction: Prediction, alpha: float) -> str:
    """Counts who surely exceeds a threshold."""
    found = prediction.threshold_set(_THRESHOLD, alpha)
    return (
        f"<h2>Who surely exceeds {_THRESHOLD:g}?</h2>\n<p>With {_percent(alpha)} "
        f"confidence for all at once, PNS exceeds {_THRESHOLD:g} for "
        f"<b>{int(found.sum()):,}</b> of {len(found):,} people.</p>"
    )


def _percent(alpha: float) -> str:
    return f"{100 * (1 - alpha):g}%"
