"""The report's section about whom to treat."""

from typing import Any

import pandas as pd

from pns_estimate.answers.decisions import Decision, decide
from pns_estimate.answers.population import Population
from pns_estimate.answers.prediction import Prediction
from pns_estimate.answers.unanswered import Unanswered, attempt
from pns_estimate.report.html import (
    BLUE,
    GREY,
    Cell,
    Table,
    make_figure,
    percent,
    svg,
    to_csv,
)
from pns_estimate.report.words import Words

# What is least of a loss is greatest of a gain.
_EXCHANGED = {
    f"{kind}{end}": f"{kind}{other}"
    for kind in ("", "bound_")
    for end, other in (("lower", "upper"), ("upper", "lower"))
}
_TYPES = ("only if treated", "either way", "neither way", "only if untreated")
_RECOMMENDATIONS = ("treat", "do not", "undecided")
_WORDS = {
    "maximin": "treat where the least possible gain is above the cost",
    "minimax_regret": "treat where more can be lost by not treating",
}


def decisions(
    prediction: Prediction,
    population: Population | None,
    decision: Decision,
    alpha: float,
) -> dict[str, Any]:
    """Shows recommendations, and what the rule, all and none are worth."""
    found = decide(prediction, decision, alpha)
    labels = found["recommendation"].value_counts()
    counts = {name: int(labels.get(name, 0)) for name in _RECOMMENDATIONS}
    values = None
    if population is not None:
        values = attempt(lambda: population.value(decision, alpha))
    return {
        "gains": ", ".join(
            f"{float(gain):g} for one who responds {kind}"
            for gain, kind in zip(decision.gains, _TYPES, strict=True)
        ),
        "decision": decision,
        "criterion": _WORDS[decision.criterion],
        "num_people": len(found),
        "num_treated": int(found["treat"].sum()),
        "counts": counts,
        "recommendations": Table(
            "Recommendations",
            ["recommendation", "people"],
            [[name, Cell(f"{n:,}", float(n))] for name, n in counts.items()],
        ),
        "policies": _values(values) if isinstance(values, pd.DataFrame) else None,
        "refusal": values.reason if isinstance(values, Unanswered) else "",
    }


def shares(
    population: Population, decision: Decision | None, words: Words, alpha: float
) -> dict[str, Any]:
    """Shows what treating each share of people gains, or does to the outcome's rate."""
    is_bad = words.good == "harm"
    sign = -1.0 if is_bad else 1.0
    weighed = decision or Decision((sign, 0, 0, -sign))
    curve = attempt(lambda: population.value_curve(weighed, alpha))
    if isinstance(curve, Unanswered):
        return {"refusal": curve.reason}
    if decision is not None:
        return {
            "refusal": "",
            "held": _held(curve, "is worth", "per person", is_signed=False),
            "figure": _draw_curve(curve, "value per person"),
            "note": "Value per person over treating nobody, in the units of the gains.",
        }
    curve = 100 * sign * curve.rename(columns=_EXCHANGED if is_bad else {})
    phrase = f"changes the rate of {words.outcome} by"
    return {
        "refusal": "",
        "held": _held(curve, phrase, "points", is_signed=True),
        "figure": _draw_curve(curve, "change of the rate (points)"),
        "note": f"By how many points treating a share changes the rate of "
        f"{words.outcome} among everybody.",
        "verb": words.verb("harm" if is_bad else "pns"),
    }


def _held(
    curve: pd.DataFrame, phrase: str, unit: str, *, is_signed: bool
) -> dict[str, Any]:
    """Makes what the slider of the share treated reads."""
    columns = {"share": curve.index.to_numpy(dtype=float).round(4).tolist()}
    columns |= {str(c): curve[c].round(6).tolist() for c in curve}
    return {**columns, "phrase": phrase, "unit": unit, "is_signed": is_signed}


def _values(values: pd.DataFrame) -> Table:
    rows = [
        [
            str(name),
            Cell(percent(row.share_treated), float(row.share_treated)),
            Cell(f"{row.lower:.4g} to {row.upper:.4g}", float(row.lower)),
            Cell(
                f"{row.bound_lower:.4g} to {row.bound_upper:.4g}",
                float(row.bound_lower),
            ),
        ]
        for name, row in zip(values.index, values.itertuples(), strict=True)
    ]
    return Table(
        "Value of treating by the rule, all and none",
        ["policy", "treated", "value, interval", "value, bounds"],
        rows,
        "values.csv",
        to_csv(values),
    )


def _draw_curve(curve: pd.DataFrame, label: str) -> Any:
    figure, axes = make_figure(6, 3.2)
    share = 100 * curve.index.to_numpy(dtype=float)
    axes.axhline(0, color=GREY, lw=0.8)
    axes.fill_between(
        share,
        curve["lower"],
        curve["upper"],
        color=BLUE,
        alpha=0.15,
        lw=0,
        label="band",
    )
    axes.fill_between(
        share,
        curve["bound_lower"],
        curve["bound_upper"],
        color=BLUE,
        alpha=0.35,
        lw=1,
        label="bounds",
    )
    axes.set(xlabel="share treated, the best first (%)", ylabel=label)
    axes.set_xlim(0, 100)
    axes.legend(frameon=False, loc="best")
    return svg(figure, "Value by share treated")
