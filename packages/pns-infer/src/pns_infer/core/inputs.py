"""What callers hand in: draws or terms, checked at the door."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar

import jax.core
import numpy as np
import pns_bounds as pb
from jaxtyping import Float

from pns_infer.core.critical import Side, TooFewDrawsError, make_side
from pns_infer.core.threads import map_threads

Array = Any  # NumPy or JAX
Draws = pb.Atoms | pb.BoundTerms
Target = Literal["set", "parameter"]
Which = Literal["both", "lower", "upper"]
Selection = Literal["adaptive", "none"]
Block = tuple[Draws, Draws | None]  # with its center, if one was given
Result = TypeVar("Result")


def is_traced(*arrays: Array) -> bool:
    """Whether JAX is tracing, so that values are not known."""
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def check_alpha(alpha: float) -> None:
    """Raises unless 0 < alpha < 1."""
    if not 0 < alpha < 1:
        raise ValueError(
            f"alpha must lie in (0, 1), got {alpha}; 0.05 asks for 95% coverage."
        )


def check_option(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raises unless a keyword has one of its allowed values."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}, got {value!r}.")


def check_sample_size(sample_size: float) -> None:
    """Raises unless log n is safely positive."""
    if not 2 <= sample_size < np.inf:
        raise ValueError(f"sample_size must be at least 2, got {sample_size}.")


def checked_counts(
    name: str, counts: Array, shape: tuple[int, ...]
) -> Float[np.ndarray, "..."]:
    """Returns counts as numbers; raises unless they have this shape and are counts."""
    counts = np.asarray(counts, float)
    if counts.shape != shape:
        raise ValueError(
            f"{name} must be counts of shape {list(shape)}, got {list(counts.shape)}."
        )
    if not np.all((counts >= 0) & (counts < np.inf)):
        raise ValueError(f"{name} must be counts: finite numbers, none below 0.")
    return counts


def term_blocks(
    draws: Draws | Iterable[Draws],
    estimand: pb.Estimand,
    points_per_chunk: int,
    center: Draws | None = None,
) -> Iterator[tuple[Side, Side]]:
    """Cuts draws into blocks of points, each as a pair of sides (lower negated).

    Args:
      draws: Atoms or BoundTerms [num_draws, num_points], or an iterable of those for one
        block of points after another.
      estimand: gives the terms of atoms.
      points_per_chunk: how many points to hold as terms at a time.
      center: Atoms or BoundTerms [num_points]; only for draws that are no iterable.
    """
    for block, middle in _blocks(draws, points_per_chunk, center):
        yield _sides(block, middle, estimand)


def map_sides(
    function: Callable[[Side, Side], Result],
    draws: Draws | Iterable[Draws],
    estimand: pb.Estimand,
    points_per_chunk: int,
    center: Draws | None = None,
) -> Iterator[Result]:
    """Applies a function to the blocks of `term_blocks`; NumPy's on several threads."""
    blocks = _blocks(draws, points_per_chunk, center)
    return _map_blocks(lambda block: function(*_sides(*block, estimand)), blocks)


def map_terms(
    function: Callable[[pb.BoundTerms], Result],
    draws: Draws | Iterable[Draws],
    estimand: pb.Estimand,
    points_per_chunk: int,
) -> Iterator[Result]:
    """Applies a function to blocks of terms [num_draws, points, num_terms]."""
    blocks = _blocks(draws, points_per_chunk, None)
    return _map_blocks(
        lambda block: function(_checked_terms(block[0], estimand)), blocks
    )


def _map_blocks(
    function: Callable[[Block], Result], blocks: Iterator[Block]
) -> Iterator[Result]:
    first = next(blocks)
    rest = itertools.chain([first], blocks)
    is_numpy = isinstance(first[0][0], np.ndarray)
    return map_threads(function, rest) if is_numpy else map(function, rest)


def _blocks(
    draws: Draws | Iterable[Draws], points_per_chunk: int, center: Draws | None
) -> Iterator[Block]:
    if points_per_chunk < 1:
        raise ValueError(
            f"points_per_chunk must be at least 1, got {points_per_chunk}."
        )
    if isinstance(draws, (pb.Atoms, pb.BoundTerms)):
        blocks: Iterable = _cut(draws, center, points_per_chunk)
    else:
        if center is not None:
            raise ValueError("center needs draws in one piece, not an iterable.")
        blocks = itertools.chain.from_iterable(
            _cut(_checked_draws(block), None, points_per_chunk) for block in draws
        )
    found = False
    for block in blocks:
        found = True
        yield block
    if not found:
        raise ValueError("there are no draws: the iterable of blocks is empty.")


