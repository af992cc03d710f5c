"""The report's sections about the people of the tables: averages without draws."""

from statistics import NormalDist

import numpy as np
import pandas as pd
import pns_infer as pi

from pns_estimate._html import (
    BLUE,
    GREY,
    ORANGE,
    make_figure,
    percent_range,
    svg,
    table,
    text,
)
from pns_estimate._population import Population, SortedPeople
from pns_estimate._summary import FitSummary

_LABELS = {"pns": "benefit (PNS)", "harm": "harm"}
_FLAGGED = 0.01  # p-value below which networks and trial disagree
_MOST_GROUPS = 40


def in_short(
    population: Population,
    people: SortedPeople,
    summary: FitSummary,
    alpha: float,
) -> str:
    """Says in plain words who benefits, who may be harmed, and what the best fifth gain."""
    benefit = population.average(alpha=alpha)
    harm = population.average(alpha=alpha, estimand="harm")
    best = people.table.iloc[-1]
    error = NormalDist().inv_cdf(1 - alpha / 2) * best.effect_error
    low, high = best.effect - error, best.effect + error
    lines = [
        (
            f"<b>Who benefits.</b> At least {_percent(benefit.lower)} and at most "
            f"{_percent(benefit.upper)} of people get {text(summary.outcome.column)} = "
            f"<code>{text(summary.outcome.one)}</code> because of "
            f"{text(summary.treatment.column)}."
        ),
        (
            f"<b>Who may be harmed.</b> At least {_percent(harm.lower)} and at most "
            f"{_percent(harm.upper)} lose it because of it."
        ),
        (
            "<b>The best fifth.</b> Of the fifth with the greatest predicted benefit, "
            f"{percent_range(best.benefit_lower, best.benefit_upper)} benefit. Treating "
            "them all, rather than none, would change their rate of the outcome by "
            f"{100 * best.effect:+.1f} points ({_confidence(alpha)}: {100 * low:+.1f} to {100 * high:+.1f})."
        ),
    ]
    items = "".join(f"<li>{line}</li>" for line in lines)
    return (
        f"<h2>In short</h2>\n<div class='answer'><ul>{items}</ul></div>\n<p class='note'>"
        f"With {_confidence(alpha)} confidence each, over the people of both tables. "
        "Predictions are by networks that did not see the person.</p>"
    )


def averages(population: Population, alpha: float) -> str:
    """Puts the average beside the trial's difference, the trial alone and counting."""
    difference = population.difference(alpha)
    rows = []
    for name, label in _LABELS.items():
        found = population.comparison(alpha, name)
        rows += [
            [
                f"{label}: {step}",
                percent_range(row.lower, row.upper),
                percent_range(row.bound_lower, row.bound_upper),
                f"{100 * (row.upper - row.lower):.1f}",
            ]
            for step, row in zip(found.index, found.itertuples(), strict=True)
        ]
    head = ["average over the people of both tables", f"{_confidence(alpha)} interval"]
    head += ["estimated bounds", "width (points)"]
    return (
        "<h2>On average</h2>\n<p>In the trial, treatment changed the rate of the outcome "
        f"by {100 * difference.estimate:+.1f} points "
        f"({_confidence(alpha)}: {100 * difference.lower:+.1f} to "
        f"{100 * difference.upper:+.1f}). How many benefit and how many are harmed, the "
        "trial alone leaves open; people who chose for themselves, and covariates, "
        f"narrow it:</p>\n{table(head, rows)}\n{_notes(population)}"
    )


def _notes(population: Population) -> str:
    """Says what was tested on the way."""
    found = population.prepared()
    notes = []
    if found.ratio is None:
        notes.append(
            "The covariates of the two tables are alike "
            f"(p = {found.laws.p_value:.2g}), so nothing was reweighted."
        )
    else:
        notes.append(
            "The covariates of the two tables differ "
            f"(p = {found.laws.p_value:.2g}): each table was reweighted to both "
            f"together, which leaves it the worth of "
            f"{found.ratio.effective_observational:,.0f} and "
            f"{found.ratio.effective_experimental:,.0f} rows. Frequencies are adjusted "
            "by covariates, too."
        )
        if _is_thin(population, found.ratio):
            notes.append(
                "<b>Hardly anybody of one table is like the people of the other</b>: "
                "averages over both rest on very few; average over one table instead."
            )
    if found.calibration.p_value < _FLAGGED:
        gaps = ", ".join(f"{100 * gap:+.1f}" for gap in found.calibration.gap)
        notes.append(
            "<b>The networks disagree with the trial's arms beyond noise</b> "
            f"(p = {found.calibration.p_value:.2g}; by {gaps} points untreated and "
            "treated). The averages here are corrected for it; the person-by-person "
            "intervals are not."
        )
    balance = population.assignment.balance
    if balance.p_value < _FLAGGED:
        notes.append(
            "<b>Covariates predict who was treated in the trial</b> "
            f"(p = {balance.p_value:.2g}): was it stratified?"
        )
    return f"<p class='note'>{' '.join(notes)}</p>"


