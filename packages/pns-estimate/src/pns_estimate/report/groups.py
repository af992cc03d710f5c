"""The report's sections about groups: people sorted by prediction, and subgroups."""

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pns_estimate.answers.answers import Answers
from pns_estimate.answers.population import SortedPeople
from pns_estimate.answers.unanswered import Unanswered
from pns_estimate.report.figures import BLUE, ORANGE, draw_intervals, make_figure, svg
from pns_estimate.report.html import Cell, Table, count_cell, range_cell, to_csv
from pns_estimate.report.words import Words

_MOST_DRAWN = 40


class SortedSection(NamedTuple):
    """People sorted by prediction."""

    people: SortedPeople
    best: pd.Series  # the last group
    best_low: float  # ends of the effect in it
    best_high: float
    figure: Any
    table: Table


def sorted_section(answers: Answers, words: Words) -> SortedSection | Unanswered:
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
    return SortedSection(
        people,
        best,
        best.effect - margin,
        best.effect + margin,
        _draw_groups(people, words),
        Table(
            "People sorted by what networks that did not see them predict",
            [*head, "effect in the trial (points)"],
            rows,
            "sorted_groups.csv",
            to_csv(people.table),
        ),
    )


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


class SubgroupSection(NamedTuple):
    """Subgroups: a figure of the first ones, and a table of all that are large enough."""

    figure: Any
    num_drawn: int
    num_known: int
    num_absent: int
    table: Table


def subgroup_section(answers: Answers, words: Words) -> SubgroupSection | Unanswered:
    """Shows subgroups in their natural order."""
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
    return SubgroupSection(
        draw_intervals(drawn, drawn.index, title, xlabel="average"),
        len(drawn),
        len(known),
        len(main) - len(known),
        Table(
            "Averages of subgroups",
            ["group", "people", *labels],
            rows,
            "subgroups.csv",
            to_csv(pd.concat(found, names=["estimand"]).reset_index(level=0)),
        ),
    )
