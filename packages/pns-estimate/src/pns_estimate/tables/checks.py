"""Checks a statistician would make: are tables and columns what they are taken for?

Balance of the trial is tested at 0.001, by `pi.check_assignment`, and so is, twice for each
table, whether its rows are copies; chance alone rarely meets any of the other rules.
"""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float, Int

from pns_estimate._errors import UserError
from pns_estimate.tables.columns import DATE, Column, Covariate
from pns_estimate.tables.rows import Meaning, Roles, TrainingRows

_UNBALANCED = 0.001  # p-value below which covariates predict the arm
_COPIED = 0.001  # and below which rows are not independent
_BALANCED = 0.05  # p-value above which a log looks like a trial
_FEW_IN_ARM = 30
_FEW_OUTCOMES = 10  # people of an arm with the outcome, or without it
_RARE_RATIO = 50  # of densities, from which on rows are hardly comparable
_MOST_ALONE = 0.1  # share of a table with almost no comparable rows in the other
_LEAST_LABELS = 20  # values in each table; fewer may be a category of one table
_LEAST_RANGE = 100  # rows whose range is taken for that of a table
_COMPARED_ROWS = 20_000  # of each table
_ID_NAME = re.compile(
    r"(.*[_ .-])?(id|uuid|index|key|rownum)|unnamed: \d+", re.IGNORECASE
)


class TableWarning(UserWarning):
    """Tables or columns may not be what they are taken for."""


def find_problems(
    read: TrainingRows,
    meaning: Meaning,
    roles: Roles,
    trial: pi.AssignmentCheck,
    comparison: pi.SourceComparison,
) -> list[str]:
    """Says which tables are not what they are taken for; raises if both are the same."""
    return [
        *_find_shared_rows(read, roles),
        *_find_swap(read.rows, trial),
        *_find_poor_overlap(read.rows, meaning, comparison),
        *_find_rare(read.rows, meaning),
    ]


def find_copied_rows(read: TrainingRows, roles: Roles) -> list[str]:
    """Says which tables hold equal rows that independent rows cannot explain.

    What the covariates are does not matter: rows of few kinds are often equal, but how
    often varies from kind to kind. Weights that are frequencies and groups have been told
    already that rows belong together.
    """
    rows = read.rows
    if rows.group is not None or (
        roles.weights is not None and roles.weights_are == "frequency"
    ):
        return []
    _, kind = _number_kinds(rows, roles)
    _, designed = pm.distinct_rows(rows.cell, rows.treatment)
    problems = []
    for number, source in enumerate(pm.SOURCES):
        inside = rows.source == number
        sizes = np.bincount(kind, rows.copies * inside).round().astype(int)
        sizes = sizes[sizes > 0]
        times = _common_divisor(sizes, len(sizes) - len(np.unique(designed[inside])))
        found = f"each row of the {source.name} table occurs {times:,} times" + (
            ", or a multiple of that" if np.any(sizes > times) else ""
        )
        if times == 1:
            times, num_kinds = _frequent_size(sizes)
            found = (
                f"in the {source.name} table {num_kinds:,} different rows occur exactly "
                f"{times:,} times each, which is too many for independent rows"
            )
        if times > 1:
            problems.append(
                f"{found}; if rows are copies, or several of one person, name a column of "
                "groups that says whose they are: as it is, intervals are too narrow."
            )
    return problems


def _number_kinds(
    rows: pm.Rows, roles: Roles
) -> tuple[Float[np.ndarray, " n"] | None, Int[np.ndarray, " n"]]:
    """Numbers rows that agree in all columns; and returns their sampling weights, if any.

    Weights are logarithms, rounded: sums over copies divided by their number differ in the
    last digits.
    """
    weight = None
    if roles.weights_are == "sampling":
        weight = np.round(np.log(rows.weights / rows.copies), 9)
    return weight, pm.distinct_rows(rows.cell, rows.treatment, rows.outcome, weight)[1]


def _common_divisor(sizes: Int[np.ndarray, " k"], free: int) -> int:
    """Returns the greatest number that divides all sizes, or 1 if that may be chance.

    Given how many rows share covariates and treatment, which a design may have fixed, so
    many sizes vary freely: the numbers of outcomes. The chance that all of them are
    multiples of d is d^-free; summed over all d from the one found on, it is at most what
    is compared here.
    """
    found = int(np.gcd.reduce(sizes))
    if found < 2 or free < 2:
        return 1
    log_chance = np.log1p(found / (free - 1)) - free * np.log(found)
    return found if log_chance < np.log(_COPIED) else 1


