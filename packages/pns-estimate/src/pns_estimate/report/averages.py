"""The report's opening, and its sections about averages, sorted people and subgroups."""

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pns_infer as pi

from pns_estimate._state import SourceSummary
from pns_estimate.answers.answers import ASKED, Answers, Unanswered
from pns_estimate.answers.population import TRIAL, SortedPeople
from pns_estimate.report.html import (
    BLUE,
    ORANGE,
    Cell,
    Table,
    count_cell,
    draw_intervals,
    make_figure,
    range_cell,
    svg,
    to_csv,
)
from pns_estimate.report.words import Words


class Added(NamedTuple):
    """How wide an interval is from the trial alone, and with the log, in points."""

    verb: str
    before: float
    after: float


class First(NamedTuple):
    """The estimand that was asked for, if it is neither PNS nor harm."""

    sentence: str
    interval: pd.Series


class Opening(NamedTuple):
    """What the opening says; intervals are by name, of PNS and harm."""

    rates: SourceSummary  # of the trial
    effect: pi.Difference  # in the trial
    trial: dict[str, pd.Series]  # from the trial alone
    both: dict[str, pd.Series]  # from both tables
    added: list[Added]  # by the log
    asked: dict[str, pd.Series]  # of the people asked about, unless that is `both`
    first: First | None


def make_opening(answers: Answers, words: Words) -> Opening:
    """Collects the numbers of the opening."""
    averages = answers.averages
    pair = {name: averages.by_estimand[name] for name in ("pns", "harm")}
    width = {
        name: 100 * (table["upper"] - table["lower"]) for name, table in pair.items()
    }
    estimand = answers.question.estimands()[0]
    other = averages.by_estimand.get(estimand.name)
    first = None
    if estimand.name not in pair and other is not None:
        first = First(estimand.sentence, other.iloc[-1])
    return Opening(
        rates=answers.summary.tables["experimental"],
        effect=averages.effect,
        trial={name: table.loc[TRIAL] for name, table in pair.items()},
        both={name: table.loc[averages.final] for name, table in pair.items()},
        added=[
            Added(words.verb(name), width[name][TRIAL], width[name][averages.final])
            for name in pair
        ],
        asked={
            n: table.loc[ASKED] for n, table in pair.items() if ASKED in table.index
        },
        first=first,
    )


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
