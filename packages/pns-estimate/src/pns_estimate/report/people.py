"""The report's section about the people asked about: intervals, and who surely exceeds."""

from typing import Any

import numpy as np
import pandas as pd
import pns_bounds as pb

from pns_estimate._unit import Unit
from pns_estimate.answers.answers import Answers, Unanswered
from pns_estimate.answers.prediction import ENDS
from pns_estimate.report.html import (
    BLUE,
    ORANGE,
    Json,
    Words,
    draw_intervals,
    make_figure,
    plain,
    svg,
)

_MOST_NAMED = 30  # people with an interval of their own in the figure
_MOST_SEARCHED = 5000  # people whom the page itself holds
_NUM_BINS = 100
_NUM_STEPS = 100  # of the slider


def mean_width(intervals: pd.DataFrame) -> float:
    """Averages the widths; ends that cross have none."""
    return float((intervals["upper"] - intervals["lower"]).clip(lower=0).mean())


def count_above(answers: Answers) -> int | None:
    """Counts who surely exceeds the threshold; None if none was asked for."""
    threshold, bands = answers.question.threshold, answers.bands
    if threshold is None or isinstance(bands, Unanswered):
        return None
    band = next(iter(bands.values()))
    return int(((band["lower"] > threshold) & ~band["is_empty"]).sum())


def make_views(answers: Answers, words: Words) -> list[dict[str, Any]]:
    """Makes a view of each estimand; the first has the threshold."""
    thresholds = (answers.question.threshold, None, None)
    estimands = answers.question.estimands()
    return [
        _view(answers, estimand, words, threshold)
        for estimand, threshold in zip(estimands, thresholds, strict=False)
    ]


def _view(
    answers: Answers, estimand: pb.Estimand, words: Words, threshold: float | None
) -> dict[str, Any]:
    """Shows one estimand of all people."""
    label, limits = words.label(estimand), (estimand.floor, estimand.ceiling)
    intervals, bands = answers.intervals[estimand.name], answers.bands
    curve = None  # how many people surely exceed each value; needs draws
    if not isinstance(bands, Unanswered):
        curve = _exceedance(bands[estimand.name], estimand)
    start = _NUM_STEPS // 4  # where the slider stands at first
    if threshold is not None:
        share = (threshold - estimand.floor) / (estimand.ceiling - estimand.floor)
        start = round(_NUM_STEPS * share)
    is_named = len(intervals) <= _MOST_NAMED  # whether the figure names each person
    return {
        "name": estimand.name,
        "label": label,
        "sentence": estimand.sentence,
        "width": mean_width(intervals),
        "num_empty": int(intervals["is_empty"].sum()),
        "figure": (_draw_named if is_named else _draw_ends)(
            intervals, label, limits, words.unit
        ),
        "is_named": is_named,
        "curve": curve,
        "curve_figure": None
        if curve is None
        else _draw_curve(curve, label, threshold, words.unit),
        "above": None if threshold is None else count_above(answers),
        "start": start,
    }


def _exceedance(band: pd.DataFrame, estimand: pb.Estimand) -> pd.Series:
    """Counts the people who surely exceed each value."""
    values = np.linspace(estimand.floor, estimand.ceiling, _NUM_STEPS + 1)
    lower = np.sort(band.loc[~band["is_empty"], "lower"].to_numpy())
    counts = len(lower) - np.searchsorted(lower, values, side="right")
    return pd.Series(counts, pd.Index(values.round(6), name="threshold"), name="people")


def _draw_named(
    intervals: pd.DataFrame, label: str, limits: tuple[float, float], unit: Unit
) -> Any:
    ordered = intervals.sort_values(["lower", "upper"])
    names = [f"{ordered.index.name or 'row'} {name}" for name in ordered.index]
    title = f"Interval of each {unit.one}: {label}"
    return draw_intervals(ordered, names, title, xlim=limits, xlabel="probability")


