"""The front door: two tables in, an interval for every person out."""

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import numpy as np
import pandas as pd
import pns_infer as pi
import pns_models as pm

from pns_estimate._duration import fit_steps
from pns_estimate._errors import NotFittedError, UserError
from pns_estimate._fit import fit_tables
from pns_estimate._progress import watch
from pns_estimate._settings import Settings, check_memory, check_settings
from pns_estimate._state import (
    Compatibility,
    FitSummary,
    FittedState,
    load_state,
    save_state,
)
from pns_estimate.answers.answers import Answers, Unanswered
from pns_estimate.answers.audit import Audit, run_audit
from pns_estimate.answers.files import StreamedAnswers, stream_intervals
from pns_estimate.answers.population import Population
from pns_estimate.answers.prediction import Draws, Prediction
from pns_estimate.answers.question import (
    Decision,
    EstimandLike,
    Question,
    Source,
    Target,
)
from pns_estimate.tables.checks import TableWarning
from pns_estimate.tables.columns import Missing, Unseen
from pns_estimate.tables.files import read_table
from pns_estimate.tables.preparation import PreparedTables, prepare_tables
from pns_estimate.tables.readers import Frame, Stream, open_table
from pns_estimate.tables.rows import Roles, WeightsAre

_SAVED = ("method", "num_draws", "seed", "missing", "unseen", "calibrate")
_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


