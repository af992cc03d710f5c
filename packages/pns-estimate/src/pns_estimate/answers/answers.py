"""Everything that one question asks: each part is computed once, when it is first read.

Files, the report and what the command prints are functions of `Answers` alone.
"""

import dataclasses
import functools
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_infer as pi

from pns_estimate._errors import UserError, as_user_errors
from pns_estimate._state import FitSummary
from pns_estimate.answers.audit import Audit
from pns_estimate.answers.population import (
    BOTH,
    COUNTED,
    TRIAL,
    Population,
    SortedPeople,
)
from pns_estimate.answers.prediction import Prediction, interval_table
from pns_estimate.answers.question import (
    Decision,
    Question,
    Source,
    check_decision,
)
from pns_estimate.answers.subgroups import Columns, check_columns

ASKED, OWN = "these people, by draws", "these people, by covariates"
STRONG = 0.1  # disagreement of learners, from which on people are counted
_MOST_ROWS = 20_000  # of a kind
_Part = TypeVar("_Part")


@dataclasses.dataclass(frozen=True)
class Unanswered:
    """A part of the answers that is not given, and the sentence that says why."""

    reason: str


def attempt(compute: Callable[[], _Part]) -> _Part | Unanswered:
    """Computes a part of the answers; one that cannot be given does not end the run."""
    try:
        with as_user_errors():
            return compute()
    except UserError as error:
        return Unanswered(str(error))


class Averages(NamedTuple):
    """What is known on average."""

    effect: pi.Difference  # the trial's difference in the rate of the outcome
    # By name of the estimand, intervals and bounds of each step. The last step, `ASKED` or
    # `OWN`, is about the people asked about unless they are a sample of both tables.
    by_estimand: dict[str, pd.DataFrame]
    refusals: dict[str, str]  # by name of the estimand, why an average cannot be given
    final: str  # the step that uses both tables and says most


def find_averages(
    question: Question,
    prediction: Prediction,
    population: Population | None,
    summary: FitSummary,
    source: Source | None = None,
) -> Averages:
    """Asks the people of the tables if they are there, else both tables' counts.

    The source says of which tables the people asked about are a sample.
    """
    alpha = question.alpha
    if population is not None:
        effect, final = population.difference(alpha), BOTH
        source = source or population.find_source(prediction.z[prediction.place])
        ask = functools.partial(_compare, population, prediction, alpha, source)
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


def _compare(
    population: Population,
    prediction: Prediction,
    alpha: float,
    source: Source | None,
    estimand: pb.Estimand,
) -> pd.DataFrame:
    """Adds the people asked about to the steps; those of a table need no draws."""
    table = population.comparison(alpha, estimand)
    if source == "both":
        return table
    if source is None:
        steps: dict[str, Any] = {ASKED: prediction.average(None, None, alpha, estimand)}
    else:
        steps = {OWN: population.average(None, None, alpha, estimand, source)}
    return pd.concat([table, interval_table(steps, estimand.name)])


def _count(
    units: pi.HeldOutUnits, prediction: Prediction, alpha: float, estimand: pb.Estimand
) -> pd.DataFrame:
    steps: dict[str, Any] = {}
    if estimand.function is None:
        for name, alone in ((TRIAL, True), (COUNTED, False)):
            steps[name] = pi.frequency_interval(
                units, alpha, estimand=estimand, trial_alone=alone
            )
    steps[ASKED] = prediction.average(alpha=alpha, estimand=estimand)
    return interval_table(steps, estimand.name)


class Asked(NamedTuple):
    """The people asked about."""

    num_people: int
    num_outside: int  # who have a covariate outside what a table holds
    has_draws: bool  # of their probabilities
    has_population: bool  # whether the people of the tables are there, too
    num_disagreed: int = 0  # about whom learners differ by more than `STRONG`


