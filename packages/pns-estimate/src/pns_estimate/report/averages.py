"""The report's opening, its averages, sorted people and subgroups, and whom to treat."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from pns_estimate.answers.answers import ASKED, OWN, Answers, Unanswered
from pns_estimate.answers.population import MOVED, TRIAL, SortedPeople
from pns_estimate.answers.subgroups import name_some
from pns_estimate.report.html import (
    BLUE,
    GREY,
    ORANGE,
    Cell,
    Json,
    Table,
    Words,
    count_cell,
    draw_intervals,
    make_figure,
    plain,
    points,
    range_cell,
    share_cell,
    svg,
    to_csv,
)

_MOST_DRAWN = 40
# What is least of a loss is greatest of a gain.
_EXCHANGED = {
    f"{kind}{end}": f"{kind}{other}"
    for kind in ("", "bound_")
    for end, other in (("lower", "upper"), ("upper", "lower"))
}
_TYPES = ("only if treated", "either way", "neither way", "only if untreated")
_RECOMMENDATIONS = ("treat", "do not", "undecided")
_CRITERIA = {
    "maximin": "treat where the least possible gain is above the cost",
    "minimax_regret": "treat where more can be lost by not treating",
}


def make_opening(answers: Answers, words: Words) -> dict[str, Any]:
    """Collects the numbers of the opening; intervals are by name, of PNS and harm."""
    averages = answers.averages
    pair = {name: averages.by_estimand[name] for name in ("pns", "harm")}
    width = {n: 100 * (table["upper"] - table["lower"]) for n, table in pair.items()}
    before = MOVED if MOVED in pair["pns"].index else TRIAL  # about the same people
    estimand = answers.question.estimands()[0]
    other = averages.by_estimand.get(estimand.name)
    added = [  # by the log: widths in points
        {
            "verb": words.verb(name),
            "before": width[name][before],
            "after": width[name][averages.final],
            "is_wider": width[name][averages.final] > width[name][before] + 0.05,
        }
        for name in pair
    ]
    asked = OWN if OWN in pair["pns"].index else ASKED
    first = None  # the estimand asked for, if it is neither PNS nor harm
    if estimand.name not in pair and other is not None:
        first = {
            "sentence": estimand.sentence,
            "both": other.loc[averages.final]
            if averages.final in other.index
            else None,
            "asked": other.loc[asked] if asked in other.index else None,
        }
    return {
        "rates": answers.summary.tables["experimental"],
        "effect": averages.effect,  # in the trial
        "trial": {name: table.loc[TRIAL] for name, table in pair.items()},
        "both": {name: table.loc[averages.final] for name, table in pair.items()},
        "is_moved": before == MOVED,
        "added": added,
        "is_wider": any(change["is_wider"] for change in added),
        # Of the people asked about, unless they are a sample of both tables.
        "asked": {n: t.loc[asked] for n, t in pair.items() if asked in t.index},
        "is_drawn": asked == ASKED,
        "sizes": {n: t.rows for n, t in answers.summary.tables.items()},
        "first": first,
    }


def average_table(answers: Answers, words: Words) -> Table:
    """Lists every step for every estimand."""
    found = answers.averages.by_estimand
    rows = [
        [
            Cell(words.label(estimand)),
            Cell(words.unit(str(step))),
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


def sorted_section(answers: Answers, words: Words) -> dict[str, Any] | Unanswered:
    """Shows fifths by predicted PNS, and whether they differ."""
    people = answers.sorted_groups
    if isinstance(people, Unanswered):
        return people
    alpha = answers.question.alpha
    factor = NormalDist().inv_cdf(1 - alpha / 2)
    first, best = people.table.iloc[0], people.table.iloc[-1]
    differ = people.effect_p_value < alpha
    is_greater = bool(best.effect > first.effect)
    rows = [
        [
            Cell(str(group), float(place)),
            range_cell(row.benefit_lower, row.benefit_upper),
            range_cell(row.harm_lower, row.harm_upper),
            Cell(
                effect_range(row.effect, factor * row.effect_error),
                row.effect,
            ),
        ]
        for place, (group, row) in enumerate(people.table.iterrows())
    ]
    head = ["group", *(words.judged(name) for name in ("pns", "harm"))]
    return {
        "people": people,
        "best": best,  # the last group, and the effect in it
        "best_effect": effect_range(best.effect, factor * best.effect_error),
        # Whether a test finds that the last group gains more than the first.
        "is_confirmed": people.p_value < alpha or (differ and is_greater),
        "is_reversed": differ and not is_greater,
        "figure": _draw_groups(people, words),
        "table": Table(
            words.unit("People sorted by what models that did not see them predict"),
            [*head, "effect in the trial (points)"],
            rows,
            "sorted_groups.csv",
            to_csv(people.table),
        ),
    }


def effect_range(estimate: float, margin: float) -> str:
    """Writes an effect in points with its interval, within what is possible."""
    low, high = max(estimate - margin, -1.0), min(estimate + margin, 1.0)
    if low <= -1 and high >= 1:
        return "too little data"
    return f"{points(estimate)} ({points(low)} to {points(high)})"


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
        label = plain(words.judged(name))
        axes.vlines(place + shift, *bounds, color=color, lw=6, alpha=0.5, label=label)
    axes.set_xticks(place, [str(group) for group in people.table.index])
    axes.set(
        xlabel="group, the least predicted first",
        ylabel=plain(f"share of {words.unit.many}"),
    )
    axes.set_ylim(bottom=0)
    figure.legend(frameon=False, loc="outside upper center", ncols=2)
    return svg(
        figure, f"Bounds in each group of {words.unit.many} sorted by prediction"
    )


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
        "absent": name_some(main.index.difference(known.index, sort=False).tolist()),
        "num_left_out": len(answers.subgroup_columns.left_out),
        "left_out": name_some(answers.subgroup_columns.left_out),
        "table": Table(
            "Averages of subgroups",
            ["group", words.unit.many, *labels],
            rows,
            "subgroups.csv",
            to_csv(pd.concat(found, names=["estimand"]).reset_index(level=0)),
        ),
    }


def count_recommendations(decisions: pd.DataFrame) -> dict[str, int]:
    """Counts each recommendation, also those that do not occur."""
    counts = decisions["recommendation"].value_counts()
    return {name: int(counts.get(name, 0)) for name in _RECOMMENDATIONS}


def decision_section(answers: Answers, words: Words) -> dict[str, Any] | None:
    """Shows recommendations and values; None if no decision was asked for."""
    decision, found, values = answers.decision, answers.decisions, answers.values
    if decision is None or isinstance(found, Unanswered):
        return None
    counts = count_recommendations(found)
    return {
        "decision": decision,
        "gains": ", ".join(
            f"{words.money(f'{float(gain):g}')} for one who responds {kind}"
            for gain, kind in zip(decision.gains, _TYPES, strict=True)
        ),
        "cost": words.money(f"{decision.cost:g}"),
        "criterion": _CRITERIA[decision.criterion],
        "num_treated": int(found["treat"].sum()),
        "recommendations": Table(
            "Recommendations",
            ["recommendation", words.unit.many],
            [[Cell(name), count_cell(number)] for name, number in counts.items()],
        ),
        "policies": values
        if isinstance(values, Unanswered)
        else _values(values, words),
    }


def _values(values: pd.DataFrame, words: Words) -> Table:
    rows = [
        [
            Cell(str(name)),
            share_cell(row.share_treated),
            Cell(f"{row.lower:.4g} to {row.upper:.4g}", row.lower),
            Cell(f"{row.bound_lower:.4g} to {row.bound_upper:.4g}", row.bound_lower),
        ]
        for name, row in values.iterrows()
    ]
    unit = "" if words.gains_in is None else f" ({words.gains_in})"
    return Table(
        "Value of treating by the rule, all and none",
        ["policy", "treated", f"value{unit}, interval", "value, bounds"],
        rows,
        "values.csv",
        to_csv(values),
    )


def share_section(answers: Answers, words: Words) -> dict[str, Any] | Unanswered:
    """Shows what treating a share gains; without gains, how the outcome's rate changes."""
    curve = answers.value_curve
    if isinstance(curve, Unanswered):
        return curve
    if answers.decision is not None:
        per = words.money("").strip() + f" per {words.unit.one}"
        units = words.gains_in or "the units of the gains"
        return {
            "held": _held(curve, "is worth", per.strip(), is_signed=False),
            "figure": _draw_curve(curve, plain(f"value {per.strip()}")),
            "note": f"Value per {words.unit.one} over treating nobody, in {units}.",
        }
    if is_bad := words.good == "harm":
        curve = -curve.rename(columns=_EXCHANGED)
    curve = 100 * curve
    phrase = f"changes the rate of {words.outcome} by"
    return {
        "held": _held(curve, phrase, "points", is_signed=True),
        "figure": _draw_curve(curve, "change of the rate (points)"),
        "note": f"By how many points treating a share changes the rate of {words.outcome} "
        "among everybody.",
        "verb": words.verb("harm" if is_bad else "pns"),
    }


def _held(
    curve: pd.DataFrame, phrase: str, unit: str, *, is_signed: bool
) -> dict[str, Json]:
    """Makes what the slider needs."""
    columns = {str(column): curve[column].round(6).tolist() for column in curve}
    columns["share"] = curve.index.to_numpy(dtype=float).round(4).tolist()
    return {**columns, "phrase": phrase, "unit": unit, "is_signed": is_signed}


def _draw_curve(curve: pd.DataFrame, label: str) -> Any:
    figure, axes = make_figure(3.2)
    share = 100 * curve.index.to_numpy(dtype=float)
    axes.axhline(0, color=GREY, lw=0.8)
    for kind, alpha, width, name in (
        ("", 0.15, 0, "band"),
        ("bound_", 0.35, 1, "bounds"),
    ):
        ends = (curve[f"{kind}lower"], curve[f"{kind}upper"])
        axes.fill_between(share, *ends, color=BLUE, alpha=alpha, lw=width, label=name)
    axes.set(xlabel="share treated, the best first (%)", ylabel=label, xlim=(0, 100))
    axes.legend(frameon=False, loc="best")
    return svg(figure, "Value by share treated")