def _cut(draws: Draws, center: Draws | None, size: int) -> Iterator[Block]:
    """Yields blocks of at most `size` points of draws and of their center."""
    draws = _checked_draws(draws)
    num_points = draws[0].shape[1]
    if center is not None:
        center = _checked_center(draws, center)
    if is_traced(*draws):
        size = max(num_points, 1)
    for start in range(0, max(num_points, 1), size):
        part = slice(start, start + size)
        middle = None
        if center is not None:
            middle = type(center)(*(leaf[part] for leaf in center))
        yield type(draws)(*(leaf[:, part] for leaf in draws)), middle


def _checked_draws(draws: Draws) -> Draws:
    if not isinstance(draws, (pb.Atoms, pb.BoundTerms)):
        raise TypeError(
            f"draws must be pns_bounds.Atoms or BoundTerms, got {type(draws).__name__}."
        )
    leaves = [leaf if hasattr(leaf, "shape") else np.asarray(leaf) for leaf in draws]
    trailing = [(2, 2), (2,)] if isinstance(draws, pb.Atoms) else [None, None]
    leading = []
    for name, leaf, shape in zip(draws._fields, leaves, trailing, strict=True):
        rank = 1 if shape is None else len(shape)
        if leaf.ndim != 2 + rank or (shape and leaf.shape[2:] != shape):
            expected = ", ".join(map(str, shape or ("num_terms",)))
            raise ValueError(
                f"draws of {name} must have shape [num_draws, num_points, {expected}], "
                f"got {list(leaf.shape)}."
            )
        leading.append(leaf.shape[:2])
    if leading[0] != leading[1]:
        raise ValueError(
            f"{draws._fields[0]} and {draws._fields[1]} must have the same draws and "
            f"points, got {list(leading[0])} and {list(leading[1])}."
        )
    if leading[0][0] < 2:
        raise TooFewDrawsError(leading[0][0], 2, "a standard error")
    return type(draws)(*leaves)


def _checked_center(draws: Draws, center: Draws) -> Draws:
    if type(center) is not type(draws):
        raise TypeError(
            f"center must be {type(draws).__name__} as the draws are, got "
            f"{type(center).__name__}."
        )
    for name, leaf, other in zip(draws._fields, center, draws, strict=True):
        if np.shape(leaf) != other.shape[1:]:
            raise ValueError(
                f"{name} of center must have shape {list(other.shape[1:])}, as one "
                f"draw, got {list(np.shape(leaf))}."
            )
    return type(center)(
        *(leaf if hasattr(leaf, "shape") else np.asarray(leaf) for leaf in center)
    )


def _sides(
    draws: Draws, center: Draws | None, estimand: pb.Estimand
) -> tuple[Side, Side]:
    terms = _checked_terms(draws, estimand)
    middle = None if center is None else _terms(center, estimand)
    sides = []
    for sign, values, at in (
        (-1, terms.lower, None if middle is None else middle.lower),
        (1, terms.upper, None if middle is None else middle.upper),
    ):
        xp = values.__array_namespace__()
        if at is not None and not is_traced(at) and not np.all(np.isfinite(at)):
            raise ValueError("center must be finite.")
        values = xp.moveaxis(sign * values, 0, -1)  # [points, terms, draws]
        if xp is np and values.strides[-1] != values.itemsize:
            values = np.ascontiguousarray(values)  # the draws of a term side by side
        sides.append(make_side(values, None if at is None else sign * xp.asarray(at)))
    return sides[0], sides[1]


def _checked_terms(draws: Draws, estimand: pb.Estimand) -> pb.BoundTerms:
    """Evaluates the terms of draws; raises unless they are finite numbers."""
    sides = []
    for values in _terms(draws, estimand):
        xp = values.__array_namespace__()
        if not xp.isdtype(values.dtype, "real floating"):
            values = values.astype(float)
        if not is_traced(values) and not xp.all(xp.isfinite(values)):
            bad = np.flatnonzero(~np.isfinite(np.asarray(values)).all(axis=(0, 2)))
            raise ValueError(
                f"draws must be finite; of this block, {len(bad)} points have draws "
                f"that are not, the first at place {bad[0]}."
            )
        sides.append(values)
    return pb.BoundTerms(*sides)


def _terms(values: Draws, estimand: pb.Estimand) -> pb.BoundTerms:
    """Evaluates terms; atoms that say nothing of a quotient have those of its limits."""
    if isinstance(values, pb.BoundTerms):
        return values
    return estimand.terms(values, undefined="limits")
