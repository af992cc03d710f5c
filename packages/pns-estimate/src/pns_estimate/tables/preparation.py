"""Everything about two tables that can be checked before anything is learned."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pns_infer as pi
import pns_models as pm
from jaxtyping import Int

from pns_estimate._errors import Setting, UserError, as_user_errors, require
from pns_estimate.methods import get_method
from pns_estimate.tables.checks import (
    TableWarning,
    find_copied_rows,
    find_problems,
    suspect_column,
)
from pns_estimate.tables.columns import (
    TwoValues,
    as_numbers,
    find_two_values,
    make_covariate,
    make_encoder,
)
from pns_estimate.tables.readers import Frame, Stream, open_table, require_columns
from pns_estimate.tables.rows import (
    Meaning,
    Roles,
    TrainingRows,
    WeightsAre,
    find_parts,
    read_rows,
)

_MOST_NAMED = 8  # columns in a message
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
    """Two tables that a method can learn from."""

    read: TrainingRows  # their rows, and who they are
    meaning: Meaning  # what values of the columns mean
    weights_are: WeightsAre | None  # what weights mean; None if there are none
    trial: pi.AssignmentCheck  # how the trial assigned
    comparison: pi.SourceComparison  # of the sources' covariates
    problems: list[str]  # why tables and columns may not be what they are taken for

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

    Tables are by name of the source, see `pm.SOURCES`; settings are the estimator's.
    """
    method = get_method(settings["method"])
    recipe = method.recipe if settings["recipe"] is None else settings["recipe"]
    opened: list[Frame | Stream] = [
        open_table(tables[s.name], s.name, memory_gb, settings["progress"])
        for s in pm.SOURCES
    ]
    roles.check()
    _check_streams(opened, roles)
    meaning, suspects = _learn(opened, roles, covariates, settings)
    groups = None if roles.groups is None else _number_groups(opened, roles.groups)
    part = find_parts(opened, meaning.treatment)
    _check_arms(part, meaning.treatment)
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
    found: list[Warning] = [pi.AssignmentWarning(str(w.message)) for w in caught]
    told = find_problems(read, meaning, roles, trial, comparison)
    found += [TableWarning(text) for text in [*told, *suspects]]
    # Copies come first: the other tests take rows as independent.
    found[:0] = [TableWarning(text) for text in find_copied_rows(read, roles)]
    for warning in found:
        warnings.warn(warning, stacklevel=3)
    weights_are = None if roles.weights is None else roles.weights_are
    problems = [str(warning) for warning in found]
    return PreparedTables(read, meaning, weights_are, trial, comparison, problems)


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
    chosen = _choose_covariates(tables, roles, covariates)
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
        if learned[-1].kind == "number":  # some may be text
            parts = [part._replace(values=as_numbers(part.values)) for part in parts]
        suspects.append(suspect_column(learned[-1], parts))
    encoder = make_encoder(learned, settings["unseen"])
    return Meaning(two["treatment"], two["outcome"], encoder), [*filter(None, suspects)]


def _choose_covariates(
    tables: Sequence[Frame | Stream], roles: Roles, covariates: Sequence[str] | None
) -> list[str]:
    """Returns the covariates' names; raises unless all columns are there as they should."""
    special = [*roles.columns, roles.groups, roles.assignment_column, roles.id]
    for table in tables:
        require_columns(table, roles.columns)
    is_list = not isinstance(covariates, str)
    require(is_list, "covariates", "a list of names", covariates)
    if covariates is not None:
        chosen = list(covariates)
        both = [column for column in chosen if column in special]
        if both:
            raise UserError(f"{both} cannot be covariates: they have another role.")
        if len(set(chosen)) < len(chosen):
            raise UserError("covariates name a column twice.")
    else:
        own = [[c for c in table.columns if c not in special] for table in tables]
        shared = set.intersection(*map(set, own))
        _tell_unshared(tables, own, shared)
        chosen = sorted(shared, key=str)
    for table in tables:
        require_columns(table, chosen)
    return chosen


def _tell_unshared(
    tables: Sequence[Frame | Stream], own: Sequence[Sequence[str]], shared: set[str]
) -> None:
    """Warns of columns that are left out because one table lacks them."""
    parts = []
    for table, columns in zip(tables, own, strict=True):
        alone = [repr(column) for column in columns if column not in shared]
        if len(alone) > _MOST_NAMED:
            alone = [*alone[:_MOST_NAMED], f"{len(alone) - _MOST_NAMED:,} more"]
        if alone:
            parts.append(f"{', '.join(alone)} of the {table.name} table")
    if parts:
        problem = f"left out, because the other table lacks them: {'; '.join(parts)}."
        warnings.warn(TableWarning(problem), stacklevel=6)


def _number_groups(
    tables: Sequence[Frame | Stream], column: str
) -> Int[np.ndarray, " n"]:
    """Numbers the groups of all rows; rows of a table without the column are alone."""
    labelled = [table for table in tables if column in table.columns]
    if not labelled:
        raise UserError(f"no table has the column {column!r} of groups.")
    parts = [table.column(column) for table in labelled]
    for part in parts:
        if part.num_missing:
            raise UserError(
                f"the groups {column!r} of the {part.table} table are missing in "
                f"{part.num_missing} rows; complete them, or give each such row a group "
                "of its own."
            )
    labels = [part.values.astype(object) for part in parts]
    codes, names = pd.factorize(pd.concat(labels, ignore_index=True))
    if len(labelled) == len(tables) and len(names) == 1:
        raise UserError(
            f"all people are in one group of {column!r}: nobody would be left to learn "
            "from while the group is held out."
        )
    is_labelled = np.repeat(
        [table in labelled for table in tables], [table.num_rows() for table in tables]
    )
    numbers = len(names) + np.cumsum(~is_labelled) - 1
    numbers[is_labelled] = codes
    return numbers


def _check_arms(part: np.ndarray, treatment: TwoValues) -> None:
    for arm, value in enumerate((treatment.zero, treatment.one), start=1):
        if not np.any(part == arm):
            raise UserError(
                f"the experimental table has nobody with {treatment.column} = {value!r}; "
                "an experiment needs both arms."
            )


def _check_trial(rows: pm.Rows, roles: Roles) -> pi.AssignmentCheck:
    """Reads the probability of the treated arm and tests it against the trial."""
    trial = rows.take(rows.is_trial)
    assignment = roles.assignment
    if roles.assignment_column is not None:
        assignment = trial.assignment
    with as_user_errors():
        return pi.check_assignment(
            trial.treatment, trial.z, assignment, trial.weights, **_dependence(trial)
        )


def compare(rows: pm.Rows) -> pi.SourceComparison:
    """Compares the covariates of the sources, once for everything that asks."""
    fold = rows.fold
    if fold is None or fold.max() < 2:  # one part is held out: too unequal here
        fold = np.arange(len(rows.z)) % _NUM_FOLDS
    return pi.compare_sources(
        rows.z, rows.is_trial, fold, rows.weights, **_dependence(rows)
    )


def _dependence(rows: pm.Rows) -> dict[str, np.ndarray]:
    """Numbers the groups of rows from 0; of independent rows, says how many each is."""
    if rows.group is None:
        return {"copies": rows.copies}
    return {"cluster": np.unique(rows.group, return_inverse=True)[1]}