def _draw_ends(
    intervals: pd.DataFrame, label: str, limits: tuple[float, float], unit: Unit
) -> Any:
    """Draws the lower ends in order, and where the upper ends of neighbors lie."""
    lower, upper = sorted_ends(intervals)
    share = (np.arange(len(lower)) + 0.5) / len(lower) * 100
    figure, axes = make_figure(3.6)
    for ends, color, name in ((upper, ORANGE, "upper"), (lower, BLUE, "lower")):
        band = (ends["low"], ends["high"])
        axes.fill_between(share, *band, color=color, alpha=0.25, lw=0)
        axes.plot(share, ends["middle"], color=color, lw=1.5, label=f"{name} end")
        bound = f"{name} bound, estimated"
        axes.plot(share, ends["bound"], color=color, lw=1, ls=":", label=bound)
    axes.set(xlim=(0, 100), ylim=limits, ylabel="probability")
    axes.set(xlabel=plain(unit.many) + ", sorted by the lower end (%)")
    figure.legend(frameon=False, loc="outside upper center", ncols=2)
    return svg(
        figure,
        f"Lower and upper ends of the intervals of all {unit.many}: {label}. The middle "
        f"lower end is {lower['middle'].iloc[len(lower) // 2]:.2f}, and upper ends "
        f"beside it are about {upper['middle'].iloc[len(upper) // 2]:.2f}",
    )


def sorted_ends(intervals: pd.DataFrame) -> list[pd.DataFrame]:
    """Summarizes lower and upper ends of neighbors, sorted by the lower end.

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


def _draw_curve(
    curve: pd.Series, label: str, threshold: float | None, unit: Unit
) -> Any:
    figure, axes = make_figure(2.6)
    axes.step(curve.index, curve, where="post", color=BLUE, lw=1.5)
    if threshold is not None:
        axes.axvline(threshold, color=ORANGE, lw=1.2)
    limits = (curve.index[0], curve.index[-1])
    axes.set(xlim=limits, ylim=(0, max(1, 1.05 * curve.max())))
    axes.set(xlabel="value", ylabel=f"{plain(unit.many)} surely above")
    return svg(figure, f"How many {unit.many} surely exceed each value: {label}")


def hold_data(
    answers: Answers, views: list[dict[str, Any]], words: Words
) -> dict[str, Json]:
    """Makes what the script searches and counts; rounded, and of some people if many."""
    index = next(iter(answers.intervals.values())).index
    chosen = np.arange(len(index))
    if len(index) > _MOST_SEARCHED:
        chosen = np.linspace(0, len(index) - 1, _MOST_SEARCHED).round().astype(int)
    estimands: list[Json] = []
    for view, estimand in zip(views, answers.question.estimands(), strict=True):
        intervals, curve = answers.intervals[estimand.name], view["curve"]
        if curve is not None:
            curve = {"values": curve.index.tolist(), "people": curve.tolist()}
        estimands.append(
            {
                "name": estimand.name,
                "label": view["label"],
                "limits": (estimand.floor, estimand.ceiling),
                "terms": _terms(intervals, estimand, words),
                "columns": _columns(intervals.iloc[chosen]),
                "curve": curve,
            }
        )
    rows = [str(name) for name in index[chosen]]
    key = str(index.name or "row")
    return {
        "total": len(index),
        "key": key,
        "unit": words.unit._asdict(),
        "rows": rows,
        "estimands": estimands,
    }


def _terms(
    intervals: pd.DataFrame, estimand: pb.Estimand, words: Words
) -> dict[str, str]:
    """Says in words what each binding term is."""
    floor, ceiling = f"{estimand.floor:g}", f"{estimand.ceiling:g}"
    limits = {
        "binding_lower": {floor: f"{floor}, the least value there is"},
        "binding_upper": {ceiling: f"{ceiling}, the greatest value there is"},
    }
    return {
        term: limit.get(term) or words.explain(term)
        for side, limit in limits.items()
        for term in sorted(set(intervals[side]))
    }


def _columns(table: pd.DataFrame) -> dict[str, list[Any]]:
    # JSON writes a missing number as null.
    columns: dict[str, list[Any]] = {
        name: [None if np.isnan(v) else v for v in table[name].round(4).tolist()]
        for name in (*ENDS, "disagreement")
        if name in table
    }
    columns |= {
        name: table[name].tolist() for name in ("binding_lower", "binding_upper")
    }
    columns["is_outside"] = table["is_outside"].astype(int).tolist()
    return columns
