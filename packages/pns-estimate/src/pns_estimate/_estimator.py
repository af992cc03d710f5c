"""The front door: two tables in, an interval for every person out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pns_infer as pi
import pns_models as pm

from pns_estimate._assignment import check_trial, split_assignment
from pns_estimate._columns import Missing, Unseen
from pns_estimate._decisions import Decision, decide
from pns_estimate._draws import Draws
from pns_estimate._errors import NotFittedError, UserError
from pns_estimate._files import read_table
from pns_estimate._fitting import fit_method
from pns_estimate._held_out_rows import HeldOutRows, collect_held_out_rows
from pns_estimate._population import (
    Population,
    SortedPeople,
    Source,
    make_population,
)
from pns_estimate._prediction import EstimandLike, Prediction, Side, Target
from pns_estimate._question import Question
from pns_estimate._report import write_report
from pns_estimate._saving import FittedState, load_state, save_state
from pns_estimate._strata import run_compatibility_test
from pns_estimate._summary import FitSummary, summarize_fit
from pns_estimate._training_data import Roles, WeightsAre, read_training_data
from pns_estimate.methods import get_method

_SETTINGS = ("method", "num_draws", "seed", "missing", "unseen")


class PnsEstimator:
    """Bounds, for every person, the probability that the treatment makes the difference.

    Args:
      method: a name from `pns_estimate.METHODS`: 'crossfit', 'epinet', 'ensemble',
        'bootstrap_full', 'bootstrap_last_layer', or 'plug_in', which corrects nothing and
        gives no coverage; or one of your own, see `register_method`.
      num_draws: draws behind each interval; a bootstrap has its own number.
      seed: decides all randomness.
      missing: covariates without a value: 'error', or 'indicator' columns.
      unseen: categories that are not in the training tables: 'error', or 'unknown'.
      calibrate: scale the draws by the largest factor that fits held-out people (within
        the 95% interval of its profile); 'crossfit' is calibrated by itself, and so are
        'epinet' and 'ensemble' where people share covariates.
      recipe: the method's settings; its own defaults if None.
      progress: show a bar while fitting, if there is a terminal.
    """

    def __init__(
        self,
        method: str = "crossfit",
        *,
        num_draws: int = 2000,
        seed: int = 0,
        missing: Missing = "error",
        unseen: Unseen = "error",
        calibrate: bool = True,
        recipe: Any = None,
        progress: bool = True,
    ):
        """Stores the settings."""
        self.method = method
        self.num_draws = int(num_draws)
        self.seed = int(seed)
        self.missing: Missing = missing
        self.unseen: Unseen = unseen
        self.calibrate = calibrate
        self.recipe = recipe
        self.progress = progress
        self._state: FittedState | None = None
        self._people: pd.DataFrame | None = None
        self._population: Population | None = None
        self._held_out_rows: HeldOutRows | None = None

    def fit(
        self,
        observational: Any,
        experimental: Any,
        *,
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None = None,
        weights: str | None = None,
        weights_are: WeightsAre = "frequency",
        groups: str | None = None,
        treatment_reference: Any = None,
        outcome_reference: Any = None,
        assignment: float | str | None = None,
    ) -> "PnsEstimator":
        """Learns from two tables over the same population.

        Args:
          observational: people who chose for themselves: a DataFrame, or a path to CSV
            or Parquet.
          experimental: people assigned at random.
          treatment: the column with the treatment, two values.
          outcome: the column with the outcome, two values.
          covariates: columns that describe people; all that the tables share if None,
            and then the tables must have the same columns.
          weights: a column of positive weights in both tables; they need not be whole.
          weights_are: 'frequency': a row of weight w counts as w people. 'sampling': a
            row stands for w people of the population, and is one person; weights of a
            table are scaled to add up to its effective sample size.
          groups: a column of one table or both, such as households; people of one group
            are held out together. Draws take rows as independent all the same.
          treatment_reference: the value that means "not treated"; needed unless values
            are 0 and 1, or booleans.
          outcome_reference: the value that means "did not happen".
          assignment: the chance of the treated arm in the trial: a number, or a column of
            the experimental table if it was stratified; the arms' shares if None. It
            is tested against the arms, and enters averages.

        Returns:
          The estimator itself.
        """
        self._check_settings()
        method = get_method(self.method)
        # Nothing is kept before all of it worked: a fit that fails changes nothing.
        first, second, probability = split_assignment(
            read_table(observational, "observational"),
            read_table(experimental, "experimental"),
            assignment,
        )
        data = read_training_data(
            first,
            second,
            Roles(
                treatment,
                outcome,
                weights,
                weights_are,
                groups,
                treatment_reference,
                outcome_reference,
            ),
            covariates,
            self.missing,
            self.unseen,
            self.seed,
        )
        trial = check_trial(data, probability)
        counts = data.counts()
        key = jax.random.key(self.seed)
        recipe = method.recipe if self.recipe is None else self.recipe
        fit = fit_method(
            key, counts, method, recipe, self.calibrate, self.progress, data.groups
        )
        squares = data.squared_weights()
        compatibility = run_compatibility_test(
            jax.random.fold_in(key, 1),
            pm.merge_counts(counts),
            fit.learned.standardizer,
            None if squares is None else pm.merge_counts(squares),
        )
        self._state = FittedState(
            encoder=data.encoder,
            sampler=fit.sampler,
            sample_size=float(sum(np.sum(part) for part in counts[1:])),
            summary=summarize_fit(data, fit, method, compatibility, self.seed),
        )
        self._people = data.people
        self._held_out_rows = collect_held_out_rows(data, fit.learned)
        self._population = make_population(
            (first, second), data, self._held_out_rows, trial
        )
        return self

    @property
    def summary_(self) -> FitSummary:
        """What the report shows of data and fit, as plain values."""
        return self._fitted().summary

    @property
    def sample_size_(self) -> float:
        """Number of units behind the estimates, both tables together."""
        return self._fitted().sample_size

    @property
    def held_out_rows_(self) -> HeldOutRows | None:
        """Every row of the tables with its held-out answer.

        None for a method that does not hold every row out once, and for a loaded model.
        """
        self._fitted()
        return self._held_out_rows

    def predict(self, rows: Any) -> Prediction:
        """Prepares people to ask about; see `Prediction` for the questions.

        Each draw is made once, however many questions are asked. The methods below ask
        one question of a prediction of their own.

        Args:
          rows: people with the covariates of training; a DataFrame or a path.
        """
        state = self._fitted()
        table = read_table(rows, "prediction")
        z, is_outside = state.encoder.encode(table, "prediction")
        first, place = pm.group_rows(z)
        z = z[first]
        key = jax.random.fold_in(jax.random.key(self.seed), 2)
        return Prediction(
            people=table[state.encoder.columns],
            z=z,
            place=place,
            is_outside=is_outside,
            sampler=state.sampler,
            draws=Draws(state.sampler, key, z, self.num_draws),
            sample_size=state.sample_size,
        )

    def intervals(
        self,
        rows: Any,
        alpha: float = 0.05,
        target: Target = "set",
        estimand: EstimandLike = "pns",
    ) -> pd.DataFrame:
        """Computes an interval for each person.

        Args:
          rows: people with the covariates of training; a DataFrame or a path.
          alpha: the probability of missing.
          target: 'set': an interval covers the identified set, all values the data
            cannot exclude; 'parameter': the true value alone, and is narrower.
          estimand: a name from `pns_bounds.ESTIMANDS`, such as 'pns', 'harm', 'pn' or
            'ps'; or a `pns_bounds.Estimand`.

        Returns:
          A DataFrame with the index of `rows`:
            lower, upper: the interval.
            bound_lower, bound_upper: half-median-unbiased estimates of the sharp bounds.
            binding_lower, binding_upper: the term that attains each end.
            is_empty: whether the ends cross, so that no value fits.
            is_outside: whether a covariate lies outside what training saw.
        """
        return self.predict(rows).intervals(alpha, target, estimand)

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
          Booleans with the index of `rows`. With probability 1 - alpha nobody is marked
          wrongly.
        """
        return self.predict(rows).threshold_set(threshold, alpha, estimand)

    @property
    def has_population(self) -> bool:
        """Whether `population_` is there: right after a fit by 'crossfit'."""
        return self._population is not None

    @property
    def population_(self) -> Population:
        """The people of the tables, to ask for averages; see `Population`."""
        self._fitted()
        if self._population is None:
            raise UserError(
                "only the method 'crossfit', right after fit, knows the people of the "
                "tables: a loaded model has none, and other methods do not hold everybody "
                "out; give rows to average over."
            )
        return self._population

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
          A DataFrame with lower, upper, bound_lower and bound_upper.
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
          A DataFrame with people, lower, upper, bound_lower and bound_upper; without
          numbers for a group that lacks people of the log or of an arm.
        """
        return self.population_.subgroups(columns, alpha, estimand, source)

    def sorted_groups(
        self, num_groups: int = 5, alpha: float = 0.05, source: Source = "both"
    ) -> SortedPeople:
        """Averages people sorted by predicted benefit, on people networks did not see.

        Args:
          num_groups: of equal size.
          alpha: the probability that any interval misses.
          source: as for `average`.
        """
        return self.population_.sorted_groups(num_groups, alpha, source)

    def decide(
        self, rows: Any, decision: Decision | None = None, alpha: float = 0.05
    ) -> pd.DataFrame:
        """Recommends whom to treat.

        Args:
          rows: people with the covariates of training.
          decision: gains, cost, budget and criterion.
          alpha: the probability that a person's interval misses.

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

        Args:
          rows: people with the covariates of training.
          weights: [num_groups, number of rows], not negative.
          alpha: the probability of missing, for each group.
          estimand: as for `intervals`.

        Returns:
          Every field is [num_groups].
        """
        return self.predict(rows).average_groups(weights, alpha, estimand)

    def atoms(self, rows: Any) -> pd.DataFrame:
        """Estimates the six probabilities of each person.

        Returns:
          A DataFrame with mu0, mu1 (the chance of the outcome untreated and treated)
          and p00, p01, p10, p11 (choice x and outcome y), with the index of `rows`.
        """
        return self.predict(rows).atoms()

    def compatibility(self) -> dict[str, Any]:
        """Returns the test of whether the two tables contradict each other.

        The keys are p_value, strata, and, of the worst inequality, constraint, slack and
        statistic (standard errors by which it is violated).
        """
        return dict(self.summary_.compatibility)

    def report(
        self,
        path: Any,
        rows: Any = None,
        alpha: float = 0.05,
        decision: Decision | None = None,
        *,
        estimand: EstimandLike = "pns",
        target: Target = "set",
        threshold: float | None = None,
        outcome_is_bad: bool | None = None,
        summary_path: Any = None,
    ) -> None:
        """Writes one self-contained HTML file.

        Args:
          path: the file to write.
          rows: the people to report on; a sample of the training people if None.
          alpha: for all intervals in it.
          decision: whom to treat, if the report shall say.
          estimand: as for `intervals`; PNS and harm are shown beside it.
          target: as for `intervals`.
          threshold: count who surely exceeds it; None for the curve alone.
          outcome_is_bad: whether nobody wants the outcome, which decides what is called
            benefit and harm; None uses neither word.
          summary_path: where to write the numbers of the page as JSON, if anywhere.
        """
        self._fitted()
        if rows is None and self._people is None:
            raise UserError(
                "a loaded model has no people of its own: give rows to report on."
            )
        own = "a sample of the people of both tables"
        question = Question(
            estimand,
            target,
            alpha,
            threshold,
            outcome_is_bad,
            own if rows is None else "the rows given",
        )
        question.check()
        prediction = self.predict(self._people if rows is None else rows)
        write_report(
            Path(path),
            prediction,
            self.summary_,
            question,
            self._population,
            decision,
            None if summary_path is None else Path(summary_path),
        )

    def save(self, folder: Any) -> None:
        """Writes the estimator to a new folder; no training data are in it."""
        settings = {name: getattr(self, name) for name in _SETTINGS}
        save_state(Path(folder), settings, self._fitted())

    @classmethod
    def load(cls, folder: Any) -> "PnsEstimator":
        """Reads what `save` wrote; answers are bit for bit the same."""
        settings, state = load_state(Path(folder))
        estimator = cls(**settings)
        estimator._state = state
        return estimator

    def _check_settings(self) -> None:
        for name, value, known in (
            ("missing", self.missing, ("error", "indicator")),
            ("unseen", self.unseen, ("error", "unknown")),
        ):
            if value not in known:
                raise UserError(f"{name} must be one of {list(known)}, got {value!r}.")
        if self.num_draws < 200:
            raise UserError(f"num_draws must be at least 200, got {self.num_draws}.")

    def _fitted(self) -> FittedState:
        if self._state is None:
            raise NotFittedError("call fit(...) first, or PnsEstimator.load(folder).")
        return self._state
