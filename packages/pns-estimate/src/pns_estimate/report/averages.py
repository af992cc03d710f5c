"""The report's opening, and its sections about averages, sorted people and subgroups."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from pns_estimate.answers.answers import ASKED, Answers, Unanswered
from pns_estimate.answers.population import TRIAL, SortedPeople
from pns_estimate.report.html import (
    BLUE,
    ORANGE,
    Cell,
    Table,
    Words,
    count_cell,
    draw_intervals,
    make_figure,
    range_cell,
    svg,
    to_csv,
)


def make_opening(answers: Answers, words: Words) -> dict[str, Any]:
    """Collects the numbers of the opening; intervals are by name, of PNS and harm."""
    averages = answers.averages
    pair = {name: averages.by_estimand[name] for name in ("pns", "harm")}
    width = {n: 100 * (table["upper"] - table["lower"]) for n, table in pair.items()}
    estimand = answers.question.estimands()[0]
    other = averages.by_estimand.get(estimand.name)
    first = None  # the estimand asked for, if it is neither PNS nor harm
    if estimand.name not in pair and other is not None:
        first = {"sentence": estimand.sentence, "interval": other.iloc[-1]}
    return {
        "rates": answers.summary.tables["experimental"],
        "effect": averages.effect,  # in the trial
        "trial": {name: table.loc[TRIAL] for name, table in pair.items()},
        "both": {name: table.loc[averages.final] for name, table in pair.items()},
        "added": [  # by the log: widths in points
            {
                "verb": words.verb(name),
                "before": width[name][TRIAL],
                "after": width[name][averages.final],
            }
            for name in pair
        ],
        # Of the people asked about, unless that is "both".
        "asked": {n: t.loc[ASKED] for n, t in pair.items() if ASKED in t.index},
        "first": first,
    }


def average_table(answers: Answers, words: Words) -> Table:
    """Lists every step for every estimand."""
    found = answers.averages.by_estimand
    rows = [
        [
            Cell(words.label(estimand)),
            Cell(str(step)),
            range_cell(row.lower, row.upper),
            range_cell(row.bound_lower, row.bound_upper),
            Cell(f"{100 * (row.upper - row.lower):.1f}", row.upper - row.lower),
        ]
        for estimand in answers.question.estimands()
        if estimand.name in found
        for step, row in found[estimand.name].iterrows()
    ]
    parts = [t.rename_axis("step").assign(estimand=name) for name, t in found.items()]
    return Table(
        "Averages, by what they are made of",
        ["on average", "from", "interval", "estimated bounds", "width (points)"],
        rows,
        "averages.csv",
        to_csv(pd.concat(parts)),
    )


_MOST_DRAWN = 40


def sorted_section(answers: Answers, words: Words) -> dict[str, Any] | Unanswered:
    """Shows fifths by predicted PNS, and whether they differ."""
    people = answers.sorted_groups
    if isinstance(people, Unanswered):
        return people
    factor = NormalDist().inv_cdf(1 - answers.question.alpha / 2)
    best = people.table.iloc[-1]
    margin = factor * best.effect_error
    rows = [
        [
            Cell(str(group), float(place)),
            range_cell(row.benefit_lower, row.benefit_upper),
            range_cell(row.harm_lower, row.harm_upper),
            Cell(
                f"{100 * row.effect:+.1f} ± {100 * factor * row.effect_error:.1f}",
                row.effect,
            ),
        ]
        for place, (group, row) in enumerate(people.table.iterrows())
    ]
    head = ["group", *(words.judged(name) for name in ("pns", "harm"))]
    return {
        "people": people,
        "best": best,  # the last group, and the ends of the effect in it
        "best_low": best.effect - margin,
        "best_high": best.effect + margin,
        "figure": _draw_groups(people, words),
        "table": Table(
            "People sorted by what networks that did not see them predict",
            [*head, "effect in the trial (points)"],
            rows,
            "sorted_groups.csv",
            to_csv(people.table),
        ),
    }


def _draw_groups(people: SortedPeople, words: Words) -> Any:
    figure, axes = make_figure(3)
    place = np.arange(len(people.table))
    for name, column, color, shift in (
        ("pns", "benefit", BLUE, -0.12),
        ("harm", "harm", ORANGE, 0.12),
    ):
        ends = [people.table[f"{column}_{end}"] for end in ("lower", "upper")]
        bounds = [people.table[f"{column}_bound_{end}"] for end in ("lower", "upper")]
        axes.vlines(place + shift, *ends, color=color, lw=1.2)
        label = words.judged(name)
        axes.vlines(place + shift, *bounds, color=color, lw=6, alpha=0.5, label=label)
    axes.set_xticks(place, [str(group) for group in people.table.index])
    axes.set(xlabel="group, the least predicted first", ylabel="share of people")
    axes.set_ylim(bottom=0)
    figure.legend(frameon=False, loc="outside upper center", ncols=2)
    return svg(figure, "Bounds in each group of people sorted by prediction")


def subgroup_section(answers: Answers, words: Words) -> dict[str, Any] | Unanswered:
    """Shows subgroups in their natural order: the first in a figure, all in a table."""
    found = answers.subgroups
    if isinstance(found, Unanswered):
        return found
    labels = [words.label(estimand) for estimand in answers.question.estimands()]
    main = next(iter(found.values()))
    known = main.dropna(subset=["lower"])
    rows = [
        [
            Cell(str(group)),
            count_cell(known.loc[group, "people"]),
            *(range_cell(*t.loc[group, ["lower", "upper"]]) for t in found.values()),
        ]
        for group in known.index
    ]
    drawn = known.iloc[:_MOST_DRAWN]
    title = f"Averages of subgroups: {labels[0]}"
    return {
        "figure": draw_intervals(drawn, drawn.index, title, xlabel="average"),
        "num_drawn": len(drawn),
        "num_known": len(known),
        "num_absent": len(main) - len(known),
        "table": Table(
            "Averages of subgroups",
            ["group", "people", *labels],
            rows,
            "subgroups.csv",
            to_csv(pd.concat(found, names=["estimand"]).reset_index(level=0)),
        ),
    }
