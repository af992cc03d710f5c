"""The report's figure of how people who share covariates were weighed."""

from typing import Any

import numpy as np

from pns_estimate._html import BLUE, ORANGE, make_figure, svg, text

_SOURCES = {"observational": ("log", BLUE), "experimental": ("trial", ORANGE)}


def residual(marginals: dict[str, Any]) -> str:
    """Draws how likely strengths and temperatures are, and says it in a sentence.

    Args:
      marginals: `FitSummary.residual`.
    """
    strengths, temperatures = (
        {source: marginals[f"{source}_{name}"] for source in _SOURCES}
        for name in ("strength", "temperature")
    )
    worth = " and ".join(
        f"{_describe(strengths[source], ',.0f')} people of the {label}"
        for source, (label, _) in _SOURCES.items()
    )
    factor = " and ".join(
        f"{_describe(temperatures[source], '.2g')} ({label})"
        for source, (label, _) in _SOURCES.items()
    )
    return (
        "<h3>The model beside people with the same covariates</h3>\n<p>Where people share "
        "all covariates, what happened to them is averaged with what the model says of "
        "them: people whom it has not seen are predicted best if its word counts as much "
        f"as {text(worth)}.</p>\n"
        + _draw(
            strengths,
            "people that the model's word counts as",
            f"Weight of each number of people that the model's word may count as: {worth}",
        )
        + _draw(
            temperatures,
            "factor of the variance",
            f"Weight of each factor of the variance: {factor}",
        )
        + "<p class='note'>The model learned from the same people, so the variance of both "
        f"together is multiplied by {text(factor)}. Bars of one color sum to 1: they show "
        "how well each value predicts people whom the model has not seen. If they are "
        "spread over many values, the data say little about it.</p>"
    )


def _describe(marginal: dict[str, Any], form: str) -> str:
    """Names the middle 90% of a marginal, or its one value."""
    values, below = marginal["values"], np.cumsum(marginal["weight"])
    # What rounding leaves below 1 must not pass the last value.
    low, high = (
        values[min(int(np.searchsorted(below, share)), len(values) - 1)]
        for share in (0.05, 0.95)
    )
    if low == high:
        return format(low, form)
    return f"{format(low, form)} to {format(high, form)}"


def _draw(marginals: dict[str, Any], label: str, title: str) -> str:
    """Draws the marginals of both sources as bars side by side."""
    values = sorted({v for part in marginals.values() for v in part["values"]})
    place = {value: i for i, value in enumerate(values)}
    figure, axes = make_figure(8, 2.2)
    for shift, (source, (name, color)) in zip(
        (-0.2, 0.2), _SOURCES.items(), strict=True
    ):
        part = marginals[source]
        at = [place[value] + shift for value in part["values"]]
        axes.bar(at, part["weight"], width=0.38, color=color, label=name)
    axes.set(xlabel=label, ylabel="weight", ylim=(0, None))
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set_xticks(range(len(values)), [f"{value:,g}" for value in values])
    axes.legend(frameon=False)
    return svg(figure, title)
