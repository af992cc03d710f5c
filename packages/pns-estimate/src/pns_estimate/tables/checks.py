"""Checks a statistician would make: are tables and columns what they are taken for?

Balance of the trial is tested at 0.001, by `pi.check_assignment`; all other rules are such
that chance alone hardly meets them.
"""

import re

import numpy as np
import pandas as pd
import pns_infer as pi
from jaxtyping import Float, Int

from pns_estimate._errors import UserError
from pns_estimate.tables.columns import Covariate, copies_of
from pns_estimate.tables.training_data import EncodedTable, TrainingData, choose_rows

_UNBALANCED = 0.001  # p-value below which covariates predict the arm
_BALANCED = 0.05  # p-value above which a log looks like a trial
_FEW_IN_ARM = 30
_FEW_OUTCOMES = 10  # people of an arm with the outcome, or without it
_RARE_RATIO = 50  # people that one table has so many times less often than the other
_MOST_ALONE = 0.1  # share of a table whose like the other table hardly has
_LEAST_RANGE = 100  # rows whose range is taken for that of a table
_COMPARED_ROWS = 20_000  # of each table
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?")
_ID_NAME = re.compile(
    r"(.*[_ .-])?(id|uuid|index|key|rownum)|unnamed: \d+", re.IGNORECASE
)


class TableWarning(UserWarning):
    """Tables or columns may not be what they are taken for."""


def find_problems(
    tables: tuple[pd.DataFrame, pd.DataFrame],
    data: TrainingData,
    trial: pi.AssignmentCheck,
) -> list[str]:
    """Looks for tables and columns that are not what they are taken for.

    Args:
      tables: as they were given, the observational one first.
      data: both, encoded.
      trial: how the trial assigned.

    Returns:
      Sentences for the user.

    Raises:
      UserError: if both tables are the same.
    """
    copies = [copies_of(table) for table in tables]
    problems = [
        *_find_shared_rows(data, *copies),
        *_find_swap(data, trial),
        *_find_poor_overlap(data, copies),
        *_find_rare(data),
    ]
    sizes = [int(part.sum()) for part in copies]
    for covariate in data.encoder.covariates:
        parts = [table[covariate.column] for table in tables]
        problem = _suspect_column(covariate, parts, sizes)
        if problem is not None:
            problems.append(problem)
    return problems


def _find_shared_rows(
    data: TrainingData,
    log_copies: Int[np.ndarray, " n"],
    trial_copies: Int[np.ndarray, " m"],
) -> list[str]:
    """Raises if the tables are one; says if one holds rows of the other.

    Two different people may agree in everything. How often they do is seen within the
    trial, and by Jensen's inequality bounds how often a row of it is found in the log.
    """
    tables, copies = list(data.tables.values()), (log_copies, trial_copies)
    num_log, num_trial = (int(part.sum()) for part in copies)
    if num_log == num_trial >= 20:
        log, trial = (_hash_rows(table, table.weights) for table in tables)
        is_same = np.array_equal(log, trial)
        if num_log >= 200:
            is_same = is_same or np.array_equal(np.sort(log), np.sort(trial))
        if is_same:
            raise UserError(
                "both tables hold the same rows; give the people who chose as the "
                "observational table, and those assigned at random as the experimental one."
            )
    per_row = [t.weights / n for t, n in zip(tables, copies, strict=True)]
    are_cells = data.weights_are == "frequency" and any((w != 1).any() for w in per_row)
    if are_cells or num_trial < 20:
        return []  # cells recur
    log, trial = (_hash_rows(t, w) for t, w in zip(tables, per_row, strict=True))
    group = np.unique(trial, return_inverse=True)[1]
    count = np.bincount(group, trial_copies)  # of the rows that agree in everything
    pairs = 1 + np.sum(count * (count - 1)) / 2
    chance = pairs / (num_trial * (num_trial - 1) / 2)
    expected = 1 - np.exp(-chance * num_log)
    found = float(np.average(np.isin(trial, log), weights=trial_copies))
    if found < 0.2 or found < 4 * expected:
        return []
    problem = (
        f"{found:.0%} of the rows of the experimental table are in the observational "
        "one, too; people of the trial do not belong in the log."
    )
    return [problem]


def _hash_rows(table: EncodedTable, weights: Float[np.ndarray, " n"]) -> np.ndarray:
    columns = np.column_stack([*table[:3], weights])
    return pd.util.hash_pandas_object(pd.DataFrame(columns), index=False).to_numpy()


def _find_swap(data: TrainingData, trial: pi.AssignmentCheck) -> list[str]:
    if trial.balance.p_value >= _UNBALANCED:
        return []
    z, x, _, weights = data.tables["observational"]
    residual = x - np.average(x, weights=weights)
    copies = weights if data.weights_are == "frequency" else None
    log = pi.score_test(residual, np.asarray(z, float), weights, copies=copies)
    if log.p_value < _BALANCED or not 0 < x.mean() < 1:
        return []
    problem = (
        "the tables may be swapped: covariates predict the treatment in the experimental "
        f"table (p = {trial.balance.p_value:.1g}), and not in the observational one (p = "
        f"{log.p_value:.2f})."
    )
    return [problem]


