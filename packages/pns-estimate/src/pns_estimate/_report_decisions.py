"""The report's section about whom to treat."""

import pandas as pd

from pns_estimate._decisions import Decision, decide
from pns_estimate._html import BLUE, GREY, make_figure, percent, svg, table, text
from pns_estimate._population import Population
from pns_estimate._prediction import Prediction

_TYPES = ("only if treated", "either way", "neither way", "only if untreated")
_WORDS = {
    "maximin": "treat where the least possible benefit is above 0",
    "minimax_regret": "treat where more can be lost by not treating",
}


def decisions(
    prediction: Prediction,
    population: Population | None,
    decision: Decision,
    alpha: float,
) -> str:
    """Shows recommendations, and what the rule, all and none are worth."""
    found = decide(prediction, decision, alpha)
    gains = ", ".join(
        f"{float(gain):g} for one who responds {kind}"
        for gain, kind in zip(decision.gains, _TYPES, strict=True)
    )
    budget = "none" if decision.budget is None else percent(decision.budget)
    labels = found["recommendation"].value_counts()
    rows = [
        [name, f"{int(labels.get(name, 0)):,}"]
        for name in ("treat", "do not", "undecided")
    ]
    parts = [
        (
            "<h2>Whom to treat</h2>\n<p>Gains of treating a person: "
            f"{text(gains)}; cost {decision.cost:g}; budget: {budget}. Criterion: "
            f"{text(decision.criterion)}, {_WORDS[decision.criterion]}.</p>"
        ),
        table([f"of {len(found):,} people", "recommendation"], rows),
        f"<p>The criterion treats {int(found['treat'].sum()):,} of them.</p>",
    ]
    if population is not None:
        parts.append(_values(population.value(decision, alpha)))
        parts.append(_draw_curve(population.value_curve(decision, alpha)))
        parts.append(
            "<p class='note'>Value per person over treating nobody, in the units of the "
            "gains, over the people of both tables; rule and curve sort people by "
            "networks that did not see them. The band holds for all shares at "
            "once.</p>"
        )
    return "\n".join(parts)


def _values(values: pd.DataFrame) -> str:
    rows = [
        [
            str(name),
            percent(row.share_treated),
            f"{row.lower:.4g} to {row.upper:.4g}",
            f"{row.bound_lower:.4g} to {row.bound_upper:.4g}",
        ]
        for name, row in zip(values.index, values.itertuples(), strict=True)
    ]
    return table(["policy", "treated", "value, interval", "value, bounds"], rows)


def _draw_curve(curve: pd.DataFrame) -> str:
    figure, axes = make_figure(8, 3.2)
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