class Checks(NamedTuple):
    """What was tested on the way to the averages; tests are p-values."""

    laws: float  # do the covariates of both tables follow one law?
    effective_sizes: tuple[float, float] | None  # of log and trial, if reweighted
    is_thin: bool  # whether that is less than a tenth of the rows of a table
    arms: float  # do the networks agree with both arms of the trial?
    arm_gaps: tuple[float, ...]  # by how much they differ, untreated and treated
    balance: float  # do covariates not predict the arm of the trial?


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """The answers to a question; a part that cannot be given is a `Unanswered`.

    Attributes:
      question: estimand, target, alpha and threshold.
      summary: of the fit.
      prediction: the people asked about.
      population: the people of the tables; None if they are gone.
      decision: whom to treat; None if that is not asked.
      audit: what an audit found; None if that is not asked.
      source: of which tables the people asked about are a sample; None if they are others,
        or all people of one table.
    """

    question: Question
    summary: FitSummary
    prediction: Prediction
    population: Population | None = None
    decision: Decision | None = None
    audit: Audit | Unanswered | None = None
    source: Source | None = None

    def __post_init__(self) -> None:
        """Raises unless question and decision make sense."""
        self.question.check()
        if self.decision is not None:
            check_decision(self.decision)
        check_columns(self.question.subgroups or [], self.summary.covariates)

    @classmethod
    def from_parts(cls, question: Question, summary: FitSummary, **parts: Any):
        """Makes answers of parts that are known already, by name; no fit is needed."""
        answers = cls.__new__(cls)
        given = {"decision": None, "question": question, "summary": summary, **parts}
        vars(answers).update(given)
        return answers

    @cached_property
    def asked(self) -> Asked:
        """The people asked about."""
        differ = self.prediction.disagreement
        return Asked(
            len(self.prediction.people),
            int(self.prediction.is_outside.sum()),
            self.prediction.sampler.has_draws,
            self.population is not None,
            0 if differ is None else int((differ > STRONG).sum()),
        )

    @cached_property
    def intervals(self) -> dict[str, pd.DataFrame]:
        """The interval of each person, by estimand; the one asked for comes first."""
        alpha, target = self.question.alpha, self.question.target
        return self._each(lambda e: self.prediction.intervals(alpha, e, target))

    @cached_property
    def bands(self) -> dict[str, pd.DataFrame] | Unanswered:
        """Lower ends that hold for all people at once, by estimand."""
        band, alpha = self.prediction.band, self.question.alpha
        return attempt(lambda: self._each(lambda e: band(alpha, e, "lower")))

    @cached_property
    def averages(self) -> Averages:
        """Averages of each estimand, step by step."""
        return find_averages(
            self.question,
            self.prediction,
            self.population,
            self.summary,
            self.source,
        )

    @cached_property
    def subgroup_columns(self) -> Columns:
        """Columns that make subgroups, and those that are left out though none is named."""
        if self.question.subgroups is not None:
            return Columns(list(self.question.subgroups), [])
        return (self.population or self.prediction).choose_columns()

    @cached_property
    def subgroups(self) -> dict[str, pd.DataFrame] | Unanswered:
        """Averages of subgroups, by estimand; of the people of the tables if there."""
        source, alpha = self.population or self.prediction, self.question.alpha
        return attempt(
            lambda: self._each(
                lambda e: source.subgroups(self.subgroup_columns.chosen, alpha, e)
            )
        )

    @cached_property
    def sorted_groups(self) -> SortedPeople | Unanswered:
        """Averages of people sorted by predicted benefit."""
        return self._of_tables(lambda p: p.sorted_groups(alpha=self.question.alpha))

    @cached_property
    def decisions(self) -> pd.DataFrame | Unanswered:
        """Whom to treat."""
        if self.decision is None:
            return Unanswered("the question names no decision.")
        return self.prediction.decide(self.decision, self.question.alpha)

    @cached_property
    def values(self) -> pd.DataFrame | Unanswered:
        """What the rule, treating all and treating none are worth."""
        if self.decision is None:
            return Unanswered("the question names no decision.")
        return self._of_tables(lambda p: p.value(self.decision, self.question.alpha))

    @cached_property
    def value_curve(self) -> pd.DataFrame | Unanswered:
        """What treating the best share is worth; without a decision, in outcomes."""
        decision = self.decision
        if decision is None:
            sign = -1.0 if self.question.outcome_is_bad else 1.0
            decision = Decision((sign, 0.0, 0.0, -sign))
        return self._of_tables(lambda p: p.value_curve(decision, self.question.alpha))

    @cached_property
    def checks(self) -> Checks | Unanswered:
        """What was tested on the way to the averages."""
        return self._of_tables(_find_checks)

    def _each(self, ask: Callable[[pb.Estimand], _Part]) -> dict[str, _Part]:
        return {estimand.name: ask(estimand) for estimand in self.question.estimands()}

    def _of_tables(self, ask: Callable[[Population], _Part]) -> _Part | Unanswered:
        population = self.population
        if population is None:
            return Unanswered("the people of the tables are not known.")
        return attempt(lambda: ask(population))


def _find_checks(population: Population) -> Checks:
    found = population.prepared()
    left, is_thin = found.effective_sizes, False
    if left is not None:
        sizes = np.bincount(population.rows.source, population.rows.copies, minlength=2)
        is_thin = bool(np.any(np.array(left) < 0.1 * sizes))
    return Checks(
        found.comparison.laws.p_value,
        left,
        is_thin,
        found.arms.p_value,
        tuple(found.arms.gap.tolist()),
        population.tables.trial.balance.p_value,
    )