def _find_poor_overlap(
    data: TrainingData, copies: list[Int[np.ndarray, " n"]]
) -> list[str]:
    """Says whether a table has people whose like the other hardly has.

    By the ratio of the covariates' densities, and by the range of each covariate.
    """
    rng = np.random.default_rng(0)
    parts = [
        _some_rows(rng, table, number)
        for table, number in zip(data.tables.values(), copies, strict=True)
    ]
    z = np.concatenate([part[0] for part in parts])
    deviation = z.std(axis=0)
    z = (z - z.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    counts = [part[1] / part[1].mean() for part in parts]
    size = len(counts[0])
    ours = np.concatenate([counts[0], np.zeros(len(counts[1]))])
    theirs = np.concatenate([np.zeros(size), counts[1]])
    chance = pi.experimental_chance(rng, z, ours, theirs)
    tiny = np.finfo(float).tiny
    log_ratio = np.log(chance + tiny) - np.log(1 - chance + tiny)
    log_ratio += np.log(size / len(counts[1]))  # density of the trial over the log's
    problems = []
    for part, sign, name, other in (
        (slice(None, size), -1, "observational", "experimental"),
        (slice(size, None), 1, "experimental", "observational"),
    ):
        weights = (ours + theirs)[part]
        is_alone = sign * log_ratio[part] > np.log(_RARE_RATIO)
        alone = float(np.average(is_alone, weights=weights))
        rest = z[size:] if sign < 0 else z[:size]
        if len(rest) >= _LEAST_RANGE:
            is_outside = (z[part] < rest.min(axis=0)) | (z[part] > rest.max(axis=0))
            outside = np.average(is_outside, axis=0, weights=weights)
            alone = max(alone, float(outside.max()))
        if alone > _MOST_ALONE:
            problems.append(
                f"{alone:.0%} of the {name} table are people whose like the {other} "
                f"table hardly has; they differ most in {_differs_most(data, z, size)}; "
                "what is said of them rests on the networks."
            )
    return problems


def _some_rows(
    rng: np.random.Generator, table: EncodedTable, copies: Int[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, " m"]]:
    rows = choose_rows(rng, copies, _COMPARED_ROWS)
    return np.asarray(table.z[rows], float), (table.weights / copies)[rows]


def _differs_most(data: TrainingData, z: Float[np.ndarray, "n d"], size: int) -> str:
    """Names the covariate whose standardized means differ most."""
    difference = np.abs(z[:size].mean(axis=0) - z[size:].mean(axis=0))
    place = int(difference.argmax())
    for covariate in data.encoder.covariates:
        place -= covariate.indicator + max(len(covariate.levels), 1)
        if place < 0:
            return repr(covariate.column)
    raise AssertionError("every column of z belongs to a covariate")


def _find_rare(data: TrainingData) -> list[str]:
    problems = []
    for name, table in data.tables.items():
        for arm, value in enumerate((data.treatment.zero, data.treatment.one)):
            chosen = table.x == arm
            people = table.weights[chosen].sum()
            label = f"{data.treatment.column} = {value}"
            if people < _FEW_IN_ARM:
                problems.append(
                    f"the {name} table has only {people:.0f} people with {label}."
                )
                continue
            if name == "observational":
                continue  # its frequencies need not be precise in each arm
            with_it = table.weights[chosen & (table.y == 1)].sum()
            for count, outcome in (
                (with_it, data.outcome.one),
                (people - with_it, data.outcome.zero),
            ):
                if count < _FEW_OUTCOMES:
                    problems.append(
                        f"of the {people:,.0f} people with {label} in the {name} table "
                        f"only {count:.0f} have {data.outcome.column} = {outcome}; "
                        "intervals rest on normal approximations, which are poor for so "
                        "few."
                    )
    return problems


def _suspect_column(
    covariate: Covariate, parts: list[pd.Series], sizes: list[int]
) -> str | None:
    """Says whether a covariate looks like a date or an identifier.

    Args:
      covariate: the column.
      parts: its values in each table.
      sizes: rows that each table stands for.
    """
    name = covariate.column
    if covariate.kind == "category":
        if all(_DATE.fullmatch(level) for level in covariate.levels):
            return (
                f"the covariate {name!r} holds dates, and each date is a category of its "
                "own; give a number, such as days since a first date, or leave it out."
            )
        return None
    values = pd.concat([part.dropna() for part in parts]).to_numpy(float)
    different = np.unique(values)
    if len(different) < 20 or not np.all(different == np.round(different)):
        return None
    if _are_dates(different):
        return (
            f"the covariate {name!r} looks like dates written as numbers, such as "
            f"{different[0]:.0f}; give days since a first date, or leave it out."
        )
    is_distinct = [len(part) for part in parts] == sizes and all(
        part.dropna().is_unique for part in parts
    )
    is_named = _ID_NAME.fullmatch(str(name)) is not None
    is_ordered = is_distinct and all(
        part.is_monotonic_increasing or part.is_monotonic_decreasing for part in parts
    )
    is_dense = np.ptp(different) < 2 * max(sizes)
    is_huge = np.abs(different).max() > 1e9
    is_mostly_distinct = len(different) > 0.5 * max(sizes)
    if (is_distinct and (is_ordered or is_dense or is_huge)) or (
        is_named and is_mostly_distinct
    ):
        return (
            f"the covariate {name!r} looks like an identifier: its values are whole "
            "numbers that hardly repeat; leave it out of covariates."
        )
    return None


def _are_dates(different: np.ndarray) -> bool:
    """Tells whether all numbers read as year, month and day: 20240131."""
    if different[0] < 19000101 or different[-1] > 21001231:
        return False
    text = pd.Series(different.astype(int).astype(str))
    return bool(pd.to_datetime(text, format="%Y%m%d", errors="coerce").notna().all())
