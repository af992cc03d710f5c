"""Columns of real tables as numbers: two-valued columns, and covariates."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from pns_estimate._errors import Setting, UserError

Missing = Literal["error", "indicator"]
Unseen = Literal["error", "unknown"]
# As files write numbers; '007' is a code, and 'nan' no number.
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATE = re.compile(
    r"(\d{1,4}([-/.])\d{1,2}\2\d{1,4}"
    rf"|\d{{1,2}}[- ]?{_MONTH}[-, ]*\d{{2,4}}|{_MONTH}[- ]?\d{{1,2}}[-, ]+\d{{2,4}})"
    r"([ T].*)?",
    re.IGNORECASE,
)
_MOST_LEVELS = 200  # of a text column; more are an error


class Column(NamedTuple):
    """The values of a column in one table."""

    table: str  # what to call the table in messages
    values: pd.Series  # as they come; each once, if the table is streamed
    copies: np.ndarray  # how many rows each value stands for

    @property
    def num_rows(self) -> int:
        """Rows of the table."""
        return int(self.copies.sum())

    @property
    def num_missing(self) -> int:
        """Rows without a value."""
        return int(self.copies[self.values.isna()].sum())


@dataclasses.dataclass(frozen=True)
class TwoValues:
    """A column with two values."""

    column: str  # its name
    zero: Any  # the value that counts as 0, the reference
    one: Any  # the value that counts as 1

    def encode(self, table: pd.DataFrame, name: str) -> np.ndarray:
        """Returns 0 and 1 for each row."""
        values = _plain(table[self.column])
        is_one, is_zero = values == self.one, values == self.zero
        if not (is_one | is_zero).all():
            strange = values[~(is_one | is_zero)].iloc[0]
            raise UserError(
                f"{self.column!r} of the {name} table must be {self.zero!r} or "
                f"{self.one!r}, got {strange!r}."
            )
        return is_one.to_numpy().astype(int)


def find_two_values(
    parts: Sequence[Column], column: str, role: str, reference: Any = None
) -> TwoValues:
    """Finds the two values of a column that tables share.

    The reference counts as 0; it is needed unless values are 0 and 1, or booleans.
    """
    seen: list[Any] = []
    for part in parts:
        if are_dates(part.values):
            raise UserError(
                f"the {role} {column!r} of the {part.table} table holds dates; give a "
                "column of two values, such as whether it happened."
            )
        if part.num_missing:
            raise UserError(
                f"the {role} {column!r} of the {part.table} table is missing in "
                f"{part.num_missing} rows; drop or complete them."
            )
        seen += [v for v in _plain(part.values).unique().tolist() if v not in seen]
    if len(seen) != 2:
        _check_alike(parts, column, role)
        shown = sorted(map(str, seen))[:6]
        raise UserError(
            f"the {role} {column!r} must have two values, got {len(seen)}: "
            f"{', '.join(shown)}."
        )
    if reference is None:
        if not all(isinstance(v, (int, float)) and v in (0, 1) for v in seen):
            raise UserError(
                f"say which value of the {role} {column!r} is the reference: ",
                Setting(f"{role}_reference", seen[0]),
                " or ",
                Setting(f"{role}_reference", seen[1]),
                ".",
            )
        return TwoValues(column, 0, 1)
    # A command line gives text; a column may hold numbers or booleans.
    words = {"false": "0", "true": "1"}.get(str(reference).lower(), str(reference))
    match = [v for v in seen if v == reference] or [v for v in seen if str(v) == words]
    if not match:
        raise UserError(
            Setting(f"{role}_reference"),
            f" must be one of {seen}, the values of {column!r}, got {reference!r}.",
        )
    one = seen[0] if seen[1] == match[0] else seen[1]
    return TwoValues(column, match[0], one)


def _check_alike(parts: Sequence[Column], column: str, role: str) -> None:
    """Raises if each table has two values, and not the same."""
    each = {part.table: _plain(part.values).unique().tolist() for part in parts}
    if all(len(values) == 2 for values in each.values()):
        shown = [
            f"the {table} table has {low!r} and {high!r}"
            for table, (low, high) in (
                (table, sorted(values, key=str)) for table, values in each.items()
            )
        ]
        raise UserError(
            f"the {role} {column!r} must have the same two values in both tables; "
            f"{', '.join(shown)}: write them alike."
        )


@dataclasses.dataclass(frozen=True)
class Covariate:
    """How one column becomes numbers."""

    column: str  # its name
    kind: Literal["number", "category"]
    # Of a category, each a column of its own; a value that is none of them has zeros in
    # all.
    levels: tuple[str, ...] = ()
    low: float = 0.0  # of a number, the least value that every table reaches
    high: float = 0.0  # the greatest
    absent: tuple[str, ...] = ()  # levels that a table lacks
    is_complete: bool = False  # whether a table has a value in each row
    varies: bool = True
    indicator: bool = False  # whether a column says if the value was missing
    fill: float = 0.0  # of a number, what stands for a missing value

    @property
    def width(self) -> int:
        """Numbers that a value becomes."""
        return self.indicator + max(len(self.levels), 1)


@dataclasses.dataclass(frozen=True)
class Encoder:
    """Turns the covariates of a table into a matrix."""

    covariates: tuple[Covariate, ...]  # in order
    # What to do with a category that is not in the training tables: an 'error', or
    # 'unknown', which sets no level and marks the row as outside.
    unseen: Unseen = "error"

    @property
    def columns(self) -> list[str]:
        """Names of the columns it reads."""
        return [covariate.column for covariate in self.covariates]

    @property
    def width(self) -> int:
        """Numbers that a row becomes; without covariates one, which is 0."""
        return sum(covariate.width for covariate in self.covariates) or 1

    @property
    def covariate(self) -> Int[np.ndarray, " d"]:
        """The covariate that each number of a row belongs to, see `pns_models.Rows`."""
        sizes: list[int] = []
        for each in self.covariates:
            num_levels = len(each.levels)
            if num_levels > 2:  # an indicator is a covariate of its own
                sizes += [1] * each.indicator + [num_levels]
            else:
                sizes += [each.width] if each.kind == "number" else [1] * each.width
        sizes = sizes or [1]  # without covariates, one column
        return np.repeat(np.arange(len(sizes)), sizes)

    def encode(
        self, table: pd.DataFrame, name: str, out: np.ndarray | None = None
    ) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, " n"]]:
        """Encodes rows of a table, into `out` if it is given.

        Returns:
          z [n, d] float32, and [n] whether a row lies outside a table of training: a
          number beyond its range, a category that it lacks, or a missing value if it
          misses none.
        """
        z = np.empty((len(table), self.width), np.float32) if out is None else out
        outside = np.zeros(len(table), bool)
        if not self.covariates:
            z[:] = 0
        place = 0
        for covariate in self.covariates:
            if covariate.column not in table.columns:
                raise no_column(name, covariate.column, list(table.columns))
            values = table[covariate.column]
            missing = values.isna().to_numpy()
            if missing.any() and not covariate.indicator:
                raise _missing_values(name, covariate.column, missing.sum())
            if covariate.indicator:
                outside |= missing & covariate.is_complete
                z[:, place] = missing
                place += 1
            if covariate.kind == "number":
                numbers = _numbers(values, covariate.column, name)
                outside |= ~missing & (
                    (numbers < covariate.low) | (numbers > covariate.high)
                )
                # Centred in double precision: a time stamp keeps its seconds.
                z[:, place] = np.where(missing, 0.0, numbers - covariate.fill)
                place += 1
                continue
            text = _text(values)
            known = np.isin(text, covariate.levels) | missing
            if not known.all():
                if self.unseen == "error":
                    strange = sorted(set(text[~known]))[:5]
                    raise UserError(
                        f"the covariate {covariate.column!r} of the {name} table has "
                        f"values that are not in the training tables: {strange}; fit "
                        "with ",
                        Setting("unseen", "unknown"),
                        " to allow them.",
                    )
                outside |= ~known
            outside |= np.isin(text, covariate.absent) & ~missing
            for level in covariate.levels:
                z[:, place] = text == level
                place += 1
        return z, outside

    def with_numbers(self, table: pd.DataFrame) -> pd.DataFrame:
        """Returns the table, with numbers in place of text that was read as numbers."""
        text = [
            covariate.column
            for covariate in self.covariates
            if covariate.kind == "number" and not _is_number(table[covariate.column])
        ]
        if not text:
            return table
        table = table.copy(deep=False)
        for column in text:
            table[column] = as_numbers(table[column])
        return table

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Encoder":
        """Rebuilds an encoder."""
        covariates = tuple(
            Covariate(
                **entry
                | {name: tuple(entry.get(name, ())) for name in ("levels", "absent")}
            )
            for entry in values["covariates"]
        )
        return cls(covariates, values["unseen"])


def make_encoder(covariates: Sequence[Covariate], unseen: Unseen = "error") -> Encoder:
    """Puts covariates together; raises if there are some and none of them varies."""
    if covariates and not any(covariate.varies for covariate in covariates):
        raise UserError(
            "none of the covariates varies, so there is nothing to tell people apart by; "
            "give other covariates, or none."
        )
    return Encoder(tuple(covariates), unseen)


def make_covariate(
    parts: Sequence[Column], column: str, missing: Missing = "error"
) -> Covariate:
    """Learns how to encode one column from its values in each table.

    A missing value is an error; or it becomes an indicator, and the median.
    """
    known = [part for part in parts if part.values.notna().any()]
    if not known:
        raise UserError(f"the covariate {column!r} has no values at all.")
    numeric = {_is_number(part.values) for part in known}
    if len(numeric) > 1 and any(are_dates(part.values) for part in known):
        raise _dates(column)
    if len(numeric) > 1:  # one table may write its numbers as text
        parts = [part._replace(values=as_numbers(part.values)) for part in parts]
        numeric = {True}
        for part in parts:
            if not _is_number(part.values):
                raise _text_beside_numbers(part, parts, column)
    for part in parts:
        if missing == "error" and part.num_missing:
            raise _missing_values(part.table, column, part.num_missing)
    # With the policy 'indicator' people without a value may come later, too.
    indicator = missing == "indicator"
    is_complete = any(part.num_missing == 0 for part in parts)
    if numeric == {True}:
        each = [_numbers(part.values, column, part.table) for part in parts]
        with_values = [one for one in each if not np.isnan(one).all()]
        numbers = np.concatenate(each)
        is_known = ~np.isnan(numbers)
        copies = np.concatenate([part.copies for part in parts])[is_known]
        numbers = numbers[is_known]
        return Covariate(
            column,
            "number",
            low=float(max(np.nanmin(one) for one in with_values)),
            high=float(min(np.nanmax(one) for one in with_values)),
            is_complete=is_complete,
            varies=bool(numbers.max() > numbers.min()),
            indicator=indicator,
            fill=float(quantiles(numbers, copies, np.array([0.5]))[0]),
        )
    own = [set(_text(part.values.dropna())) for part in known]
    levels = sorted(set.union(*own))
    if len(levels) > _MOST_LEVELS:
        if any(are_dates(part.values) for part in known):
            raise _dates(column)
        is_key = len(levels) > 0.5 * max(part.num_rows for part in parts)
        kind = ", as an identifier has" if is_key else ""
        raise UserError(
            f"the covariate {column!r} has {len(levels)} different values{kind}; leave it "
            "out of covariates, or group its values."
        )
    return Covariate(
        column,
        "category",
        tuple(levels),
        absent=tuple(sorted(set(levels) - set.intersection(*own))),
        is_complete=is_complete,
        varies=len(levels) > 1,
        indicator=indicator,
    )


def are_dates(values: pd.Series) -> bool:
    """Tells whether all values are dates or times, or text that reads as such."""
    if pd.api.types.is_datetime64_any_dtype(values):
        return True
    if _is_number(values):
        return False
    different = values.dropna().astype(str).unique()
    return len(different) > 0 and all(map(DATE.fullmatch, different))


def _dates(column: str) -> UserError:
    return UserError(
        f"the covariate {column!r} holds dates; give a number in its place, such as days "
        "since a first date, or leave it out of covariates."
    )


def _text_beside_numbers(
    part: Column, parts: Sequence[Column], column: str
) -> UserError:
    """Names a text of one table where another has numbers."""
    text = min(str(v) for v in part.values.dropna() if _parsed_value(v) is None)
    (other,) = [each for each in parts if each is not part]
    return UserError(
        f"the covariate {column!r} holds text such as {text!r} in the {part.table} table "
        f"and numbers in the {other.table} table; write it alike in both, or leave it "
        "out of covariates."
    )


def quantiles(values: np.ndarray, copies: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Computes quantiles of values of which there are several copies each.

    They lie between the two nearest of the copies, as those of `numpy.quantile`.
    """
    order = np.argsort(values, kind="stable")
    last = np.cumsum(copies[order])  # of the copies of each value, the place behind
    place = (last[-1] - 1) * levels
    below, above = (
        values[order][np.searchsorted(last, end(place), side="right")]
        for end in (np.floor, np.ceil)
    )
    share = place - np.floor(place)
    return below * (1 - share) + above * share


