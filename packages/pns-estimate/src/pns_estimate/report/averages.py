"""The report's opening: the trial's effect, bounds from each source, what the log added."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_infer as pi

from pns_estimate._errors import UserError
from pns_estimate.answers.population import Population
from pns_estimate.answers.prediction import Prediction
from pns_estimate.answers.question import Question
from pns_estimate.answers.unanswered import Unanswered, attempt
from pns_estimate.fit.summary import FitSummary
from pns_estimate.report.html import Cell, Table, range_cell, to_csv
from pns_estimate.report.words import Words

TRIAL, COUNTED, BOTH = "trial alone", "frequencies of both", "both, by covariates"
ASKED = "these people, by draws"
_MOST_ROWS = 20_000  # of a kind


class Averages(NamedTuple):
    """What the opening says.

    Attributes:
      effect: the trial's difference in the rate of the outcome.
      by_estimand: of each estimand's name, intervals and bounds by step: what the trial
        alone says, what counting says, what both tables say with covariates; the last
        step is about the people asked about, if the tables' people are gone.
      refusals: of each estimand whose average cannot be given, the reason.
      final: the step that uses both tables and says most.
    """

    effect: pi.Difference
    by_estimand: dict[str, pd.DataFrame]
    refusals: dict[str, str]
    final: str


def find_averages(
    prediction: Prediction,
    population: Population | None,
    summary: FitSummary,
    question: Question,
) -> Averages:
    """Asks the tables' people if they are there, else both tables' counts, and draws."""
    alpha = question.alpha
    if population is not None:
        compare = population.comparison
        found = {
            e.name: attempt(lambda e=e: compare(alpha, e))
            for e in question.estimands()
            if e.function is None
        }
        return _make_averages(population.difference(alpha), found, BOTH)
    units = counted_units(summary)
    found = {
        e.name: attempt(lambda e=e: _count(units, prediction, e, alpha))
        for e in question.estimands()
    }
    return _make_averages(pi.trial_difference(units, alpha), found, COUNTED)


def _make_averages(
    effect: pi.Difference, found: dict[str, pd.DataFrame | Unanswered], final: str
) -> Averages:
    given = {n: each for n, each in found.items() if isinstance(each, pd.DataFrame)}
    refusals = {n: e.reason for n, e in found.items() if isinstance(e, Unanswered)}
    for name in ("pns", "harm"):  # the opening needs them
        if name in refusals:
            raise UserError(refusals[name])
    return Averages(effect, given, refusals, final)


def counted_units(summary: FitSummary) -> pi.HeldOutUnits:
    """Makes rows again of the shares of each source, treatment and outcome.

    A row is one person, or several where there are very many of a kind; one row of each
    kind would be taken for a sample of eight.
    """
    rows = []
    for is_experimental, source in enumerate(("observational", "experimental")):
        entry = summary.tables[source]
        for x, rate in enumerate((entry.outcome_untreated, entry.outcome_treated)):
            treated = entry.treated if x else 1 - entry.treated
            for y in (0, 1):
                chance = 0.0 if rate is None else rate
                share = treated * (chance if y else 1 - chance)
                rows.append([is_experimental, x, y, share * entry.effective_size])
    kinds = np.array([row for row in rows if row[-1] > 0])
    copies = np.clip(kinds[:, -1].round().astype(int), 1, _MOST_ROWS)
    kinds[:, -1] /= copies
    table = np.repeat(kinds, copies, axis=0)
    return pi.make_held_out_units(
        pb.Atoms(np.zeros((len(table), 2, 2)), np.zeros((len(table), 2))),
        table[:, 0] == 1,
        table[:, 1].astype(int),
        table[:, 2].astype(int),
        assignment=summary.tables["experimental"].treated,
        weights=table[:, 3],
        weights_are="frequency",
    )


def _count(
    units: pi.HeldOutUnits, prediction: Prediction, estimand: pb.Estimand, alpha: float
) -> pd.DataFrame:
    steps: dict[str, Any] = {}
    if estimand.function is None:
        for name, alone in ((TRIAL, True), (COUNTED, False)):
            steps[name] = pi.frequency_interval(
                units, alpha, estimand=estimand, trial_alone=alone
            )
    steps[ASKED] = prediction.average(alpha=alpha, estimand=estimand)
    columns = ("lower", "upper", "bound_lower", "bound_upper")
    return pd.DataFrame(
        {c: [float(getattr(step, c)) for step in steps.values()] for c in columns},
        index=pd.Index(steps, name=estimand.name),
    )


def opening(
    averages: Averages, summary: FitSummary, question: Question, words: Words
) -> dict[str, Any]:
    """Collects the sentences of the opening."""
    pair = {name: averages.by_estimand[name] for name in ("pns", "harm")}
    first = question.estimands()[0]
    other = averages.by_estimand.get(first.name)
    return {
        "rates": summary.tables["experimental"],
        "effect": averages.effect,
        "trial": {name: table.loc[TRIAL] for name, table in pair.items()},
        "both": {name: table.loc[averages.final] for name, table in pair.items()},
        "added": [
            {"verb": words.verb(name), **_added(table, averages.final)}
            for name, table in pair.items()
        ],
        "asked": {
            name: table.loc[ASKED]
            for name, table in pair.items()
            if ASKED in table.index
        },
        "first": None
        if first.name in pair or other is None
        else {"sentence": first.sentence, "interval": other.iloc[-1]},
    }


def _added(table: pd.DataFrame, final: str) -> dict[str, float]:
    """Says by how many points the log narrowed an interval."""
    width = table["upper"] - table["lower"]
    return {
        "before": 100 * float(width.loc[TRIAL]),
        "after": 100 * float(width.loc[final]),
    }


def average_table(averages: Averages, question: Question, words: Words) -> Table:
    """Lists every step for every estimand."""
    rows, parts = [], []
    for estimand in question.estimands():
        found = averages.by_estimand.get(estimand.name)
        if found is None:
            continue
        parts.append(found.rename_axis("step").assign(estimand=estimand.name))
        rows += [
            [
                words.label(estimand),
                str(step),
                range_cell(row.lower, row.upper),
                range_cell(row.bound_lower, row.bound_upper),
                Cell(
                    f"{100 * (row.upper - row.lower):.1f}", float(row.upper - row.lower)
                ),
            ]
            for step, row in zip(found.index, found.itertuples(), strict=True)
        ]
    return Table(
        "Averages, by what they are made of",
        ["on average", "from", "interval", "estimated bounds", "width (points)"],
        rows,
        "averages.csv",
        to_csv(pd.concat(parts)),
    )
