"""The report's opening: the trial's effect, bounds from each source, what the log added."""

from typing import NamedTuple

import pandas as pd
import pns_infer as pi

from pns_estimate._state import SourceSummary
from pns_estimate.answers.answers import Answers
from pns_estimate.answers.averages import ASKED, TRIAL
from pns_estimate.report.html import Cell, Table, range_cell, to_csv
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
