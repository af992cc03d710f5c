"""The report's sections about the people of the tables: sorted groups and subgroups."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pns_infer as pi

from pns_estimate.answers.population import Population, SortedPeople
from pns_estimate.answers.prediction import Prediction
from pns_estimate.answers.question import Question
from pns_estimate.answers.subgroups import Subgroup, find_subgroups
from pns_estimate.answers.unanswered import Unanswered, attempt
from pns_estimate.report.html import (
    BLUE,
    GREY,
    ORANGE,
    Cell,
    Table,
    make_figure,
    range_cell,
    svg,
    to_csv,
)
from pns_estimate.report.words import Words

_FLAGGED = 0.01  # p-value below which networks and trial disagree
_MOST_DRAWN = 40


def notes(population: Population) -> dict[str, Any]:
    """Returns what was tested on the way to the averages."""
    found = population.prepared()
    return {
        "laws": found.laws,
        "effective_sizes": found.effective_sizes,
        "is_thin": _is_thin(population, found.effective_sizes),
        "arms": found.arms,
        "balance": population.assignment.balance,
        "flagged": _FLAGGED,
    }


def _is_thin(population: Population, effective: tuple[float, float] | None) -> bool:
    """Whether reweighting leaves a table less than a tenth of its rows."""
    if effective is None:
        return False
    sizes = np.bincount(population.rows.source, population.copies, minlength=2)
    return bool(np.any(np.array(effective) < 0.1 * sizes))


def sorted_people(
    people: SortedPeople | Unanswered, alpha: float, words: Words
) -> dict[str, Any]:
    """Shows fifths by predicted PNS, and whether they differ."""
    if isinstance(people, Unanswered):
        return {"refusal": people.reason}
    factor = NormalDist().inv_cdf(1 - alpha / 2)
    best = people.table.iloc[-1]
    rows = [
        [
            Cell(str(group), float(place)),
            range_cell(row.benefit_lower, row.benefit_upper),
            range_cell(row.harm_lower, row.harm_upper),
            Cell(
                f"{100 * row.effect:+.1f} ± {100 * factor * row.effect_error:.1f}",
                float(row.effect),
            ),
        ]
        for place, (group, row) in enumerate(
            zip(people.table.index, people.table.itertuples(), strict=True)
        )
    ]
    head = ["group", *(_label(words, name) for name in ("pns", "harm"))]
    return {
        "refusal": "",
        "people": people,
        "best": best,
        "best_low": best.effect - factor * best.effect_error,
        "best_high": best.effect + factor * best.effect_error,
        "figure": _draw_groups(people, words),
        "table": Table(
            "People sorted by what networks that did not see them predict",
            [*head, "effect in the trial (points)"],
            rows,
            "sorted_groups.csv",
            to_csv(people.table),
        ),
    }


def _label(words: Words, name: str) -> str:
    judgment = words.judgment(name)
    return words.verb(name) + (f" ({judgment})" if judgment else "")


def _draw_groups(people: SortedPeople, words: Words) -> Any:
    figure, axes = make_figure(6, 3)
    place = np.arange(len(people.table))
    for name, column, color, shift in (
        ("pns", "benefit", BLUE, -0.12),
        ("harm", "harm", ORANGE, 0.12),
    ):
        ends = [people.table[f"{column}_{end}"] for end in ("lower", "upper")]
        bounds = [people.table[f"{column}_bound_{end}"] for end in ("lower", "upper")]
        axes.vlines(place + shift, *ends, color=color, lw=1.2)
        label = _label(words, name)
        axes.vlines(place + shift, *bounds, color=color, lw=6, alpha=0.5, label=label)
    axes.set_xticks(place, [str(group) for group in people.table.index])
    axes.set(xlabel="group, the least predicted first", ylabel="share of people")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left")
    return svg(figure, "Bounds in each group of people sorted by prediction")


def subgroups(
    prediction: Prediction,
    population: Population | None,
    question: Question,
    words: Words,
) -> dict[str, Any]:
    """Shows subgroups in their natural order, of the tables' people if they are there."""
    found = attempt(
        lambda: (
            _drawn_subgroups(prediction, question)
            if population is None
            else _debiased_subgroups(population, question)
        )
    )
    if isinstance(found, Unanswered):
        return {"refusal": found.reason}
    first = question.estimands()[0]
    main = found[first.name]
    known = main.dropna(subset=["lower"])
    rows = [
        [
            str(group),
            Cell(
                f"{known.loc[group, 'people']:,.0f}", float(known.loc[group, "people"])
            ),
            *(
                range_cell(table.loc[group, "lower"], table.loc[group, "upper"])
                for table in found.values()
            ),
        ]
        for group in known.index
    ]
    labels = [words.label(estimand) for estimand in question.estimands()]
    return {
        "refusal": "",
        "figure": _draw_subgroups(known.iloc[:_MOST_DRAWN], labels[0]),
        "num_drawn": min(len(known), _MOST_DRAWN),
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


def _debiased_subgroups(
    population: Population, question: Question
) -> dict[str, pd.DataFrame]:
    return {
        estimand.name: population.subgroups(alpha=question.alpha, estimand=estimand)
        for estimand in question.estimands()
    }


def _drawn_subgroups(
    prediction: Prediction, question: Question
) -> dict[str, pd.DataFrame]:
    groups = [g for g in find_subgroups(prediction.people) if g.member.any()]
    weights = np.array([group.member for group in groups], float)
    return {
        estimand.name: _table(
            groups, prediction.average_groups(weights, question.alpha, estimand)
        )
        for estimand in question.estimands()
    }


def _table(groups: list[Subgroup], found: pi.AverageInterval) -> pd.DataFrame:
    columns = ("lower", "upper", "bound_lower", "bound_upper")
    return pd.DataFrame(
        {
            "people": [int(group.member.sum()) for group in groups],
            **{name: getattr(found, name) for name in columns},
        },
        index=pd.Index([group.name for group in groups], name="group"),
    )


def _draw_subgroups(shown: pd.DataFrame, label: str) -> Any:
    figure, axes = make_figure(6, 0.8 + 0.24 * len(shown))
    place = np.arange(len(shown))
    axes.hlines(place, shown["lower"], shown["upper"], color=BLUE, lw=1.2)
    axes.hlines(
        place, shown["bound_lower"], shown["bound_upper"], color=BLUE, lw=5, alpha=0.5
    )
    # A dollar sign would start mathematics.
    names = [str(name).replace("$", r"\$") for name in shown.index]
    axes.set_yticks(place, names)
    axes.invert_yaxis()  # the first group on top, as in the table
    axes.set(xlabel="average")
    axes.grid(axis="x", color=GREY, alpha=0.3, lw=0.5)
    return svg(figure, f"Averages of subgroups: {label}")