def no_column(name: str, column: str, columns: Sequence[str]) -> UserError:
    """Makes the error that a table lacks a column."""
    shown = ", ".join(map(repr, columns[:8]))
    return UserError(f"the {name} table has no column {column!r}; it has {shown}.")


def _missing_values(name: str, column: str, num_rows: int) -> UserError:
    return UserError(
        f"the covariate {column!r} of the {name} table is missing in {num_rows} rows; "
        "complete them, or fit with ",
        Setting("missing", "indicator"),
        ".",
    )


def _is_number(values: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return True
    if isinstance(values.dtype, pd.CategoricalDtype):
        return False
    # Booleans with missing values, and columns without any value, come as objects.
    return all(isinstance(v, (bool, np.bool_)) for v in values.dropna())


def _plain(values: pd.Series) -> pd.Series:
    """Booleans and whole numbers as int, so that True, 1 and 1.0 are one value."""
    if pd.api.types.is_bool_dtype(values):
        return values.astype(int)
    if pd.api.types.is_numeric_dtype(values):
        numbers = values.astype(float)
        whole = bool((numbers == numbers.round()).all())
        return numbers.astype(int) if whole and np.isfinite(numbers).all() else numbers
    values = values.astype(object)
    return values.map({value: _plain_value(value) for value in values.unique()})


def _plain_value(value: Any) -> Any:
    """Text that is a whole number or a boolean as int, so that '1' and 1 are one value."""
    number = _parsed_value(value)
    return value if number is None or number != int(number) else int(number)


def as_numbers(values: pd.Series) -> pd.Series:
    """Numbers that were written as text; as they come if one of them is none."""
    if _is_number(values):
        return values
    found = []
    for value, missing in zip(values.astype(object), values.isna(), strict=True):
        found.append(np.nan if missing else _parsed_value(value))
        if found[-1] is None:
            return values
    return pd.Series(found, values.index, dtype=float)


def _parsed_value(value: Any) -> float | None:
    """Reads a number or a boolean that may be text; None if it is neither."""
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("true", "false"):
            return float(text.lower() == "true")
        return float(text) if _NUMBER.fullmatch(text) else None
    is_number = isinstance(value, (bool, int, float, np.number, np.bool_))
    return float(value) if is_number and np.isfinite(value) else None


def _text(values: pd.Series) -> np.ndarray:
    """Values as text; 1, 1.0 and True of an object or category column are one value."""

    def plain(value: Any) -> str:
        whole = isinstance(value, (bool, int, float, np.number)) and value == int(value)
        return str(int(value)) if whole else str(value)

    levels = {v: plain(v) for v in values.dropna().unique().tolist()}
    text = values.astype(object).map(levels).astype(object)  # float if all are missing
    return text.fillna("").to_numpy(dtype=object)


def _numbers(values: pd.Series, column: str, name: str) -> np.ndarray:
    values = as_numbers(values)
    if not _is_number(values):
        raise UserError(
            f"the covariate {column!r} of the {name} table must hold numbers, as in "
            "training."
        )
    numbers = values.to_numpy(dtype=float, na_value=np.nan)
    if (np.abs(numbers[~np.isnan(numbers)]) > 1e30).any():
        raise UserError(
            f"the covariate {column!r} of the {name} table has infinite values, or values "
            "beyond 1e30; replace them."
        )
    return numbers