def _of_rows(
    method: Callable[Concatenate[Prediction, _Asked], _Answer],
) -> Callable[Concatenate["PnsEstimator", Any, _Asked], _Answer]:
    """Makes the same method of the estimator, with rows as its first argument."""

    @functools.wraps(method)
    def ask(self: "PnsEstimator", rows: Any, *args: Any, **options: Any) -> _Answer:
        return getattr(self.predict(rows), method.__name__)(*args, **options)

    own, *others = inspect.signature(method).parameters.values()
    rows = inspect.Parameter("rows", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(ask)["__signature__"] = inspect.Signature([own, rows, *others])
    return ask


def _of_population(
    method: Callable[Concatenate[Population, _Asked], _Answer],
) -> Callable[Concatenate["PnsEstimator", _Asked], _Answer]:
    """Makes the same method of the estimator, about the people of the tables."""

    @functools.wraps(method)
    def ask(self: "PnsEstimator", *args: Any, **options: Any) -> _Answer:
        return getattr(self.population_, method.__name__)(*args, **options)

    return ask


class PnsEstimator(Settings):
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
      checkpoint_dir: a folder for the state of training; a fit that was interrupted
        there goes on, to the same result. None keeps nothing.

    Example:
      >>> import itertools
      >>> import pandas as pd
      >>> import pns_models as pm
      >>> values = list(itertools.product((0, 1), repeat=3))
      >>> log = pd.DataFrame(values, columns=["member", "offered", "bought"])
      >>> trial = log.copy()
      >>> log["people"] = [200, 50, 200, 50, 200, 50, 50, 200]
      >>> trial["people"] = [200, 50, 200, 50, 175, 75, 50, 200]
      >>> network = pm.AnchoredConfig(pm.Backbone(width=4, depth=0))
      >>> quick = {"learning_rate": 0.1, "max_steps": 100, "weight_decay": 0.0}
      >>> all_rows = {"held_out_fraction": 0.0, "patience": None, "eval_every": 100}
      >>> recipe = pm.Recipe(network, pm.TrainConfig(**quick, **all_rows))
      >>> method = "bootstrap_last_layer"  # for tables of your own keep the defaults
      >>> estimator = PnsEstimator(method, recipe=recipe, calibrate=False)
      >>> columns = {"treatment": "offered", "outcome": "bought", "weights": "people"}
      >>> estimator = estimator.fit(log, trial, **columns)
      >>> people = pd.DataFrame({"member": [0, 1]}, index=["Bo", "Ann"])
      >>> print(estimator.atoms(people)[["mu0", "mu1"]].round(2))  # 75 / 250 is 0.3
           mu0  mu1
      Bo   0.2  0.2
      Ann  0.3  0.8
      >>> print(estimator.intervals(people)[["lower", "upper"]].round(2))
           lower  upper
      Bo    0.00   0.25
      Ann   0.41   0.78
      >>> estimator.threshold_set(people, 0.3).tolist()  # for both at once
      [False, True]
      >>> [round(end, 1) for end in estimator.average(people)[:2]]
      [0.2, 0.5]
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
        checkpoint_dir: str | Path | None = None,
    ):
        """Stores the settings."""
        self.method = method
        self.num_draws = num_draws
        self.seed = seed
        self.missing: Missing = missing
        self.unseen: Unseen = unseen
        self.calibrate = calibrate
        self.recipe = recipe
        self.progress = progress
        self.checkpoint_dir = checkpoint_dir

    _state: FittedState | None = None
    _sample: pd.DataFrame | None = None  # of the people of both tables, to report on
    _population: Population | None = None

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
        memory_gb: float = 4.0,
    ) -> "PnsEstimator":
        """Learns from two tables over the same population.

        Args:
          observational: people who chose for themselves: a DataFrame, a polars or
            pyarrow table, a dictionary of NumPy arrays by column name, a structured
            array, or a path to CSV or Parquet; for tables larger than memory, a folder
            of Parquet files or a `pyarrow.dataset.Dataset`, which is streamed.
          experimental: people assigned at random.
          treatment: the column with the treatment, two values.
          outcome: the column with the outcome, two values.
          covariates: columns that describe people; all that the tables share if None,
            with a warning that names the others. Without any, the answer is that of
            plain frequencies.
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
          memory_gb: what a fit of streamed tables may take, in GB; about, and an error
            if it would take more. Memory grows with the number of rows that differ.

        Returns:
          The estimator itself.
        """
        settings = self.get_params()
        check_settings(settings)
        check_memory(memory_gb)
        roles = Roles(
            treatment,
            outcome,
            weights,
            weights_are,
            groups,
            treatment_reference,
            outcome_reference,
            assignment,
        )
        tables = {"observational": observational, "experimental": experimental}
        self._fit_prepared(
            prepare_tables(tables, roles, covariates, settings, memory_gb)
        )
        found = self.compatibility()
        if found.is_contradiction:
            warnings.warn(
                f"the two tables contradict each other (p = {found.p_value:.2g}): no single "
                "population fits both; do not rely on intervals before the reason is "
                "known. Of pairs that do not, at most about one in twenty is warned of.",
                TableWarning,
                stacklevel=2,
            )
        return self

    def _fit_prepared(self, prepared: PreparedTables) -> "PnsEstimator":
        # Nothing is kept before all of it worked: a fit that fails changes nothing.
        steps = fit_steps(self.method, self.recipe, *prepared.rows.z.shape)
        with watch(steps, show=self.progress):
            self._state, self._population = fit_tables(prepared, self.get_params())
        self._sample = prepared.read.sample
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
    def feature_names_in_(self) -> np.ndarray:
        """Names of the covariates, as scikit-learn calls them, in the order of their use."""
        return np.array(self._fitted().encoder.columns, dtype=object)

    def predict(self, rows: Any) -> Prediction:
        """Prepares people to ask about; see `Prediction` for the questions.

        Rows are people with the covariates of training: a DataFrame or a path. Each draw
        is made once, however many questions are asked. The methods below ask one
        question of a prediction of their own.
        """
        encoder, sampler, sample_size, _ = self._fitted()
        check_settings(self.get_params())
        table = read_table(rows, "prediction")
        z, is_outside = encoder.encode(table, "prediction")
        first, place = pm.distinct_rows(z)
        z = z[first]
        key = jax.random.fold_in(jax.random.key(int(self.seed)), 2)
        draws = Draws(sampler, key, z, int(self.num_draws))
        people = encoder.with_numbers(table)[encoder.columns]
        return Prediction(people, z, place, is_outside, sampler, draws, sample_size)

    intervals = _of_rows(Prediction.intervals)
    """Computes an interval for each of rows, as `Prediction.intervals`."""
    band = _of_rows(Prediction.band)
    """Computes a band for rows that holds for all at once, as `Prediction.band`."""
    threshold_set = _of_rows(Prediction.threshold_set)
    """Finds who of rows surely exceeds a threshold, as `Prediction.threshold_set`."""
    average_groups = _of_rows(Prediction.average_groups)
    """Averages several groups of rows, as `Prediction.average_groups`."""
    decide = _of_rows(Prediction.decide)
    """Recommends whom of rows to treat, as `Prediction.decide`."""
    atoms = _of_rows(Prediction.atoms)
    """Estimates the six probabilities of rows, as `Prediction.atoms`."""
    compare_averages = _of_population(Population.comparison)
    """Shows what each step adds, as `Population.comparison`."""
    subgroups = _of_population(Population.subgroups)
    """Averages subgroups of the tables' people, as `Population.subgroups`."""
    sorted_groups = _of_population(Population.sorted_groups)
    """Averages people sorted by predicted benefit, as `Population.sorted_groups`."""
    value = _of_population(Population.value)
    """Estimates what a rule gains per person, as `Population.value`."""
    value_curve = _of_population(Population.value_curve)
    """Estimates the value of treating the best share, as `Population.value_curve`."""

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
          rows: as for `predict`; the people of the tables if None.
          mask: booleans, one per row: a subgroup. Of the tables: the rows of both, the
            observational ones first; or a function of their covariates.
          weights: not negative, one per row.
          alpha: the probability of missing.
          estimand: as for `Prediction.intervals`.
          source: without rows, whose people: 'both', 'observational' or 'experimental'.
        """
        if rows is None:
            return self.population_.average(mask, weights, alpha, estimand, source)
        if source != "both":
            raise UserError(
                "source is for averages without rows; leave one of them out."
            )
        return self.predict(rows).average(mask, weights, alpha, estimand)

    def compatibility(self) -> Compatibility:
        """Returns the test of whether the two tables contradict each other."""
        return self.summary_.compatibility

    def audit(
        self,
        num_tables: int = 1,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        num_people: int = 1000,
    ) -> Audit:
        """Counts how often intervals cover on tables drawn from the fit itself.

        Log and trial are drawn from the fitted law at the covariates of the tables, with
        as many rows and the same arms, and fitted again with the same settings, which
        takes as long as `fit` for each pair. A fitted law is smoother than the real one,
        so the coverage is optimistic: a low figure is a warning, a high one is no proof.

        Args:
          num_tables: pairs of tables to draw.
          alpha: the probability of missing.
          estimand: as for `Prediction.intervals`.
          num_people: how many people of the tables to ask about, at random.

        Returns:
          An `Audit`: set coverage, also by thirds of the intervals' width and of the
          learners' disagreement, and widths beside those of the identified sets.
        """
        sampler = self._fitted().sampler
        if self._population is None:
            raise UserError(
                "an audit needs the tables, which only the method 'crossfit' keeps, right "
                "after fit; a loaded model has none: fit again and audit that."
            )
        settings = self.get_params()
        check_settings(settings)
        asked = (num_tables, alpha, estimand, num_people)
        return run_audit(self._population, sampler, settings, *asked)

    def write_intervals(
        self,
        path: Any,
        rows: Any,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        target: Target = "set",
    ) -> int:
        """Writes an interval for each person to a Parquet file, batch by batch.

        The file has the columns of `intervals`, and a row for each person in their
        order. An answer does not depend on who else is in its batch. Rows are as many as
        one likes: a folder of Parquet files, one such file, a `pyarrow.dataset.Dataset`,
        or whatever `predict` takes. Returns their number.
        """
        people = open_table(rows, "prediction", 0, self.progress)
        question = Question(estimand, target, alpha)
        return self._write_intervals(Path(path), people, question).num_rows

    def _write_intervals(
        self,
        path: Path,
        people: Frame | Stream,
        question: Question,
        csv_path: Path | None = None,
        key: str | None = None,
    ) -> StreamedAnswers:
        asked = (question.alpha, question.estimand, question.target)
        return stream_intervals(
            path,
            people,
            self._fitted().encoder,
            lambda some: self.predict(some).intervals(*asked),
            int(self.seed),
            csv_path,
            key,
        )

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

    def report(
        self,
        path: Any,
        rows: Any = None,
        decision: Decision | None = None,
        alpha: float = 0.05,
        *,
        estimand: EstimandLike = "pns",
        target: Target = "set",
        threshold: float | None = None,
        outcome_is_bad: bool | None = None,
        treatment_label: str | None = None,
        outcome_label: str | None = None,
        unit: str | None = None,
        gains_in: str | None = None,
        summary_path: Any = None,
        audit: Audit | None = None,
        subgroups: Sequence[str] | None = None,
    ) -> None:
        """Writes one self-contained HTML file, and its numbers as JSON if that is wanted.

        It is about rows, or a sample of the training people, and says whom to treat if a
        decision is given. Estimand, target, alpha, threshold, outcome_is_bad, labels, unit
        and subgroups are explained in `Question`. What `audit` found is shown if it is
        given.
        """
        question = Question(
            estimand,
            target,
            alpha,
            threshold,
            outcome_is_bad,
            treatment_label=treatment_label,
            outcome_label=outcome_label,
            unit=unit,
            gains_in=gains_in,
            subgroups=subgroups,
        )
        answers = self.answers(rows, question, decision, audit)
        # Figures are imported when they are needed: they take 30 MB.
        from pns_estimate.report.page import write_numbers, write_report

        write_report(Path(path), answers)
        if summary_path is not None:
            write_numbers(Path(summary_path), answers)

    def answers(
        self,
        rows: Any = None,
        question: Question | None = None,
        decision: Decision | None = None,
        audit: Audit | Unanswered | None = None,
    ) -> Answers:
        """Collects all that a report shows; each part is computed when it is read.

        It is about rows, or a sample of the training people if there are none.
        """
        self._fitted()
        question = question or Question()
        source: Source | None = None
        if rows is None:
            if self._sample is None:
                raise UserError(
                    "a loaded model has no people of its own: give rows to report on."
                )
            rows = self._sample
            about = "a sample of the people of both tables"
            question = dataclasses.replace(question, about=about)
            source = "both"
        people = self.predict(rows)
        asked = (question, self.summary_, people, self._population, decision, audit)
        return Answers(*asked, source)

    def save(self, folder: Any) -> None:
        """Writes the estimator to a new folder; no training data are in it."""
        settings = {name: getattr(self, name) for name in _SAVED}
        save_state(Path(folder), settings, self._fitted())

    @classmethod
    def load(cls, folder: Any) -> "PnsEstimator":
        """Reads what `save` wrote; answers are bit for bit the same.

        The recipe is not kept: it is needed for `fit` alone.
        """
        settings, state = load_state(Path(folder))
        estimator = cls(**settings)
        estimator._state = state
        return estimator

    def _fitted(self) -> FittedState:
        if self._state is None:
            raise NotFittedError("call fit(...) first, or PnsEstimator.load(folder).")
        return self._state
