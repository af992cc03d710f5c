"""The report's figure of how people who share covariates were weighed."""

from typing import Any

import numpy as np

from pns_estimate.fit.summary import Marginal
from pns_estimate.report.html import BLUE, ORANGE, make_figure, svg

_SOURCES = {"observational": ("log", BLUE), "experimental": ("trial", ORANGE)}


def residual(marginals: dict[str, Marginal]) -> dict[str, Any]:
    """Draws how likely strengths and shares are, and says it in words.

    Args:
      marginals: `FitSummary.residual`.
    """
    strengths, shares = (
        {source: marginals[f"{source}_{name}"] for source in _SOURCES}
        for name in ("strength", "share")
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
        "worth_figure": _draw(
            strengths,
            "people that the model's word counts as",
            f"Weight of each number of people that the model's word may count as: {worth}",
        ),
        "share_figure": _draw(
            shares,
            "share that the model did not know before",
            f"Weight of each share that the model did not know before: {share}",
        ),
    }


def _describe(marginal: Marginal, form: str) -> str:
    """Names the middle 90% of a marginal, or its one value."""
    values, below = marginal.values, np.cumsum(marginal.weight)
    # What rounding leaves below 1 must not pass the last value.
    low, high = (
        values[min(int(np.searchsorted(below, share)), len(values) - 1)]
        for share in (0.05, 0.95)
    )
    if low == high:
        return format(low, form)
    return f"{format(low, form)} to {format(high, form)}"


def _draw(marginals: dict[str, Marginal], label: str, title: str) -> Any:
    """Draws the marginals of both sources as bars side by side."""
    values = sorted({v for part in marginals.values() for v in part.values})
    place = {value: i for i, value in enumerate(values)}
    figure, axes = make_figure(6, 2.2)
    for shift, (source, (name, color)) in zip(
        (-0.2, 0.2), _SOURCES.items(), strict=True
    ):
        part = marginals[source]
        at = [place[value] + shift for value in part.values]
        axes.bar(at, part.weight, width=0.38, color=color, label=name)
    axes.set(xlabel=label, ylabel="weight", ylim=(0, None))
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set_xticks(range(len(values)), [f"{value:,g}" for value in values])
    axes.legend(frameon=False)
    return svg(figure, title)
