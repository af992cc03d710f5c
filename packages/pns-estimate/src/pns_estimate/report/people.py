"""The report's section about the people asked about: intervals, and who surely exceeds."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pns_bounds as pb

from pns_estimate.answers.prediction import Prediction
from pns_estimate.answers.question import Question
from pns_estimate.report.html import BLUE, ORANGE, make_figure, svg
from pns_estimate.report.words import Words

_MOST_NAMED = 30  # people with an interval of their own in the figure
_MOST_SEARCHED = 5000  # people whom the page itself holds
_NUM_BINS = 100
_NUM_STEPS = 100  # of the slider


class View(NamedTuple):
    """One estimand of all people.

    Attributes:
      name: of the estimand.
      label: what it is, in words.
      sentence: the same, in full.
      width: mean width of the intervals.
      num_empty: people whose ends cross.
      figure: of the intervals.
      is_named: whether the figure shows each person by name.
      curve: how many people surely exceed each value; None without draws.
      curve_figure: the same, drawn.
      above: how many exceed the threshold asked for, or None.
      start: where the slider stands at first.
      limits: least and greatest value of the estimand.
      terms: of each binding term, what it says in words.
    """

    name: str
    label: str
    sentence: str
    width: float
    num_empty: int
    figure: Any
    is_named: bool
    curve: pd.Series | None
    curve_figure: Any
    above: int | None
    start: int
    limits: tuple[float, float]
    terms: dict[str, str]


def find_people(
    prediction: Prediction, question: Question, words: Words
) -> tuple[list[View], dict[str, Any]]:
    """Computes every view, and what the page holds for its script."""
    intervals = {
        estimand.name: prediction.intervals(question.alpha, estimand, question.target)
        for estimand in question.estimands()
    }
    views = [
        _view(
            *(prediction, estimand, intervals[estimand.name], question, words),
            is_first=place == 0,
        )
        for place, estimand in enumerate(question.estimands())
    ]
    return views, _held(intervals, views)


def _view(
    prediction: Prediction,
    estimand: pb.Estimand,
    intervals: pd.DataFrame,
    question: Question,
    words: Words,
    *,
    is_first: bool,
) -> View:
    label = words.label(estimand)
    is_named = len(intervals) <= _MOST_NAMED
    curve, above = None, None
    if prediction.sampler.has_draws:
        band = prediction.band(question.alpha, estimand, "lower")
        curve = _exceedance(band, estimand)
        if is_first and question.threshold is not None:
            above = int(_exceeds(band, question.threshold).sum())
    limits = (estimand.floor, estimand.ceiling)
    return View(
        name=estimand.name,
        label=label,
        sentence=estimand.sentence,
        width=float((intervals["upper"] - intervals["lower"]).clip(lower=0).mean()),
        num_empty=int(intervals["is_empty"].sum()),
        figure=(_draw_named if is_named else _draw_ends)(intervals, label, limits),
        is_named=is_named,
        curve=curve,
        curve_figure=None
        if curve is None
        else _draw_curve(curve, label, question.threshold if is_first else None),
        above=above,
        start=_start(estimand, question.threshold if is_first else None),
        limits=limits,
        terms={
            term: limit if term == symbol else words.explain(term)
            for side, symbol, limit in (
                (
                    *("binding_lower", f"{estimand.floor:g}"),
                    f"{estimand.floor:g}, the least value there is",
                ),
                (
                    *("binding_upper", f"{estimand.ceiling:g}"),
                    f"{estimand.ceiling:g}, the greatest value there is",
                ),
            )
            for term in sorted(set(intervals[side]))
        },
    )


def _start(estimand: pb.Estimand, threshold: float | None) -> int:
    if threshold is None:
        return _NUM_STEPS // 4
    share = (threshold - estimand.floor) / (estimand.ceiling - estimand.floor)
    return round(_NUM_STEPS * share)


def _exceeds(band: pd.DataFrame, threshold: float) -> pd.Series:
    return (band["lower"] > threshold) & ~band["is_empty"]


def _exceedance(band: pd.DataFrame, estimand: pb.Estimand) -> pd.Series:
    """Counts the people who surely exceed each value."""
    values = np.linspace(estimand.floor, estimand.ceiling, _NUM_STEPS + 1)
    lower = np.sort(band.loc[~band["is_empty"], "lower"].to_numpy())
    counts = len(lower) - np.searchsorted(lower, values, side="right")
    index = pd.Index(values.round(6), name="threshold")
    return pd.Series(counts, index=index, name="people")


def _draw_named(
    intervals: pd.DataFrame, label: str, limits: tuple[float, float]
) -> Any:
    ordered = intervals.sort_values(["lower", "upper"])
    place = np.arange(len(ordered))
    figure, axes = make_figure(6, 0.8 + 0.22 * len(ordered))
    axes.hlines(place, ordered["lower"], ordered["upper"], color=BLUE, lw=1.2)
    inner = ordered[["bound_lower", "bound_upper"]].to_numpy().T
    axes.hlines(place, *inner, color=BLUE, lw=5, alpha=0.5)
    axes.set_yticks(
        place, [f"row {name}".replace("$", r"\$") for name in ordered.index]
    )
    axes.set(xlim=limits, xlabel="probability")
    return svg(figure, f"Interval of each person: {label}")


def _draw_ends(intervals: pd.DataFrame, label: str, limits: tuple[float, float]) -> Any:
    """Draws the lower ends in order, and where the upper ends of neighbors lie."""
    lower, upper = sorted_ends(intervals)
    share = (np.arange(len(lower)) + 0.5) / len(lower) * 100
    figure, axes = make_figure(6, 3.6)
    for ends, color, name in ((upper, ORANGE, "upper"), (lower, BLUE, "lower")):
        axes.fill_between(
            share, ends["low"], ends["high"], color=color, alpha=0.25, lw=0
        )
        axes.plot(share, ends["middle"], color=color, lw=1.5, label=f"{name} end")
        bound = {
            "color": color,
            "lw": 1,
            "ls": ":",
            "label": f"{name} bound, estimated",
        }
        axes.plot(share, ends["bound"], **bound)
    axes.set(xlim=(0, 100), ylim=limits, ylabel="probability")
    axes.set(xlabel="people, sorted by the lower end (%)")
    figure.legend(frameon=False, loc="outside upper center", ncols=2)
    return svg(
        figure,
        f"Lower and upper ends of all people's intervals: {label}. The middle person's "
        f"lower end is {lower['middle'].iloc[len(lower) // 2]:.2f}, and upper ends "
        f"beside it are about {upper['middle'].iloc[len(upper) // 2]:.2f}",
    )


def sorted_ends(intervals: pd.DataFrame) -> list[pd.DataFrame]:
    """Summarizes lower and upper ends of neighbors, sorted by the lower end.

    Args:
      intervals: of all people.

    Returns:
      For each end, by hundredth of the people (or fewer): the middle; the 10% and
      90% quantiles, 'low' and 'high'; and the middle of the estimated 'bound'.
    """
    ordered = intervals.sort_values(["lower", "upper"])
    count = min(_NUM_BINS, len(ordered))
    part = np.arange(len(ordered)) * count // len(ordered)
    return [
        ordered[end]
        .groupby(part)
        .quantile([0.1, 0.5, 0.9])
        .unstack()
        .set_axis(["low", "middle", "high"], axis=1)
        .assign(bound=ordered[f"bound_{end}"].groupby(part).median())
        for end in ("lower", "upper")
    ]


def _draw_curve(curve: pd.Series, label: str, threshold: float | None) -> Any:
    figure, axes = make_figure(6, 2.6)
    axes.step(curve.index, curve, where="post", color=BLUE, lw=1.5)
    if threshold is not None:
        axes.axvline(threshold, color=ORANGE, lw=1.2)
    axes.set(
        xlim=(curve.index[0], curve.index[-1]), ylim=(0, max(1, 1.05 * curve.max()))
    )
    axes.set(xlabel="value", ylabel="people surely above")
    return svg(figure, f"How many people surely exceed each value: {label}")


def _held(intervals: dict[str, pd.DataFrame], views: list[View]) -> dict[str, Any]:
    """Makes what the script searches and counts; rounded, and of some people if many."""
    index = next(iter(intervals.values())).index
    chosen = np.arange(len(index))
    if len(index) > _MOST_SEARCHED:
        chosen = np.linspace(0, len(index) - 1, _MOST_SEARCHED).round().astype(int)
    return {
        "total": len(index),
        "rows": [str(name) for name in index[chosen]],
        "estimands": [
            {
                "name": view.name,
                "label": view.label,
                "limits": view.limits,
                "terms": view.terms,
                "curve": None
                if view.curve is None
                else {
                    "values": view.curve.index.tolist(),
                    "people": view.curve.tolist(),
                },
                "columns": _columns(intervals[view.name].iloc[chosen]),
            }
            for view in views
        ],
    }


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    ends = ("lower", "upper", "bound_lower", "bound_upper")
    # JSON has no word for a number that is not there but null.
    columns: dict[str, Any] = {
        name: [None if np.isnan(v) else v for v in table[name].round(4).tolist()]
        for name in ends
    }
    columns |= {name: table[name].tolist() for name in table if "binding" in str(name)}
    columns["is_outside"] = table["is_outside"].astype(int).tolist()
    return columns