def _frequent_size(sizes: Int[np.ndarray, " k"]) -> tuple[int, int]:
    """Returns a size that too many kinds of rows have, and how many; else 1 and 0.

    Whatever the law of independent rows, the expected numbers f_m of kinds with m rows obey
    m f_m^2 <= (m + 1) f_{m-1} f_{m+1}, for they are Poisson probabilities averaged over
    kinds (Cauchy and Schwarz). So of the kinds with m - 1, m or m + 1 rows at most a share
    of r / (2 + r) has m rows, r^2 = 1 + 1 / m. A greater share is tested by Chernoff's
    bound, at levels that sum to _COPIED over all m from 2 on.
    """
    some, frequency = np.unique(sizes, return_counts=True)
    known = dict(zip(some.tolist(), frequency.tolist(), strict=True))
    for size, count in known.items():
        if size < 2:
            continue
        near = count + known.get(size - 1, 0) + known.get(size + 1, 0)
        share, ratio = count / near, np.sqrt(1 + 1 / size)
        most = ratio / (2 + ratio)
        rest = 0.0
        if share < 1:
            rest = (1 - share) * np.log((1 - share) / (1 - most))
        log_chance = -near * (share * np.log(share / most) + rest)
        if share > most and log_chance < np.log(_COPIED / (size * (size - 1))):
            return size, count
    return 1, 0


def _find_shared_rows(read: TrainingRows, roles: Roles) -> list[str]:
    """Raises if the tables are one; says if one holds rows of the other.

    Two different people may agree in everything. How often they do is seen within the
    trial, and by Jensen's inequality bounds how often a row of it is found in the log.
    """
    rows = read.rows
    weight, kind = _number_kinds(rows, roles)
    copies = rows.copies
    sizes = np.stack(
        [np.bincount(kind, copies * s) for s in (~rows.is_trial, rows.is_trial)]
    )
    num_log, num_trial = read.num_rows.values()
    if num_log == num_trial >= 20:
        is_same = num_log >= 200 and np.array_equal(*sizes)
        if read.place is not None:
            each = np.stack([kind[read.place], read.weights])
            is_same = is_same or np.array_equal(each[:, :num_log], each[:, num_log:])
        if is_same:
            raise UserError(
                "both tables hold the same rows; give the people who chose as the "
                "observational table, and those assigned at random as the experimental one."
            )
    if (roles.weights is not None and weight is None) or num_trial < 20:
        return []  # cells recur
    log, own = sizes
    pairs = 1 + np.sum(own * (own - 1)) / 2
    chance = pairs / (num_trial * (num_trial - 1) / 2)
    expected = 1 - np.exp(-chance * num_log)
    found = float(np.average(log > 0, weights=own))
    if found < 0.2 or found < 4 * expected:
        return []
    problem = (
        f"{found:.0%} of the rows of the experimental table are in the observational "
        "one, too; people of the trial do not belong in the log."
    )
    return [problem]


def _find_swap(rows: pm.Rows, trial: pi.AssignmentCheck) -> list[str]:
    if trial.balance.p_value >= _UNBALANCED:
        return []
    log = rows.take(~rows.is_trial)
    share = np.average(log.treatment, weights=log.weights)
    test = pi.score_test(log.treatment - share, log.z, log.weights, copies=log.copies)
    if test.p_value < _BALANCED or not 0 < share < 1:
        return []
    problem = (
        "the tables may be swapped: covariates predict the treatment in the experimental "
        f"table (p = {trial.balance.p_value:.1g}), and not in the observational one (p = "
        f"{test.p_value:.2f})."
    )
    return [problem]