def _is_thin(population: Population, ratio: pi.RatioSummary) -> bool:
    """Whether reweighting leaves a table less than a tenth of its rows."""
    sizes = np.bincount(population.rows.source, minlength=2)
    return bool(np.any(np.array(ratio[1:]) < 0.1 * sizes))


def sorted_people(people: SortedPeople, alpha: float) -> str:
    """Shows fifths by predicted benefit, and whether they differ."""
    rows = [
        [
            f"{group}",
            percent_range(row.benefit_lower, row.benefit_upper),
            percent_range(row.harm_lower, row.harm_upper),
            f"{100 * row.effect:+.1f} ± {196 * row.effect_error:.1f}",
        ]
        for group, row in zip(
            people.table.index, people.table.itertuples(), strict=True
        )
    ]
    head = ["group, the least predicted first", "benefit (PNS)", "harm"]
    verdict = (
        "The last group surely benefits more than the first"
        if people.p_value < alpha
        else "The bounds do not tell the last group from the first"
    )
    effect = (
        "the trial's effects in them differ"
        if people.effect_p_value < alpha
        else "the trial's effects in them do not differ beyond noise"
    )
    return (
        "<h2>Sorted by predicted benefit</h2>\n<p>People were sorted by networks that "
        "had not seen them; each group is then measured by its own outcomes. "
        f"{verdict} (p = {people.p_value:.2g}); {effect} "
        f"(p = {people.effect_p_value:.2g}).</p>\n"
        + _draw_groups(people)
        + table([*head, "effect in the trial (points)"], rows)
        + "<p class='note'>Intervals of benefit and harm hold for all groups at once "
        f"with {_confidence(alpha)} confidence; of an effect ± 1.96 standard errors are "
        "shown.</p>"
    )


def _draw_groups(people: SortedPeople) -> str:
    figure, axes = make_figure(8, 3)
    place = np.arange(len(people.table))
    for name, color, shift in (("benefit", BLUE, -0.12), ("harm", ORANGE, 0.12)):
        ends = [people.table[f"{name}_{end}"] for end in ("lower", "upper")]
        bounds = [people.table[f"{name}_bound_{end}"] for end in ("lower", "upper")]
        axes.vlines(place + shift, *ends, color=color, lw=1.2)
        axes.vlines(place + shift, *bounds, color=color, lw=6, alpha=0.5, label=name)
    axes.set_xticks(place, [str(group) for group in people.table.index])
    axes.set(xlabel="group by predicted benefit", ylabel="share of people")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left")
    return svg(figure, "Bounds of benefit and harm in each group")


def subgroups(population: Population, alpha: float) -> str:
    """Shows subgroups, sorted by their lower bound, with simultaneous intervals."""
    benefit = population.subgroups(alpha=alpha)
    harm = population.subgroups(alpha=alpha, estimand="harm")
    absent = benefit[benefit["lower"].isna()]
    known = benefit.drop(absent.index).sort_values(["bound_lower", "bound_upper"])
    shown = known if len(known) <= _MOST_GROUPS else known.iloc[-_MOST_GROUPS:]
    rows = [
        [
            str(name),
            f"{row.people:,}",
            percent_range(row.lower, row.upper),
            percent_range(harm.loc[name, "lower"], harm.loc[name, "upper"]),
        ]
        for name, row in zip(
            shown.index[::-1], shown.iloc[::-1].itertuples(), strict=True
        )
    ]
    note = f"Of each column all intervals hold at once with {_confidence(alpha)} confidence."
    if len(shown) < len(known):
        note += f" Shown are {len(shown)} of {len(known)} groups, the greatest first."
    others = [c for c in population.people.columns if not _is_named(c, benefit.index)]
    if others:
        note += f" {len(others)} covariates make no groups here."
    if len(absent):
        note += f" {len(absent)} groups are too small and left out."
    return (
        "<h2>Subgroups</h2>\n"
        + _draw_subgroups(shown)
        + table(["group", "people", "average PNS", "average harm"], rows)
        + f"<p class='note'>{note}</p>"
    )


def _is_named(column: object, groups: pd.Index) -> bool:
    return any(str(name).startswith(f"{column} ") for name in groups)


def _draw_subgroups(shown: pd.DataFrame) -> str:
    figure, axes = make_figure(8, 0.6 + 0.24 * len(shown))
    place = np.arange(len(shown))
    axes.hlines(place, shown["lower"], shown["upper"], color=BLUE, lw=1.2)
    axes.hlines(
        place, shown["bound_lower"], shown["bound_upper"], color=BLUE, lw=5, alpha=0.5
    )
    # A dollar sign would start mathematics.
    names = [str(name).replace("$", r"\$") for name in shown.index]
    axes.set_yticks(place, names)
    axes.set(xlabel="average PNS")
    axes.grid(axis="x", color=GREY, alpha=0.3, lw=0.5)
    return svg(figure, "Average PNS of subgroups")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _confidence(alpha: float) -> str:
    return f"{100 * (1 - alpha):g}%"
