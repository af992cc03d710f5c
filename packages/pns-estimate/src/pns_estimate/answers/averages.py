"""Averages of each estimand, step by step: the trial alone, both tables, covariates."""

import functools
from typing import NamedTuple

import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_infer as pi

from pns_estimate._errors import UserError
from pns_estimate._state import FitSummary
from pns_estimate.answers.population import Population
from pns_estimate.answers.prediction import ENDS, Prediction
from pns_estimate.answers.question import Question
from pns_estimate.answers.unanswered import Unanswered, attempt

TRIAL, COUNTED, BOTH = "trial alone", "frequencies of both", "both, by covariates"
ASKED = "these people, by draws"
_MOST_ROWS = 20_000  # of a kind


class Averages(NamedTuple):
    """What is known on average.

    Attributes:
      effect: the trial's difference in the rate of the outcome.
      by_estimand: by name of the estimand, intervals and bounds of each step. The last
        step is about the people asked about if the people of the tables are gone.
      refusals: by name of the estimand, why an average cannot be given.
      final: the step that uses both tables and says most.
    """

    effect: pi.Difference
    by_estimand: dict[str, pd.DataFrame]
    refusals: dict[str, str]
    final: str


def find_averages(
    question: Question,
    prediction: Prediction,
    population: Population | None,
    summary: FitSummary,
) -> Averages:
    """Asks the people of the tables if they are there, else both tables' counts."""
    alpha = question.alpha
    if population is not None:
        effect, final = population.difference(alpha), BOTH
        ask = functools.partial(population.comparison, alpha)
    else:
        units = counted_units(summary)
        effect, final = pi.trial_difference(units, alpha), COUNTED
        ask = functools.partial(_count, units, prediction, alpha)
    found = {e.name: attempt(lambda e=e: ask(e)) for e in question.estimands()}
    refusals = {n: e.reason for n, e in found.items() if isinstance(e, Unanswered)}
    for name in ("pns", "harm"):  # the opening needs them
        if name in refusals:
            raise UserError(refusals[name])
    tables = {n: e for n, e in found.items() if isinstance(e, pd.DataFrame)}
    return Averages(effect, tables, refusals, final)


def counted_units(summary: FitSummary) -> pi.HeldOutUnits:
    """Makes rows again of the shares of each source, treatment and outcome.

    A row is one person, or several where there are very many of a kind; one row of each
    kind would be taken for a sample of eight.
    """
    rows = []
    for is_experimental, entry in enumerate(summary.tables.values()):
        for x, rate in enumerate((entry.outcome_untreated, entry.outcome_treated)):
            size = entry.effective_size * (entry.treated if x else 1 - entry.treated)
            chance = 0.0 if rate is None else rate
            rows += [[is_experimental, x, 0, size * (1 - chance)]]
            rows += [[is_experimental, x, 1, size * chance]]
    kinds = np.array([row for row in rows if row[-1] > 0])
    copies = np.clip(kinds[:, -1].round().astype(int), 1, _MOST_ROWS)
    kinds[:, -1] /= copies
    is_experimental, x, y, weights = np.repeat(kinds, copies, axis=0).T
    shape = (len(x), *pb.BINARY.joint_shape)
    return pi.make_held_out_units(
        pb.Atoms(np.zeros(shape), np.zeros(shape[:2])),
        is_experimental == 1,
        x.astype(int),
        y.astype(int),
        assignment=summary.tables["experimental"].treated,
        weights=weights,
        weights_are="frequency",
    )


def _count(
    units: pi.HeldOutUnits, prediction: Prediction, alpha: float, estimand: pb.Estimand
) -> pd.DataFrame:
    steps = {}
    if estimand.function is None:
        for name, alone in ((TRIAL, True), (COUNTED, False)):
            found = pi.frequency_interval(
                units, alpha, estimand=estimand, trial_alone=alone
            )
            steps[name] = [float(getattr(found, end)) for end in ENDS]
    asked = prediction.average(alpha=alpha, estimand=estimand)
    steps[ASKED] = [float(getattr(asked, end)) for end in ENDS]
    table = pd.DataFrame.from_dict(steps, orient="index", columns=list(ENDS))
    return table.rename_axis(estimand.name)
