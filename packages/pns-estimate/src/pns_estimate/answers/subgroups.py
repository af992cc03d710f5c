"""Subgroups by covariates: categories as they are, numbers cut at quantiles."""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from pns_estimate._errors import Setting, UserError
from pns_estimate.tables.columns import quantiles
from pns_estimate.tables.rows import People

_MOST_LEVELS = 8
_NUM_PARTS = 4


class Subgroup(NamedTuple):
    """A name, and who is in it: [n] booleans."""

    name: str
    member: np.ndarray


def find_subgroups(
    people: pd.DataFrame | People,
    columns: Sequence[str] | None = None,
    copies: Float[np.ndarray, " n"] | None = None,
) -> list[Subgroup]:
    """Makes a group of each category, and of each quarter of a number.

    Names come in their natural order: z2 before z10. Without columns to group by, all
    with few categories or with numbers are taken, the first ones if there would be more
    than 60 groups. Copies are people that each row stands for; 1 if None.
    """
    if columns is None:
        short = [c for c in people.columns if _is_short(people[c])]
        chosen = _first_columns(sorted(short, key=_natural_order), people)
    else:
        chosen = [columns] if isinstance(columns, str) else list(columns)
        absent = [column for column in chosen if column not in people.columns]
        if absent:
            raise UserError(f"{absent} are not covariates of the fit.")
    groups = [group for column in chosen for group in _split(people[column], copies)]
    if not groups:
        raise UserError("there is no covariate to make subgroups of; name columns.")
    return groups


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


def _first_columns(columns: list[str], people: pd.DataFrame | People) -> list[str]:
    """Keeps columns from the first on, while their groups are not too many."""
    sizes = [min(people[column].nunique(), _MOST_LEVELS) for column in columns]
    return [
        c for c, total in zip(columns, np.cumsum(sizes), strict=True) if total <= 60
    ]


def _is_short(values: pd.Series) -> bool:
    levels = values.dropna().nunique()
    return levels >= 2 and (levels <= _MOST_LEVELS or _is_number(values))


def _is_number(values: pd.Series) -> bool:
    types = pd.api.types
    return types.is_numeric_dtype(values) and not types.is_bool_dtype(values)


def _split(values: pd.Series, copies: Float[np.ndarray, " n"] | None) -> list[Subgroup]:
    levels = values.dropna().unique()
    if len(levels) <= _MOST_LEVELS or not _is_number(values):
        return [
            Subgroup(
                f"{values.name} = {_plain(level)}",
                (values == level).fillna(False).to_numpy(dtype=bool),
            )
            for level in sorted(levels, key=_level_order)
        ]
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
