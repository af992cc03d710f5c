"""The report's sections about whom to treat, and about treating a share of people."""

from typing import Any

import pandas as pd

from pns_estimate.answers.answers import Answers, Unanswered
from pns_estimate.report.html import (
    BLUE,
    GREY,
    Cell,
    Json,
    Table,
    Words,
    count_cell,
    make_figure,
    share_cell,
    svg,
    to_csv,
)

# What is least of a loss is greatest of a gain.
_EXCHANGED = {
    f"{kind}{end}": f"{kind}{other}"
    for kind in ("", "bound_")
    for end, other in (("lower", "upper"), ("upper", "lower"))
}
_TYPES = ("only if treated", "either way", "neither way", "only if untreated")
_RECOMMENDATIONS = ("treat", "do not", "undecided")
_CRITERIA = {
    "maximin": "treat where the least possible gain is above the cost",
    "minimax_regret": "treat where more can be lost by not treating",
}


def count_recommendations(decisions: pd.DataFrame) -> dict[str, int]:
    """Counts each recommendation, also those that do not occur."""
    counts = decisions["recommendation"].value_counts()
    return {name: int(counts.get(name, 0)) for name in _RECOMMENDATIONS}


def decision_section(answers: Answers) -> dict[str, Any] | None:
    """Shows recommendations and values; None if no decision was asked for."""
    decision, found, values = answers.decision, answers.decisions, answers.values
    if decision is None or isinstance(found, Unanswered):
        return None
    counts = count_recommendations(found)
    return {
        "decision": decision,
        "gains": ", ".join(
            f"{float(gain):g} for one who responds {kind}"
            for gain, kind in zip(decision.gains, _TYPES, strict=True)
        ),
        "criterion": _CRITERIA[decision.criterion],
        "num_treated": int(found["treat"].sum()),
        "recommendations": Table(
            "Recommendations",
            ["recommendation", "people"],
            [[Cell(name), count_cell(number)] for name, number in counts.items()],
        ),
        "policies": values if isinstance(values, Unanswered) else _values(values),
    }


def _values(values: pd.DataFrame) -> Table:
    rows = [
        [
            Cell(str(name)),
            share_cell(row.share_treated),
            Cell(f"{row.lower:.4g} to {row.upper:.4g}", row.lower),
            Cell(f"{row.bound_lower:.4g} to {row.bound_upper:.4g}", row.bound_lower),
        ]
        for name, row in values.iterrows()
    ]
    return Table(
        "Value of treating by the rule, all and none",
        ["policy", "treated", "value, interval", "value, bounds"],
        rows,
        "values.csv",
        to_csv(values),
    )


def share_section(answers: Answers, words: Words) -> dict[str, Any] | Unanswered:
    """Shows what treating a share gains; without gains, how the outcome's rate changes."""
    curve = answers.value_curve
    if isinstance(curve, Unanswered):
        return curve
    if answers.decision is not None:
        return {
            "held": _held(curve, "is worth", "per person", is_signed=False),
            "figure": _draw_curve(curve, "value per person"),
            "note": "Value per person over treating nobody, in the units of the gains.",
        }
    if is_bad := words.good == "harm":
        curve = -curve.rename(columns=_EXCHANGED)
    curve = 100 * curve
    phrase = f"changes the rate of {words.outcome} by"
    return {
        "held": _held(curve, phrase, "points", is_signed=True),
        "figure": _draw_curve(curve, "change of the rate (points)"),
        "note": f"By how many points treating a share changes the rate of {words.outcome} "
        "among everybody.",
        "verb": words.verb("harm" if is_bad else "pns"),
    }


def _held(
    curve: pd.DataFrame, phrase: str, unit: str, *, is_signed: bool
) -> dict[str, Json]:
    """Makes what the slider needs."""
    columns = {str(column): curve[column].round(6).tolist() for column in curve}
    columns["share"] = curve.index.to_numpy(dtype=float).round(4).tolist()
    return {**columns, "phrase": phrase, "unit": unit, "is_signed": is_signed}


def _draw_curve(curve: pd.DataFrame, label: str) -> Any:
    figure, axes = make_figure(3.2)
    share = 100 * curve.index.to_numpy(dtype=float)
    axes.axhline(0, color=GREY, lw=0.8)
    for kind, alpha, width, name in (
        ("", 0.15, 0, "band"),
        ("bound_", 0.35, 1, "bounds"),
    ):
        ends = (curve[f"{kind}lower"], curve[f"{kind}upper"])
        axes.fill_between(share, *ends, color=BLUE, alpha=alpha, lw=width, label=name)
    axes.set(xlabel="share treated, the best first (%)", ylabel=label, xlim=(0, 100))
    axes.legend(frameon=False, loc="best")
    return svg(figure, "Value by share treated")
