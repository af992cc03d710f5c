"""Subgroups by covariates: categories as they are, numbers cut at quantiles."""

import itertools
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from pns_estimate._errors import Setting, UserError
from pns_estimate.tables.columns import quantiles
from pns_estimate.tables.rows import People

_MOST_LEVELS = 8  # of a number; if there are more it is cut at quartiles
_MOST_CATEGORIES = 20  # of a column, with one for those that are pooled
_MOST_GROUPS = 60
_NUM_PARTS = 4
_MOST_NAMED = 20  # columns or groups in a sentence


class Subgroup(NamedTuple):
    """A name, and who is in it: [n] booleans."""

    name: str
    member: np.ndarray


class Columns(NamedTuple):
    """Which columns make subgroups, and which do not though their values differ."""

    chosen: list[str]
    left_out: list[str]


def choose_columns(
    people: pd.DataFrame | People,
    score: Float[np.ndarray, " n"],
    copies: Float[np.ndarray, " n"] | None = None,
    least: float = 1,
) -> Columns:
    """Chooses columns to group by, in their natural order.

    If all of them would make more than 60 groups, those come first whose groups explain
    most of the variance of the score, a prediction for each row. A column is
    left out if all its categories are rarer than the least number of people, or if most
    rows have one of their own.
    """
    weights = np.ones(len(people)) if copies is None else copies
    sizes, explained = {}, {}
    for column in sorted(people.columns, key=_natural_order):
        values = people[column]
        num_values = values.dropna().nunique()
        if num_values < 2:
            continue
        groups = _split(values, copies, least)
        is_name = num_values > max(_MOST_CATEGORIES, len(values) / 2)
        is_useless = len(groups) < 2 or (is_name and not _is_number(values))
        sizes[column] = _MOST_GROUPS + 1 if is_useless else len(groups)
        explained[column] = _explained(groups, score, weights)
    order = list(sizes)
    if sum(sizes.values()) > _MOST_GROUPS:
        order.sort(key=lambda column: -explained[column])
    total, chosen = 0, set()
    for column in order:
        if total + sizes[column] <= _MOST_GROUPS:
            total += sizes[column]
            chosen.add(column)
    return Columns(
        [column for column in sizes if column in chosen],
        [column for column in sizes if column not in chosen],
    )


def _explained(
    groups: Sequence[Subgroup],
    score: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
) -> float:
    """Sums the squared deviations of the groups' means from the mean of all."""
    middle, total = np.average(score, weights=weights), 0.0
    for group in groups:
        mass = weights[group.member].sum()
        if mass > 0:
            mean = np.average(score[group.member], weights=weights[group.member])
            total += float(mass * (mean - middle) ** 2)
    return total


def find_subgroups(
    people: pd.DataFrame | People,
    columns: Sequence[str] | str,
    copies: Float[np.ndarray, " n"] | None = None,
    least: float = 1,
) -> list[Subgroup]:
    """Makes a group of each category, and of each quarter of a number.

    Names come in their natural order: z2 before z10. Categories with fewer people than
    the least are pooled, and so are the rarest of more than twenty. Copies are people that
    each row stands for; 1 if None.
    """
    chosen = [columns] if isinstance(columns, str) else list(columns)
    check_columns(chosen, people.columns)
    groups = [
        group for column in chosen for group in _split(people[column], copies, least)
    ]
    if not groups:
        raise UserError("there is no covariate to make subgroups of; name columns.")
    return groups


def check_columns(columns: Sequence[str], covariates: Sequence[str]) -> None:
    """Raises unless all columns are covariates."""
    absent = [column for column in columns if column not in covariates]
    if absent:
        raise UserError(
            Setting("subgroups"), f": {absent} are not covariates of the fit."
        )


def name_some(names: Sequence[str]) -> str:
    """Lists names, and says how many there are if they are many."""
    listed = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return listed + (f" and {more:,} more" if more > 0 else "")


def warn_of_columns(left_out: Sequence[str], stacklevel: int) -> None:
    """Names columns that make no subgroups though their values differ."""
    if left_out:
        message = (
            f"subgroups leave out {name_some(left_out)}; name columns to have them."
        )
        warnings.warn(message, stacklevel=stacklevel)


def weigh_rows(
    count: int, mask: Any, weights: Any, explain: Callable[[str], str]
) -> Float[np.ndarray, " n"]:
    """Returns the weight of each row in a subgroup of so many rows.

    The error says what masks and weights must be: `explain("booleans")`, or "numbers".
    """
    result = np.ones(count)
    for name, given in (("mask", mask), ("weights", weights)):
        if given is None:
            continue
        values = np.asarray(given)
        if values.shape != (count,) or (name == "mask" and values.dtype != bool):
            kind = "booleans" if name == "mask" else "numbers"
            raise UserError(Setting(name), f" must be {explain(kind)}")
        result = result * values.astype(float)
    return result


def _is_number(values: pd.Series) -> bool:
    types = pd.api.types
    return types.is_numeric_dtype(values) and not types.is_bool_dtype(values)


def _split(
    values: pd.Series,
    copies: Float[np.ndarray, " n"] | None,
    least: float,
) -> list[Subgroup]:
    levels = values.dropna().unique()
    if len(levels) <= _MOST_LEVELS or not _is_number(values):
        return _split_levels(values, copies, least)
    numbers = values.to_numpy(dtype=float, na_value=np.nan)
    levels = np.linspace(0, 1, _NUM_PARTS + 1)
    if copies is None:
        edges = np.unique(np.nanquantile(numbers, levels))
    else:
        known = ~np.isnan(numbers)
        edges = np.unique(quantiles(numbers[known], copies[known], levels))
    groups = []
    for place, (low, high) in enumerate(itertools.pairwise(edges.tolist())):
        inside = (numbers >= low if place == 0 else numbers > low) & (numbers <= high)
        left = "from" if place == 0 else "above"
        name = f"{values.name} {left} {low:g} to {high:g}"
        groups.append(Subgroup(name, inside))
    return groups


def _split_levels(
    values: pd.Series,
    copies: Float[np.ndarray, " n"] | None,
    least: float,
) -> list[Subgroup]:
    """Makes a group of each level, and one of all that are rare if they are several."""
    weights = pd.Series(1.0 if copies is None else copies, values.index)
    people = weights.groupby(values, observed=True).sum()
    people = people[people > 0].sort_values(ascending=False, kind="stable")
    room = len(people) if len(people) <= _MOST_CATEGORIES else _MOST_CATEGORIES - 1
    is_kept = (people >= least) & (np.arange(len(people)) < room)
    if (~is_kept).sum() == 1:
        is_kept[:] = True
    kept, rare = people.index[is_kept], people.index[~is_kept]
    groups = [
        Subgroup(
            f"{values.name} = {_plain(level)}",
            (values == level).fillna(False).to_numpy(dtype=bool),
        )
        for level in sorted(kept.tolist(), key=_level_order)
    ]
    if len(rare):
        member = values.isin(rare).to_numpy(dtype=bool)
        groups.append(Subgroup(f"{values.name} = other ({len(rare)} values)", member))
    return groups


def _natural_order(name: object) -> list[tuple[int, int, str]]:
    """Returns a key that sorts numbers inside names by value."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d+)", str(name))
        if part
    ]


def _level_order(level: object) -> tuple[str, object]:
    """Returns a key that sorts numbers by value and text naturally."""
    is_text = isinstance(level, str)
    return (str(type(level)), _natural_order(level) if is_text else level)


def _plain(level: object) -> object:
    whole = isinstance(level, float | np.floating) and float(level).is_integer()
    return int(level) if whole else level  # type: ignore[arg-type]
