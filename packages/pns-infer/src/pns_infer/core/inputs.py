"""What callers hand in: draws, terms and counts, checked at the door and cut into blocks."""

import collections
import concurrent.futures
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

import jax.core
import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int, Num

from pns_infer.core.critical import Side, TooFewDrawsError, make_side

Array = Any  # NumPy or JAX
Draws = pb.Atoms | pb.BoundTerms
Target = Literal["set", "parameter"]
Which = Literal["both", "lower", "upper"]
Selection = Literal["adaptive", "none"]
Result = TypeVar("Result")


class Block(NamedTuple):
    """Draws of some points, and their center if one was given."""

    draws: Draws
    center: Draws | None


def is_traced(*arrays: Array) -> bool:
    """Whether JAX is tracing, so that values are not known."""
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def check_alpha(alpha: float) -> None:
    """Raises unless 0 < alpha < 1."""
    if not 0 < alpha < 1:
        problem = f"must lie in (0, 1), got {alpha}; 0.05 asks for 95% coverage."
        raise pb.InputError("alpha", problem)


def check_option(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raises unless a keyword has one of its allowed values."""
    if value not in allowed:
        raise pb.InputError(name, f"must be one of {list(allowed)}, got {value!r}.")


def check_at_least(name: str, value: float, least: float) -> None:
    """Raises unless a number is finite and not too small."""
    if not least <= value < np.inf:
        raise pb.InputError(name, f"must be at least {least:g}, got {value}.")


def check_shape(
    name: str, array: Array, shape: tuple[int | str, ...], what: str = ""
) -> None:
    """Raises unless an array has this shape; a string stands for any length."""
    found = np.shape(array)
    if len(found) != len(shape) or any(
        isinstance(want, int) and want != have
        for want, have in zip(shape, found, strict=True)
    ):
        expected = ", ".join(map(str, shape))
        problem = f"must have shape [{expected}]{what}, got {list(found)}."
        raise pb.InputError(name, problem)


def checked_atoms(
    name: str, atoms: pb.Atoms, leading: tuple[int | str, ...]
) -> pb.Atoms:
    """Returns atoms as arrays; raises unless they have these leading dimensions."""
    joint, mu = _as_arrays(atoms)
    check_shape(f"mu of {name}", mu, (*leading, *pb.BINARY.mu_shape))
    leading = mu.shape[: len(leading)]
    check_shape(f"joint of {name}", joint, (*leading, *pb.BINARY.joint_shape))
    return pb.Atoms(joint, mu)


def cut_draws(
    draws: Draws | Iterable[Draws], points_per_chunk: int, center: Draws | None = None
) -> Iterator[Block]:
    """Cuts draws [num_draws, num_points] into blocks; a center needs one piece."""
    check_at_least("points_per_chunk", points_per_chunk, 1)
    if isinstance(draws, (pb.Atoms, pb.BoundTerms)):
        draws = [draws]
    elif center is not None:
        raise pb.InputError("center", "needs draws in one piece, not an iterable.")
    part = None
    for part in draws:
        yield from _cut(part, center, points_per_chunk)
    if part is None:
        raise pb.InputError("draws", "are empty: there are no draws of any block.")


def map_blocks(
    function: Callable[[Block], Result], blocks: Iterator[Block]
) -> list[Result]:
    """Applies a function to blocks of draws; to those of NumPy on several threads."""
    first = next(blocks)
    rest = itertools.chain([first], blocks)
    is_numpy = isinstance(first.draws[0], np.ndarray)
    return list((map_threads if is_numpy else map)(function, rest))


def _cut(draws: Draws, center: Draws | None, size: int) -> Iterator[Block]:
    draws = _checked_draws(draws)
    num_points = max(draws[0].shape[1], 1)
    if center is not None:
        center = _checked_center(draws, center)
    size = num_points if is_traced(*draws) else size
    for start in range(0, num_points, size):
        part = slice(start, start + size)
        middle = None
        if center is not None:
            middle = type(center)(*(leaf[part] for leaf in center))
        yield Block(type(draws)(*(leaf[:, part] for leaf in draws)), middle)


def _checked_draws(draws: Draws) -> Draws:
    if not isinstance(draws, (pb.Atoms, pb.BoundTerms)):
        kind = type(draws).__name__
        raise pb.InputError("draws", f"must be Atoms or BoundTerms, got {kind}.")
    leading = ("num_draws", "num_points")
    if isinstance(draws, pb.Atoms):
        draws = checked_atoms("draws", draws, leading)
    else:
        lower, upper = _as_arrays(draws)
        check_shape("lower of draws", lower, (*leading, "num_terms"))
        check_shape("upper of draws", upper, (*lower.shape[:2], "num_terms"))
        draws = pb.BoundTerms(lower, upper)
    if len(draws[0]) < 2:
        raise TooFewDrawsError(len(draws[0]), 2, "a standard error")
    return draws


def _checked_center(draws: Draws, center: Draws) -> Draws:
    if type(center) is not type(draws):
        wanted, found = type(draws).__name__, type(center).__name__
        problem = f"must be {wanted}, as the draws are, got {found}."
        raise pb.InputError("center", problem)
    for name, leaf, other in zip(draws._fields, center, draws, strict=True):
        check_shape(f"{name} of center", leaf, other.shape[1:], ", as one draw")
    return _as_arrays(center)


def _as_arrays(values: Any) -> Any:
    leaves = (leaf if hasattr(leaf, "shape") else np.asarray(leaf) for leaf in values)
    return type(values)(*leaves)


def make_sides(block: Block, estimand: pb.Estimand) -> tuple[Side, Side]:
    """Standardizes the terms of both sides; those of the lower side are negated."""
    terms = checked_terms(block.draws, estimand)
    middle: tuple[Array, Array] = (None, None)
    if block.center is not None:
        middle = _terms(block.center, estimand)
    sides = []
    for sign, values, at in zip((-1, 1), terms, middle, strict=True):
        xp = values.__array_namespace__()
        if at is not None and not is_traced(at) and not np.all(np.isfinite(at)):
            raise pb.InputError("center", "must be finite.")
        values = xp.moveaxis(sign * values, 0, -1)  # [points, terms, draws]
        if xp is np and values.strides[-1] != values.itemsize:
            values = np.ascontiguousarray(values)  # the draws of a term side by side
        sides.append(make_side(values, None if at is None else sign * xp.asarray(at)))
    return sides[0], sides[1]


def checked_terms(draws: Draws, estimand: pb.Estimand) -> pb.BoundTerms:
    """Evaluates the terms of draws; raises unless they are finite numbers."""
    sides = []
    for values in _terms(draws, estimand):
        xp = values.__array_namespace__()
        if not xp.isdtype(values.dtype, "real floating"):
            values = values.astype(float)
        if not is_traced(values) and not xp.all(xp.isfinite(values)):
            bad = np.flatnonzero(~np.isfinite(np.asarray(values)).all(axis=(0, 2)))
            raise pb.InputError(
                "draws",
                f"must be finite; those of {len(bad)} points in this block are not, the "
                f"first at index {bad[0]}.",
            )
        sides.append(values)
    return pb.BoundTerms(*sides)


def _terms(values: Draws, estimand: pb.Estimand) -> pb.BoundTerms:
    """Evaluates terms; a ratio whose denominator is 0 has those of its limits."""
    if isinstance(values, pb.BoundTerms):
        return values
    return estimand.terms(values, undefined="limits")


Item = TypeVar("Item")

_MOST_THREADS = 4  # more would wait for each other: Python itself has one at a time


def map_threads(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Applies a function to items, as `map`, on several threads, in their order.

    Items are taken a few ahead of the results, so that not all are in memory. Not for
    JAX, which traces and sets its precision by thread.
    """
    size = min(os.cpu_count() or 1, _MOST_THREADS)
    pending: collections.deque[concurrent.futures.Future[Result]] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > size:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


SOURCES = ("observational", "experimental")
# Both sources as trials: the log is one with the cells as outcomes, each arm another.
Trials = Float[np.ndarray, "*rows trials outcomes"]


def trial_laws(atoms: pb.Atoms) -> list[Trials]:
    """Returns the probabilities of the outcomes, of the log and of the trial."""
    joint, mu = (np.asarray(part, float) for part in atoms)
    log = joint.reshape(*mu.shape[:-1], 1, pb.BINARY.num_cells)
    return [log, np.stack([1 - mu, mu], axis=-1)]


def trial_counts(
    observational: Num[Array, "n treatments levels"],
    experimental: Num[Array, "n treatments levels"],
    num_rows: int,
) -> list[Trials]:
    """Returns the counts of the outcomes; raises unless they are counts of the rows."""
    tables = []
    for name, part in zip(SOURCES, (observational, experimental), strict=True):
        check_shape(name, part, (num_rows, *pb.BINARY.joint_shape))
        counts = np.asarray(part, float)
        if not np.all((counts >= 0) & (counts < np.inf)):
            raise pb.InputError(name, "must be counts: finite and not negative.")
        tables.append(counts)
    return [tables[0].reshape(num_rows, 1, pb.BINARY.num_cells), tables[1]]


def sum_by(
    place: Int[np.ndarray, " n"], values: Float[np.ndarray, "n ..."]
) -> Float[np.ndarray, "places ..."]:
    """Sums the rows of each place."""
    columns = values.reshape(len(values), -1).T
    sums = np.stack([np.bincount(place, column) for column in columns], axis=1)
    return sums.reshape(-1, *values.shape[1:])
