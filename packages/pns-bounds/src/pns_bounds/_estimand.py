"""What is bounded: one definition from which every bound and every term is computed.

An estimand lies above the greatest of its lower terms and its floor, and below the least
of its upper terms and its ceiling. Terms depend on the atoms; floor and ceiling are known
before any data. A term is an affine function of eta = (mu1, mu0, p11, p10, p01, p00), or
the quotient of one and a denominator that is linear in eta. Estimands are data: they
compare by value and can be static arguments of `jax.jit`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from pns_bounds._arrays import Array, is_normal, namespace, rounding_tolerance
from pns_bounds._atoms import ETA, Atoms, eta_columns
from pns_bounds._checks import checked_pair, require_option
from pns_bounds._compatibility import Incompatible, resolve_incompatible

Undefined = Literal["nan", "limits"]
Matrix = tuple[tuple[float, ...], ...]
Columns = Sequence[Any]  # of eta, each [...]; None for one that no term reads


class BoundTerms(NamedTuple):
    """Terms whose maximum (lower) and minimum (upper) bound an estimand.

    Attributes:
      lower: [..., num_lower].
      upper: [..., num_upper].
    """

    lower: Array
    upper: Array


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
      lower_labels: one formula per lower term, to read.
      upper_labels: one formula per upper term.
      lower_matrix: [num_lower, 6] over eta = (mu1, mu0, p11, p10, p01, p00).
      lower_offset: [num_lower].
      upper_matrix: [num_upper, 6].
      upper_offset: [num_upper].
      denominator: [6], what every term is divided by; None for 1.
      function: for terms that are neither: maps checked Atoms [...] to BoundTerms, and
        replaces the matrices.
      floor: a lower limit that needs no data.
      ceiling: an upper limit that needs no data.
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

    def __post_init__(self) -> None:
        """Turns sequences into tuples and checks that they fit together."""
        for side in ("lower", "upper"):
            labels = tuple(getattr(self, f"{side}_labels"))
            matrix = np.asarray(getattr(self, f"{side}_matrix"), float)
            offset = np.asarray(getattr(self, f"{side}_offset"), float)
            num_terms = 0 if self.function else len(labels)
            if matrix.size != 6 * num_terms or offset.shape != (num_terms,):
                raise ValueError(
                    f"the {side} terms of {self.name!r} need, for {len(labels)} labels, "
                    f"a matrix {[num_terms, 6]} and an offset {[num_terms]}, got shapes "
                    f"{list(matrix.shape)} and {list(offset.shape)}."
                )
            matrix = matrix.reshape(num_terms, 6)
            self._set(f"{side}_labels", labels)
            self._set(f"{side}_matrix", tuple(map(tuple, matrix.tolist())))
            self._set(f"{side}_offset", tuple(offset.tolist()))
        if self.denominator is not None:
            denominator = np.asarray(self.denominator, float)
            if denominator.shape != (6,):
                raise ValueError(
                    f"the denominator of {self.name!r} must have shape [6], over eta = "
                    f"({', '.join(ETA)}), got {list(denominator.shape)}."
                )
            self._set("denominator", tuple(denominator.tolist()))

    def _set(self, field: str, value: Any) -> None:
        object.__setattr__(self, field, value)  # the dataclass is frozen

    @property
    def is_linear(self) -> bool:
        """Whether every term is an affine function of eta."""
        return self.function is None and self.denominator is None

    def terms(self, atoms: Atoms, undefined: Undefined = "nan") -> BoundTerms:
        """Evaluates the terms: plain algebra, defined for incompatible atoms, too.

        Args:
          atoms: probabilities [...]; values are checked unless JAX is tracing.
          undefined: what terms are where the denominator is 0 (or less than the format's
            smallest normal number): 'nan', or 'limits', floor and ceiling: such atoms
            say nothing of the quotient.

        Returns:
          [..., num_lower] and [..., num_upper], without floor and ceiling.
        """
        require_option("undefined", undefined, ("nan", "limits"))
        terms, _, is_defined = self._parts(Atoms(*checked_pair(*atoms)))
        if is_defined is True:
            return terms
        xp = namespace(terms.lower)
        limits = (xp.nan, xp.nan)
        if undefined == "limits":
            limits = (self.floor, self.ceiling)
        return BoundTerms(
            *(
                xp.where(is_defined[..., None], side, limit)
                for side, limit in zip(terms, limits, strict=True)
            )
        )

    def bounds(self, atoms: Atoms, incompatible: Incompatible = "raise") -> Interval:
        """Computes the interval between the greatest lower and the least upper term.

        For the estimands of this package it is sharp: no narrower interval is valid.

        Args:
          atoms: probabilities [...]. Values are checked unless JAX is tracing (`jit`,
            `vmap`, `grad`), where no check is possible.
          incompatible: what to do with atoms that contradict each other: 'raise',
            'project' onto compatible ones, or 'allow'. Allowed, and under tracing, their
            bounds may cross (lower > upper).

        Returns:
          The interval [...], within floor and ceiling; NaN where undefined. A crossing
          that rounding explains is closed; a real contradiction stays visible.
        """
        atoms = resolve_incompatible(atoms, incompatible)
        return _interval(self, self._parts(atoms))

    def _parts(self, atoms: Atoms) -> _Parts:
        if self.function is not None:
            return _Parts(self.function(atoms), 1, True)
        return _evaluate(self, eta_columns(atoms))


def bounds_from(estimand: Estimand, columns: Columns) -> Interval:
    """Computes bounds from columns of eta that were checked before."""
    return _interval(estimand, _evaluate(estimand, columns))


def restrict(estimand: Estimand, known: Sequence[str]) -> Estimand:
    """Keeps the terms of a linear estimand that read only some entries of eta."""
    kept: dict[str, Any] = {}
    unknown = [i for i, name in enumerate(ETA) if name not in known]
    for side in ("lower", "upper"):
        matrix = getattr(estimand, f"{side}_matrix")
        rows = [i for i, row in enumerate(matrix) if not any(row[j] for j in unknown)]
        for field in (f"{side}_labels", f"{side}_matrix", f"{side}_offset"):
            kept[field] = [getattr(estimand, field)[i] for i in rows]
    return dataclasses.replace(estimand, **kept)


def _evaluate(estimand: Estimand, columns: Columns) -> _Parts:
    """Evaluates the matrices of an estimand."""
    lower, upper = estimand.lower_matrix, estimand.upper_matrix
    if estimand.denominator is None:
        return _Parts(
            BoundTerms(
                _rows(lower, estimand.lower_offset, columns),
                _rows(upper, estimand.upper_offset, columns),
            ),
            1,
            True,
        )
    # A small denominator magnifies rounding, so numerators are made of mu_x - p_x1,
    # which is exact where it is small: how many of the other arm would respond under x.
    mu1, mu0, p11, p10, p01, p00 = columns
    gains = [mu1 - p11, mu0 - p01, p11, p10, p01, p00]
    denominator = _affine(estimand.denominator, 0.0, columns)
    is_defined = is_normal(denominator)
    # No division by 0, and no NaN in gradients.
    safe = namespace(denominator).where(is_defined, denominator, 1)
    sides = [
        _rows(_over_gains(matrix), offset, gains) / safe[..., None]
        for matrix, offset in (
            (lower, estimand.lower_offset),
            (upper, estimand.upper_offset),
        )
    ]
    return _Parts(BoundTerms(*sides), safe, is_defined)


def _over_gains(matrix: Matrix) -> Matrix:
    """Rewrites rows over eta as rows over (mu1 - p11, mu0 - p01, p11, p10, p01, p00)."""
    return tuple((a, b, c + a, d, e + b, f) for a, b, c, d, e, f in matrix)


def _rows(matrix: Matrix, offset: Sequence[float], columns: Columns) -> Array:
    """Computes matrix . eta + offset as [..., num_terms]."""
    reference = next(column for column in columns if column is not None)
    xp = namespace(reference)
    if not matrix:
        return xp.zeros((*reference.shape, 0), dtype=reference.dtype)
    values = [_affine(*term, columns) for term in zip(matrix, offset, strict=True)]
    stacked = xp.stack(
        [v if hasattr(v, "dtype") else xp.full_like(reference, v) for v in values]
    )
    # In memory one term after the other, which is faster than all terms of a row.
    return xp.moveaxis(stacked, 0, -1)


def _affine(row: Sequence[float], offset: float, columns: Columns) -> Array:
    """Computes offset + row . eta as the sum of what rises less the sum of what falls.

    Cells with y = 0 are added before those with y = 1, as in the limits of mu. Rounding
    is monotone, so for compatible atoms no upper term of PNS or harm rounds below 0.
    """
    sums = []
    for sign in (1, -1):
        total = max(sign * offset, 0.0)
        for i in (0, 1, 3, 5, 2, 4):
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