def _find_poor_overlap(
    rows: pm.Rows, meaning: Meaning, comparison: pi.SourceComparison
) -> list[str]:
    """Says whether a table has rows with almost no comparable rows in the other.

    By the ratio of the covariates' densities, and by the range of each covariate.
    """
    chosen = np.arange(len(rows.z))
    if len(chosen) > _COMPARED_ROWS:
        rng = np.random.default_rng(0)
        chosen = rng.choice(len(chosen), _COMPARED_ROWS, replace=False)
    some = rows.take(chosen)
    z = some.z.astype(float)
    deviation = z.std(axis=0)
    z = (z - z.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    log_ratio = comparison.log_density_ratio(rows.is_trial, rows.weights)[chosen]
    problems = []
    for sign, own, other in zip((-1, 1), pm.SOURCES, pm.SOURCES[::-1], strict=True):
        inside = some.is_trial == (own.role == "trial")
        weights = some.weights[inside]
        alone = 0.0
        if len(weights):
            is_alone = sign * log_ratio[inside] > np.log(_RARE_RATIO)
            alone = float(np.average(is_alone, weights=weights))
        rest = z[~inside]
        if len(rest) >= _LEAST_RANGE and len(weights):
            is_outside = (z[inside] < rest.min(axis=0)) | (z[inside] > rest.max(axis=0))
            outside = np.average(is_outside, axis=0, weights=weights)
            alone = max(alone, float(outside.max()))
        if alone > _MOST_ALONE:
            problems.append(
                f"{alone:.0%} of the rows of the {own.name} table have almost no "
                f"comparable rows in the {other.name} one; they differ most in "
                f"{_differs_most(meaning, z, some.is_trial)}; what is said of them "
                "extrapolates from other people."
            )
    return problems


def _differs_most(
    meaning: Meaning, z: Float[np.ndarray, "n d"], is_trial: np.ndarray
) -> str:
    """Names the covariate whose standardized means differ most."""
    difference = np.abs(z[is_trial].mean(axis=0) - z[~is_trial].mean(axis=0))
    place = int(difference.argmax())
    ends = np.cumsum([c.width for c in meaning.encoder.covariates])
    return repr(meaning.encoder.columns[np.searchsorted(ends, place, side="right")])


def _find_rare(rows: pm.Rows, meaning: Meaning) -> list[str]:
    problems = []
    treatment, outcome = meaning.treatment, meaning.outcome
    for number, source in enumerate(pm.SOURCES):
        for arm, value in enumerate((treatment.zero, treatment.one)):
            chosen = (rows.source == number) & (rows.treatment == arm)
            people = rows.weights[chosen].sum()
            label = f"{treatment.column} = {value}"
            if people < _FEW_IN_ARM:
                problems.append(
                    f"the {source.name} table has only {people:.0f} people with {label}."
                )
                continue
            if source.role == "log":
                continue  # its frequencies need not be precise in each arm
            with_it = rows.weights[chosen & (rows.outcome == 1)].sum()
            for count, level in (
                (with_it, outcome.one),
                (people - with_it, outcome.zero),
            ):
                if count < _FEW_OUTCOMES:
                    problems.append(
                        f"of the {people:,.0f} people with {label} in the {source.name} "
                        f"table only {count:.0f} have {outcome.column} = {level}; "
                        "intervals rest on normal approximations, which are poor for so "
                        "few."
                    )
    return problems


def suspect_column(covariate: Covariate, parts: Sequence[Column]) -> str | None:
    """Says whether a covariate looks like a date or an identifier."""
    name = covariate.column
    if covariate.kind == "category":
        if all(DATE.fullmatch(level) for level in covariate.levels):
            return (
                f"the covariate {name!r} holds dates, and each date is a category of its "
                "own; give a number, such as days since a first date, or leave it out."
            )
        most = max(_LEAST_LABELS, 0.5 * max(part.num_rows for part in parts))
        if len(covariate.levels) > most:
            return (
                f"the covariate {name!r} looks like an identifier: its values hardly "
                "repeat; leave it out of covariates."
            )
        return _suspect_labels(name, parts)
    values = pd.concat([part.values.dropna() for part in parts]).to_numpy(float)
    if not np.all(values == np.round(values)):
        return None
    different = np.unique(values)
    if len(different) < _LEAST_LABELS:
        return None
    if _are_dates(different):
        return (
            f"the covariate {name!r} looks like dates written as numbers, such as "
            f"{different[0]:.0f}; give days since a first date, or leave it out."
        )
    sizes = [part.num_rows for part in parts]
    is_distinct = all(
        len(part.values) == part.num_rows and part.values.dropna().is_unique
        for part in parts
    )
    is_named = _ID_NAME.fullmatch(str(name)) is not None
    is_ordered = is_distinct and all(
        part.values.is_monotonic_increasing or part.values.is_monotonic_decreasing
        for part in parts
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
    return _suspect_labels(name, parts)


def _suspect_labels(name: str, parts: Sequence[Column]) -> str | None:
    """Says whether values recur within a table and hardly in the other, as labels do.

    Values that describe people and recur in one table recur in the other one, too.
    """
    counts = [
        pd.Series(part.copies, part.values.to_numpy()).groupby(level=0).sum()
        for part in parts
    ]
    if len(counts) < 2 or any(len(c) < _LEAST_LABELS or c.sum() < 1 for c in counts):
        return None
    own, other = counts
    shared = [
        np.average(one.index.isin(two.index), weights=one)
        for one, two in ((own, other), (other, own))
    ]
    recurring = [np.average(one > 1, weights=one) for one in counts]
    if max(shared) > _MOST_ALONE or min(recurring) < 0.5:
        return None
    return (
        f"the covariate {name!r} looks like an identifier of groups: its values recur "
        f"within a table, and only {max(shared):.0%} of the rows have one that the other "
        "table has, too; leave it out of covariates, or name it as groups if its rows "
        "belong together."
    )


def _are_dates(different: np.ndarray) -> bool:
    """Tells whether all numbers read as year, month and day: 20240131."""
    if different[0] < 19000101 or different[-1] > 21001231:
        return False
    text = pd.Series(different.astype(int).astype(str))
    return bool(pd.to_datetime(text, format="%Y%m%d", errors="coerce").notna().all())
