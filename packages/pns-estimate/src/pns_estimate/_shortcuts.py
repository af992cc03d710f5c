"""Shortcuts of a fitted estimator, one method per question.

Each is asked of a `Prediction` (people who are given) or of the `Population` (people of the
tables), where it is computed. Arguments come in one order: rows, what is particular to the
question, alpha, estimand, and then target, side or source.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pns_infer as pi

from pns_estimate._errors import UserError
from pns_estimate._state import Compatibility, FitSummary
from pns_estimate.answers.decisions import Decision, decide
from pns_estimate.answers.population import Population, SortedPeople, Source
from pns_estimate.answers.prediction import EstimandLike, Prediction, Side, Target


class Shortcuts:
    """Questions in one call, answered by `predict(rows)`, `population_`, `summary_`."""

    def predict(self, rows: Any) -> Prediction:
        """Prepares people to ask about."""
        raise NotImplementedError

    @property
    def population_(self) -> Population:
        """The people of the tables."""
        raise NotImplementedError

    @property
    def summary_(self) -> FitSummary:
        """What is known of data and fit."""
        raise NotImplementedError

    def intervals(
        self,
        rows: Any,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        target: Target = "set",
    ) -> pd.DataFrame:
        """Computes an interval for each person.

        Args:
          rows: people with the covariates of training; a DataFrame or a path.
          alpha: the probability of missing.
          estimand: a name from `pns_bounds.ESTIMANDS`, such as 'pns', 'harm', 'pn' or
            'ps'; or a `pns_bounds.Estimand`.
          target: 'set': an interval covers the identified set, all values the data
            cannot exclude; 'parameter': the true value alone, and is narrower.

        Returns:
          A DataFrame with the index of `rows`:
            lower, upper: the interval.
            bound_lower, bound_upper: half-median-unbiased estimates of the sharp bounds.
            binding_lower, binding_upper: the term that attains each end.
            is_empty: whether the ends cross, so that no value fits.
            is_outside: whether a covariate lies outside what training saw.
        """
        return self.predict(rows).intervals(alpha, estimand, target)

    def band(
        self,
        rows: Any,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        side: Side = "both",
    ) -> pd.DataFrame:
        """Computes a band that holds for all rows at once.

        Returns:
          A DataFrame with lower, upper and is_empty, and the index of `rows`.
        """
        return self.predict(rows).band(alpha, estimand, side)

    def threshold_set(
        self,
        rows: Any,
        threshold: float,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
    ) -> pd.Series:
        """Finds who surely exceeds a threshold.

        Returns:
          Booleans with the index of `rows`. With probability 1 - alpha all marks are
          right.
        """
        return self.predict(rows).threshold_set(threshold, alpha, estimand)

    def average(
        self,
        rows: Any = None,
        mask: Any = None,
        weights: Any = None,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        source: Source = "both",
    ) -> pi.AverageInterval | pi.DebiasedAverage:
        """Computes an interval for the mean over people.

        Without rows it is over the people of the tables, and debiased: no draws, no
        bias of the networks, and what plain frequencies say is used, too. With rows it is
        over other people and rests on the draws. Draws are made for single people: what
        their means share is not calibrated, and the interval may be too narrow or too
        wide.

        Args:
          rows: people with the covariates of training; those of the tables if None.
          mask: booleans, one per row: a subgroup. Of the tables: the rows of both, the
            observational ones first; or a function of their covariates.
          weights: not negative, one per row.
          alpha: the probability of missing.
          estimand: as for `intervals`.
          source: without rows, whose people: 'both', 'observational' or 'experimental'.
        """
        if rows is None:
            return self.population_.average(mask, weights, alpha, estimand, source)
        if source != "both":
            raise UserError(
                "source is for averages without rows; leave one of them out."
            )
        return self.predict(rows).average(mask, weights, alpha, estimand)

    def compare_averages(
        self,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        source: Source = "both",
    ) -> pd.DataFrame:
        """Shows what each step adds: the trial alone, both tables, covariates.

        Returns:
          A DataFrame with lower, upper, bound_lower and bound_upper by step.
        """
        return self.population_.comparison(alpha, estimand, source)

    def subgroups(
        self,
        columns: Sequence[str] | None = None,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        source: Source = "both",
    ) -> pd.DataFrame:
        """Averages subgroups of the tables' people; all intervals hold at once.

        Args:
          columns: covariates: categories make a group each, numbers are cut at
            quartiles; all that can be grouped if None.
          alpha: the probability that any interval misses.
          estimand: as for `intervals`.
          source: as for `average`.

        Returns:
          A DataFrame with people and the columns of `compare_averages`; without numbers
          for a group that lacks people of the log or of an arm.
        """
        return self.population_.subgroups(columns, alpha, estimand, source)

    def sorted_groups(
        self, num_groups: int = 5, alpha: float = 0.05, source: Source = "both"
    ) -> SortedPeople:
        """Averages people sorted by predicted benefit, on people networks did not see.

        All intervals hold at once with probability 1 - alpha.
        """
        return self.population_.sorted_groups(num_groups, alpha, source)

    def decide(
        self, rows: Any, decision: Decision | None = None, alpha: float = 0.05
    ) -> pd.DataFrame:
        """Recommends whom to treat.

        Returns:
          A DataFrame with the index of `rows`: the interval of each person's net benefit,
          a recommendation ('treat', 'do not', 'undecided'), the criterion's score, and
          whom it treats.
        """
        return decide(self.predict(rows), decision or Decision(), alpha)

    def value(
        self,
        decision: Decision | None = None,
        alpha: float = 0.05,
        source: Source = "both",
    ) -> pd.DataFrame:
        """Estimates what a rule gains per person over treating nobody.

        The rule is the criterion applied to each person's held-out bounds.

        Returns:
          A DataFrame with rows 'rule', 'treat all', 'treat none': lower, upper,
          bound_lower, bound_upper and share_treated.
        """
        return self.population_.value(decision, alpha, source)

    def value_curve(
        self,
        decision: Decision | None = None,
        alpha: float = 0.05,
        source: Source = "both",
    ) -> pd.DataFrame:
        """Estimates the value of treating the best share, with a simultaneous band.

        Returns:
          A DataFrame with lower, upper, bound_lower and bound_upper by share treated.
        """
        return self.population_.value_curve(decision, alpha, source)

    def average_groups(
        self,
        rows: Any,
        weights: Any,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
    ) -> pi.AverageInterval:
        """Computes `average` for several groups of the same people at once.

        Weights are [num_groups, number of rows], and every field of what is returned
        [num_groups]; each interval holds by itself.
        """
        return self.predict(rows).average_groups(weights, alpha, estimand)

    def atoms(self, rows: Any) -> pd.DataFrame:
        """Estimates the six probabilities of each person.

        Returns:
          A DataFrame with mu0, mu1 (the chance of the outcome untreated and treated)
          and p00, p01, p10, p11 (choice x and outcome y), with the index of `rows`.
        """
        return self.predict(rows).atoms()

    def compatibility(self) -> Compatibility:
        """Returns the test of whether the two tables contradict each other."""
        return self.summary_.compatibility
