"""Everything about two tables that can be checked before anything is learned."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm

from pns_estimate._errors import Setting, UserError, as_user_errors
from pns_estimate.methods import get_method
from pns_estimate.tables.checks import TableWarning, find_problems, suspect_column
from pns_estimate.tables.columns import (
    find_two_values,
    make_covariate,
    make_encoder,
)
from pns_estimate.tables.readers import Frame, Stream, as_table, open_table
from pns_estimate.tables.roles import (
    Roles,
    WeightsAre,
    choose_covariates,
    number_groups,
)
from pns_estimate.tables.rows import Meaning, TrainingRows, find_parts, read_rows

_NUM_FOLDS = 5  # of the comparison of sources, for methods with fewer
_TOO_FEW = {
    False: "there are too few people to learn from: some of both tables are held out to "
    "judge the fit; give larger tables, or smaller groups.",
    True: "there are too few rows for cross-fitting: each fold needs rows of the "
    "observational table and of both arms of the experimental one; give larger tables, "
    "smaller groups, fewer folds in the recipe, or another method.",
}


@contextmanager
def few_rows_as_user_error() -> Iterator[None]:
    """Says in the words of the front door that there are too few rows."""
    try:
        yield
    except pm.TooFewRowsError as error:
        raise UserError(_TOO_FEW[error.part == "fold"]) from error


class PreparedTables(NamedTuple):
    """Two tables that a method can learn from.

    Attributes:
      read: their rows, and who they are.
      meaning: what values of the columns mean.
      weights_are: what weights mean; None if there are none.
      trial: how the trial assigned.
      comparison: of the sources' covariates.
      problems: why tables and columns may not be what they are taken for.
    """

    read: TrainingRows
    meaning: Meaning
    weights_are: WeightsAre | None
    trial: pi.AssignmentCheck
    comparison: pi.SourceComparison
    problems: list[str]

    @property
    def rows(self) -> pm.Rows:
        """Rows of all sources, with folds."""
        return self.read.rows


def prepare_tables(
    tables: Mapping[str, Any],
    roles: Roles,
    covariates: Sequence[str] | None,
    settings: Mapping[str, Any],
    memory_gb: float = 4.0,
) -> PreparedTables:
    """Reads, checks and encodes tables, and deals their rows to folds; warns of problems.

    Args:
      tables: DataFrames, paths or streams by name of the source, see `pm.SOURCES`.
      roles: what columns mean.
      covariates: as for `PnsEstimator.fit`.
      settings: of the estimator, checked.
      memory_gb: as for `PnsEstimator.fit`.
    """
    method = get_method(settings["method"])
    recipe = method.recipe if settings["recipe"] is None else settings["recipe"]
    opened: list[Frame | Stream] = [
        as_table(
            open_table(tables[s.name], s.name, memory_gb, settings["progress"]), s.name
        )
        for s in pm.SOURCES
    ]
    roles.check()
    _check_streams(opened, roles)
    meaning, suspects = _learn(opened, roles, covariates, settings)
    groups = None if roles.groups is None else number_groups(opened, roles.groups)
    part = find_parts(opened, meaning.treatment)
    _check_arms(part, meaning)
    key = jax.random.key(int(settings["seed"]))
    with few_rows_as_user_error():
        fold = method.deal(key, part, groups, recipe)
    read = read_rows(
        opened, roles, meaning, fold, groups, int(settings["seed"]), memory_gb
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pi.AssignmentWarning)
        trial = _check_trial(read.rows, roles)
    comparison = compare(read.rows)
    found = [pi.AssignmentWarning(str(w.message)) for w in caught]
    told = find_problems(read, meaning, roles, trial, comparison)
    found += [TableWarning(text) for text in [*told, *suspects]]
    for warning in found:
        warnings.warn(warning, stacklevel=3)
    return PreparedTables(
        read,
        meaning,
        None if roles.weights is None else roles.weights_are,
        trial,
        comparison,
        [str(w) for w in found],
    )


def _check_streams(tables: Sequence[Frame | Stream], roles: Roles) -> None:
    if roles.groups is not None and any(isinstance(t, Stream) for t in tables):
        raise UserError(
            Setting("groups"),
            " needs tables that fit into memory, not streams; give a sample of the rows "
            "as one file.",
        )
    if roles.assignment_column is None:
        return
    for source, table in zip(pm.SOURCES, tables, strict=True):
        if source.role == "trial" and roles.assignment_column not in table.columns:
            raise UserError(
                f"the {table.name} table has no column {roles.assignment_column!r} of "
                "assignment probabilities."
            )


def _learn(
    tables: Sequence[Frame | Stream],
    roles: Roles,
    covariates: Sequence[str] | None,
    settings: Mapping[str, Any],
) -> tuple[Meaning, list[str]]:
    """Finds out what values mean, one column after the other."""
    chosen = choose_covariates(tables, roles, covariates)
    two = {
        role: find_two_values(
            [table.column(column) for table in tables], column, role, reference
        )
        for role, column, reference in (
            ("treatment", roles.treatment, roles.treatment_reference),
            ("outcome", roles.outcome, roles.outcome_reference),
        )
    }
    learned, suspects = [], []
    for column in chosen:
        parts = [table.column(column) for table in tables]
        learned.append(make_covariate(parts, column, settings["missing"]))
        suspects += suspect_column(learned[-1], parts)
    encoder = make_encoder(learned, settings["unseen"])
    return Meaning(two["treatment"], two["outcome"], encoder), suspects


def _check_arms(part: np.ndarray, meaning: Meaning) -> None:
    arms = np.bincount(part, minlength=1 + pb.BINARY.num_treatments)[1:]
    if arms.min() == 0:
        treatment = meaning.treatment
        absent = (treatment.zero, treatment.one)[int(arms.argmin())]
        raise UserError(
            f"the experimental table has nobody with {treatment.column} = {absent!r}; an "
            "experiment needs both arms."
        )


def _check_trial(rows: pm.Rows, roles: Roles) -> pi.AssignmentCheck:
    """Reads the probability of the treated arm and tests it against the trial."""
    trial = rows.take(rows.is_trial)
    assignment = roles.assignment
    if roles.assignment_column is not None:
        assignment = trial.assignment
    with as_user_errors():
        return pi.check_assignment(
            trial.treatment,
            trial.z,
            assignment,
            trial.weights,
            cluster_of(trial),
            trial.copies if trial.group is None else None,
        )


def compare(rows: pm.Rows) -> pi.SourceComparison:
    """Compares the covariates of the sources, once for everything that asks."""
    fold = rows.fold
    if fold is None or fold.max() < 2:  # one part is held out: too unequal here
        fold = np.arange(len(rows.z)) % _NUM_FOLDS
    return pi.compare_sources(
        rows.z,
        rows.is_trial,
        fold,
        rows.weights,
        cluster_of(rows),
        rows.copies if rows.group is None else None,
    )


def cluster_of(rows: pm.Rows) -> np.ndarray | None:
    """Numbers the groups of rows from 0; None if rows are independent."""
    if rows.group is None:
        return None
    return np.unique(rows.group, return_inverse=True)[1]
