"""The report's sections about the tables and the fit."""

import dataclasses
from typing import Any

from pns_estimate.fit.summary import DrawScale, FitSummary
from pns_estimate.report.html import (
    BLUE,
    GREY,
    Cell,
    Table,
    make_figure,
    percent,
    svg,
)
from pns_estimate.report.residual import residual
from pns_estimate.report.words import Words


def tables(summary: FitSummary, words: Words) -> Table:
    """Shows sizes and shares of both tables."""
    rows = [
        [
            f"{name} ({kind})",
            Cell(f"{entry.rows:,}", entry.rows),
            Cell(f"{entry.effective_size:,.0f}", entry.effective_size),
            *(
                Cell(percent(share), share)
                for share in (
                    *(entry.treated, entry.outcome_untreated),
                    entry.outcome_treated,
                )
            ),
        ]
        for (name, entry), kind in zip(
            summary.tables.items(), ("the log", "the trial"), strict=True
        )
    ]
    head = ["table", "rows", "counted as people", words.treated]
    head += [f"{words.outcome}, of {arm}" for arm in (words.untreated, words.treated)]
    return Table("Sizes and shares of both tables", head, rows)


def compatibility(summary: FitSummary, words: Words) -> dict[str, Any]:
    """Says whether the tables contradict each other."""
    test = summary.compatibility
    return {
        **dataclasses.asdict(test),
        "is_bad": test.is_contradiction,
        "in_words": words.explain(test.constraint),
    }


def fit(summary: FitSummary, words: Words) -> dict[str, Any]:
    """Draws the losses and the reliability, and how the draws were scaled or weighed."""
    return {
        "losses": _draw_losses(summary) if summary.steps else None,
        "reliability": _draw_reliability(summary, words)
        if summary.reliability
        else None,
        "scale": summary.draw_scale and _draw_scale(summary.draw_scale),
        "residual": residual(summary.residual) if summary.residual else None,
    }


def _draw_losses(summary: FitSummary) -> Any:
    figure, axes = make_figure(6, 2.8)
    axes.plot(summary.steps, summary.training, color=GREY, lw=1.2, label="training")
    axes.plot(summary.steps, summary.held_out, color=BLUE, lw=1.2, label="held-out")
    axes.set(xlabel="step", ylabel="loss (nats)")
    axes.legend(frameon=False)
    return svg(figure, "Training and held-out loss")


def _draw_reliability(summary: FitSummary, words: Words) -> Any:
    figure, axes = make_figure(6, 5.4)
    axes.plot([0, 1], [0, 1], color=GREY, lw=0.8)
    symbols = words.symbols()
    for name, curve in summary.reliability.items():
        label = symbols[name].replace("$", r"\$")
        axes.plot(curve.predicted, curve.observed, lw=1, marker=".", label=label)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted", ylabel="observed, held-out")
    axes.set_box_aspect(1)
    figure.legend(frameon=False, loc="outside lower center", ncols=1)
    return svg(figure, "Predicted probabilities against frequencies")


def _draw_scale(scale: DrawScale) -> Any:
    figure, axes = make_figure(6, 2.4)
    axes.plot(scale.draw_scales, scale.log_likelihood, color=BLUE, lw=1.2)
    for end in scale.interval:
        axes.axvline(end, color=GREY, lw=0.8)
    axes.set(xlabel="factor of the draws", ylabel="log-likelihood")
    return svg(figure, "How well each factor of the draws explains held-out people")
