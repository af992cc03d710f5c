"""The report's sections about the tables and the fit."""

from typing import Any

import numpy as np

from pns_estimate._state import DrawScale, FitSummary, Marginal
from pns_estimate.answers.answers import Unanswered
from pns_estimate.answers.audit import Audit
from pns_estimate.report.html import (
    BLUE,
    GREY,
    ORANGE,
    Cell,
    Table,
    Words,
    count_cell,
    make_figure,
    plain,
    share_cell,
    svg,
)

RESIDUAL_LABELS = {
    "strength": "people that the model's prediction counts for",
    "share": "share of the counts treated as new information",
}
_SOURCES = {"observational": ("log", BLUE), "experimental": ("trial", ORANGE)}


def source_table(summary: FitSummary, words: Words) -> Table:
    """Shows sizes and shares of both tables."""
    rows = [
        [
            Cell(f"{name} (the {_SOURCES[name][0]})"),
            count_cell(entry.rows),
            count_cell(entry.effective_size),
            share_cell(entry.treated),
            share_cell(entry.outcome_untreated),
            share_cell(entry.outcome_treated),
        ]
        for name, entry in summary.tables.items()
    ]
    head = ["table", "rows", f"counted as {words.unit.many}", words.treated]
    head += [f"{words.outcome}, of {arm}" for arm in (words.untreated, words.treated)]
    return Table("Sizes and shares of both tables", head, rows)


def audit_table(audit: Audit | Unanswered | None) -> Table | None:
    """Shows coverage by thirds of people; None if there was no audit."""
    if audit is None or isinstance(audit, Unanswered):
        return None
    kinds = {
        "width of the interval": audit.by_width,
        "difference between learners": audit.by_disagreement,
    }
    rows = [
        [Cell(f"by {kind}"), *map(share_cell, thirds)]
        for kind, thirds in kinds.items()
        if thirds is not None
    ]
    head = ["thirds of people", "least", "middle", "greatest"]
    return Table("Coverage in thirds of people", head, rows)


def fit_section(summary: FitSummary, words: Words) -> dict[str, Any]:
    """Draws losses and reliability, and how draws were scaled or weighed; None if not."""
    scale, residual = summary.draw_scale, summary.residual
    return {
        "losses": _draw_losses(summary) if summary.steps else None,
        "reliability": _draw_reliability(summary, words)
        if summary.reliability
        else None,
        "scale": None if scale is None else _draw_scale(scale),
        "residual": None if residual is None else residual_section(residual),
    }


def _draw_losses(summary: FitSummary) -> Any:
    figure, axes = make_figure(2.8)
    axes.plot(summary.steps, summary.training, color=GREY, lw=1.2, label="training")
    axes.plot(summary.steps, summary.held_out, color=BLUE, lw=1.2, label="held-out")
    axes.set(xlabel="step", ylabel="loss (nats)")
    axes.legend(frameon=False)
    return svg(figure, "Training and held-out loss")


def _draw_reliability(summary: FitSummary, words: Words) -> Any:
    figure, axes = make_figure(5.4)
    axes.plot([0, 1], [0, 1], color=GREY, lw=0.8)
    symbols = words.symbols()
    for name, curve in summary.reliability.items():
        label = plain(symbols[name])
        axes.plot(curve.predicted, curve.observed, lw=1, marker=".", label=label)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted", ylabel="observed, held-out")
    axes.set_box_aspect(1)
    figure.legend(frameon=False, loc="outside lower center", ncols=1)
    return svg(figure, "Predicted probabilities against frequencies")


def _draw_scale(scale: DrawScale) -> Any:
    figure, axes = make_figure(2.4)
    axes.plot(scale.draw_scales, scale.log_likelihood, color=BLUE, lw=1.2)
    for end in scale.interval:
        axes.axvline(end, color=GREY, lw=0.8)
    axes.set(xlabel="factor of the draws", ylabel="log-likelihood")
    return svg(figure, "How well each factor of the draws explains held-out people")


def residual_section(marginals: dict[str, Marginal]) -> dict[str, Any]:
    """Draws how likely strengths and shares are, and says it in words."""
    strengths, shares = (
        {source: marginals[f"{source}_{name}"] for source in _SOURCES}
        for name in RESIDUAL_LABELS
    )
    worth = " and ".join(
        f"{_describe(strengths[source], ',.0f')} people of the {label}"
        for source, (label, _) in _SOURCES.items()
    )
    share = " and ".join(
        f"{_describe(shares[source], '.0%')} ({label})"
        for source, (label, _) in _SOURCES.items()
    )
    return {
        "worth": worth,
        "share": share,
        "worth_figure": _draw_marginals(
            strengths,
            RESIDUAL_LABELS["strength"],
            "Weight of each number of people that the model's prediction may count for: "
            f"{worth}",
        ),
        "share_figure": _draw_marginals(
            shares,
            RESIDUAL_LABELS["share"],
            f"Weight of each share of the counts treated as new information: {share}",
        ),
    }


def _describe(marginal: Marginal, form: str) -> str:
    """Names the middle 90% of a marginal, or its one value."""
    values, below = marginal.values, np.cumsum(marginal.weight)
    # What rounding leaves below 1 must not pass the last value.
    places = np.minimum(np.searchsorted(below, [0.05, 0.95]), len(values) - 1)
    low, high = (format(values[place], form) for place in places)
    return low if low == high else f"{low} to {high}"


def _draw_marginals(marginals: dict[str, Marginal], label: str, title: str) -> Any:
    """Draws the marginals of both sources as bars side by side."""
    values = sorted({value for part in marginals.values() for value in part.values})
    figure, axes = make_figure(2.2)
    for shift, (source, part) in zip((-0.2, 0.2), marginals.items(), strict=True):
        name, color = _SOURCES[source]
        place = np.searchsorted(values, part.values) + shift
        axes.bar(place, part.weight, width=0.38, color=color, label=name)
    axes.set(xlabel=label, ylabel="weight", ylim=(0, None))
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set_xticks(range(len(values)), [f"{value:,g}" for value in values])
    axes.legend(frameon=False)
    return svg(figure, title)
