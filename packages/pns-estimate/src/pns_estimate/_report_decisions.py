"""The report's section about whom to treat."""

from typing import Any

import pandas as pd

from pns_estimate._decisions import Decision, decide
from pns_estimate._html import (
    BLUE,
    GREY,
    Cell,
    Table,
    make_figure,
    percent,
    svg,
    to_csv,
)
from pns_estimate._population import Population
from pns_estimate._prediction import Prediction

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
    values = curve = None
    if population is not None:
        values = population.value(decision, alpha)
        curve = population.value_curve(decision, alpha)
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
        "policies": None if values is None else _values(values),
        "curve": None if curve is None else _held(curve),
        "curve_figure": None if curve is None else _draw_curve(curve),
    }


def _held(curve: pd.DataFrame) -> dict[str, list[float]]:
    """Makes what the slider of the share treated reads."""
    columns = {"share": curve.index.to_numpy(dtype=float).round(4).tolist()}
    return columns | {str(c): curve[c].round(6).tolist() for c in curve}


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


def _draw_curve(curve: pd.DataFrame) -> Any:
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
    axes.set(xlabel="share treated, the best first (%)", ylabel="value per person")
    axes.set_xlim(0, 100)
    axes.legend(frameon=False, loc="upper left")
    return svg(figure, "Value by share treated")
