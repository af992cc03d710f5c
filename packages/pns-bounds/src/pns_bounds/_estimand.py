"""What is bounded: one definition from which every bound and every term is computed.

An estimand lies above the greatest of its lower terms and its floor, and below the least
of its upper terms and its ceiling. Terms depend on the atoms; floor and ceiling are known
before any data. A term is an affine function of eta = (mu1, mu0, p11, p10, p01, p00), or
such a function divided by a linear one. Estimands are data: they compare by value and can
be static arguments of `jax.jit`.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from pns_bounds._arguments import (
    Array,
    checked_pair,
    namespace,
    require,
    require_option,
    rounding_tolerance,
    smallest_normal,
)
from pns_bounds._atoms import Atoms, eta_columns
from pns_bounds._compatibility import Incompatible, resolve_incompatible
from pns_bounds._layout import BINARY, Layout

Undefined = Literal["nan", "limits"]
Matrix = tuple[tuple[float, ...], ...]
Columns = Sequence[Any]  # of eta, each [...]; None for one that no term reads


class BoundTerms(NamedTuple):
    """Terms whose maximum (lower) and minimum (upper) bound an estimand."""

    lower: Array  # [..., num_lower]
    upper: Array  # [..., num_upper]


class Interval(NamedTuple):
    """Lower and upper ends [...] of an interval."""

    lower: Array
    upper: Array

    @property
    def width(self) -> Array:
        """Upper minus lower end [...]."""
        return self.upper - self.lower


class _Parts(NamedTuple):
    """Terms before they are masked where the denominator is 0."""

    terms: BoundTerms
    denominator: Array  # [...], 1 where undefined; the number 1 if there is none
    is_defined: Array  # [...] booleans, or True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimand:
    """A probability, or another number, that is bounded by terms.

    Matrices may be given as any nested sequence or array; they are kept as tuples.

    Attributes:
      name: the key of the registry, for tables and options.
      sentence: what it means, in one plain sentence.
      lower_labels: a formula to read for each lower term.
      upper_labels: a formula to read for each upper term.
      lower_matrix: [num_lower, num_raw] over eta = (mu1, mu0, p11, p10, p01, p00).
      lower_offset: [num_lower].
      upper_matrix: [num_upper, num_raw].
      upper_offset: [num_upper].
      denominator: [num_raw], what every term is divided by; None for 1.
      function: for terms that are neither: maps checked Atoms [...] to BoundTerms, and
        replaces the matrices.
      floor: a lower limit that needs no data.
      ceiling: an upper limit that needs no data.
      layout: the treatments and outcome levels, which decide the length of eta.
    """

    name: str
    sentence: str
    lower_labels: Sequence[str]
    upper_labels: Sequence[str]
    lower_matrix: Any = ()
    lower_offset: Any = ()
    upper_matrix: Any = ()
    upper_offset: Any = ()
    denominator: Any = None
    function: Callable[[Atoms], BoundTerms] | None = None
    floor: float = 0.0
    ceiling: float = 1.0
    layout: Layout = BINARY

    def __post_init__(self) -> None:
        """Turns sequences into tuples and checks that they fit together."""
        num_raw = self.layout.num_raw
        for side in ("lower", "upper"):
            labels = tuple(getattr(self, f"{side}_labels"))
            matrix = np.asarray(getattr(self, f"{side}_matrix"), float)
            offset = np.asarray(getattr(self, f"{side}_offset"), float)
            num_terms = 0 if self.function else len(labels)
            require(
                matrix.size == num_raw * num_terms and offset.shape == (num_terms,),
                f"{side}_matrix",
                f"and {side}_offset of {self.name!r} must have the shapes "
                f"{[num_terms, num_raw]} and {[num_terms]}, one row for each of "
                f"{len(labels)} labels, got {list(matrix.shape)} and "
                f"{list(offset.shape)}.",
            )
            matrix = matrix.reshape(num_terms, num_raw)
            self._set(f"{side}_labels", labels)
            self._set(f"{side}_matrix", tuple(map(tuple, matrix.tolist())))
            self._set(f"{side}_offset", tuple(offset.tolist()))
        if self.denominator is not None:
            denominator = np.asarray(self.denominator, float)
            require(
                denominator.shape == (num_raw,),
                "denominator",
                f"of {self.name!r} must have shape {[num_raw]}, over eta = "
                f"({', '.join(self.layout.eta_names)}), got {list(denominator.shape)}.",
            )
            self._set("denominator", tuple(denominator.tolist()))

    def _set(self, field: str, value: Any) -> None:
        object.__setattr__(self, field, value)  # the dataclass is frozen

    @property
    def is_linear(self) -> bool:
        """Whether every term is an affine function of eta."""
        return self.function is None and self.denominator is None

    def terms(self, atoms: Atoms, undefined: Undefined = "nan") -> BoundTerms:
        """Evaluates the terms [..., num_lower] and [..., num_upper].

        Plain algebra, also defined for incompatible atoms; without floor and ceiling.
        Where the denominator is 0 (or less than the format's smallest normal number) the
        atoms do not inform about the quotient, and terms are 'nan', or the 'limits'.
        """
        require_option("undefined", undefined, ("nan", "limits"))
        atoms = Atoms(*checked_pair(*atoms, layout=self.layout))
        terms, _, is_defined = self._parts(atoms)
        if is_defined is True:
            return terms
        xp = namespace(terms.lower)
        limits = undefined == "limits"
        floor, ceiling = (self.floor, self.ceiling) if limits else (xp.nan, xp.nan)
        return BoundTerms(
            lower=xp.where(is_defined[..., None], terms.lower, floor),
            upper=xp.where(is_defined[..., None], terms.upper, ceiling),
        )

    def bounds(self, atoms: Atoms, incompatible: Incompatible = "raise") -> Interval:
        """Computes the interval between the greatest lower and the least upper term.

        For the estimands of this package it is sharp: no narrower interval is valid. It
        takes what `pns_bounds` takes. The interval [...] lies within floor and ceiling,
        and is NaN where undefined. A crossing that rounding explains is closed; a real
        contradiction stays visible.
        """
        return _interval(self, self._parts(resolve_incompatible(atoms, incompatible)))

    def _parts(self, atoms: Atoms) -> _Parts:
        if self.function is not None:
            return _Parts(self.function(atoms), 1, True)
        return _evaluate(self, eta_columns(atoms, self.layout))


def bounds_from(estimand: Estimand, atoms: Atoms) -> Interval:
    """Computes bounds from atoms that were checked; None for a part no term reads."""
    return _interval(estimand, estimand._parts(atoms))


def _evaluate(estimand: Estimand, columns: Columns) -> _Parts:
    """Evaluates the matrices of an estimand."""
    layout = estimand.layout
    sides = (
        (estimand.lower_matrix, estimand.lower_offset),
        (estimand.upper_matrix, estimand.upper_offset),
    )
    if estimand.denominator is None:
        terms = [_rows(matrix, offset, columns, layout) for matrix, offset in sides]
        return _Parts(BoundTerms(*terms), 1, True)
    # A small denominator magnifies rounding, so numerators are made of mu_x - p_x1,
    # which is exact where it is small: how many of the other arm would respond under x.
    gains = list(columns)
    for place, cell in enumerate(layout.anchor_places):
        gains[place] = columns[place] - columns[cell]
    denominator = _affine(estimand.denominator, 0.0, columns, layout)
    is_defined = denominator >= smallest_normal(denominator.dtype)
    # No division by 0, and no NaN in gradients.
    safe = namespace(denominator).where(is_defined, denominator, 1)
    terms = [
        _rows(_over_gains(matrix, layout), offset, gains, layout) / safe[..., None]
        for matrix, offset in sides
    ]
    return _Parts(BoundTerms(*terms), safe, is_defined)


def _over_gains(matrix: Matrix, layout: Layout) -> Matrix:
    """Rewrites rows over eta as rows over eta with mu_x - p_x1 in place of mu_x."""
    rows = np.array(matrix)
    rows[:, list(layout.anchor_places)] += rows[:, : layout.num_free]
    return tuple(map(tuple, rows.tolist()))


@functools.cache
def _order_of_addition(layout: Layout) -> tuple[int, ...]:
    """Places of eta: mu first, then cells with y = 0 before those with y = 1."""
    cells = range(layout.num_free, layout.num_raw)
    by_level = sorted(cells, key=lambda i: layout.cells[i - layout.num_free][1])
    return *range(layout.num_free), *by_level


def _rows(
    matrix: Matrix, offset: Sequence[float], columns: Columns, layout: Layout
) -> Array:
    """Computes matrix . eta + offset as [..., num_terms]."""
    reference = next(column for column in columns if column is not None)
    xp = namespace(reference)
    if not matrix:
        return xp.zeros((*reference.shape, 0), dtype=reference.dtype)
    terms = zip(matrix, offset, strict=True)
    values = [_affine(*term, columns, layout) for term in terms]
    values = [v if hasattr(v, "dtype") else xp.full_like(reference, v) for v in values]
    # In memory one term after the other, which is faster than all terms of a row.
    return xp.moveaxis(xp.stack(values), 0, -1)


def _affine(
    row: Sequence[float], offset: float, columns: Columns, layout: Layout
) -> Array:
    """Computes offset + row . eta as the sum of what rises less the sum of what falls.

    Cells are added in the order of the limits of mu. Rounding is monotone, so for
    compatible atoms no upper term of PNS or harm rounds below 0.
    """
    sums = []
    for sign in (1, -1):
        total = max(sign * offset, 0.0)
        for i in _order_of_addition(layout):
            weight = sign * row[i]
            if weight > 0:
                part = columns[i] if weight == 1 else weight * columns[i]
                total = part if isinstance(total, float) and not total else total + part
        sums.append(total)
    rising, falling = sums
    if isinstance(falling, float) and not falling:
        return rising
    return rising - falling


def _interval(estimand: Estimand, parts: _Parts) -> Interval:
    """Takes extremes over terms and limits, and closes gaps that rounding explains."""
    (lower_terms, upper_terms), denominator, is_defined = parts
    xp = namespace(lower_terms, upper_terms)
    floor, ceiling = estimand.floor, estimand.ceiling
    shape, dtype = lower_terms.shape[:-1], lower_terms.dtype
    lower, upper = (xp.full(shape, end, dtype=dtype) for end in (floor, ceiling))
    for i in range(lower_terms.shape[-1]):
        lower = xp.maximum(lower, lower_terms[..., i])
    for i in range(upper_terms.shape[-1]):
        upper = xp.minimum(upper, upper_terms[..., i])
    tolerance = _scale(estimand) * rounding_tolerance(dtype)

    def is_rounding(gap: Array) -> Array:
        return (gap > 0) & (gap * denominator <= tolerance)

    lower = xp.where(is_rounding(lower - ceiling), ceiling, lower)
    upper = xp.where(is_rounding(floor - upper), floor, upper)
    upper = xp.where(is_rounding(lower - upper), lower, upper)
    if is_defined is not True:
        lower, upper = (xp.where(is_defined, end, xp.nan) for end in (lower, upper))
    # The empty index makes a scalar of a 0-d array, as arithmetic does.
    return Interval(lower=lower[()], upper=upper[()])


def _scale(estimand: Estimand) -> float:
    """The greatest coefficient, 1 for a probability: rounding is relative to it."""
    if estimand.function is not None:
        return 1.0
    rows = estimand.lower_matrix + estimand.upper_matrix
    return max((abs(value) for row in rows for value in row), default=1.0)
