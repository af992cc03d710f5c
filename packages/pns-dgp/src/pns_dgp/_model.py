"""What every structural model offers, and how its exact truth is built.

Symbols: X is the treatment a unit takes, Y_x the outcome under do(X=x), Z the observed
covariates; what is hidden is summed out. A model's truth at z is the law of (X, Y_0, Y_1)
given Z = z: eight response-type cells from which all else follows.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import jax
import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int, Key, Num, Shaped

Array = jax.Array | np.ndarray
Source = Literal["observational", "experimental"]
"""Where a table comes from: units chose for themselves, or were assigned at random."""
SOURCES: tuple[Source, ...] = get_args(Source)
"""Both values of `Source`, the observational one first."""


class PotentialOutcomes(NamedTuple):
    """Units with both potential outcomes, which are never observed together."""

    z: Float[Array, "n num_covariates"]  # observed covariates, float32
    x: Int[Array, " n"]  # the treatment each unit chooses, 0 or 1
    y0: Int[Array, " n"]  # outcome under do(X=0)
    y1: Int[Array, " n"]  # outcome under do(X=1)


class Sample(NamedTuple):
    """A table as a learner sees it: covariates [n, d], treatment [n], outcome [n]."""

    z: Float[Array, "n num_covariates"]
    x: Int[Array, " n"]
    y: Int[Array, " n"]


class Truth(NamedTuple):
    """Exact probabilities at given covariates, float64.

    Sums and differences of the numbers here are exact (see `truth_from_cells`): the
    Tian-Pearl constraints hold and `pns` lies in `interval` with no tolerance.
    """

    atoms: pb.Atoms
    pns: Float[np.ndarray, " n"]  # P(Y_1=1, Y_0=0 | z)
    harm: Float[np.ndarray, " n"]  # P(Y_1=0, Y_0=1 | z)
    interval: pb.Interval  # the sharp Tian-Pearl interval for PNS


@runtime_checkable
class StructuralModel(Protocol):
    """The protocol that every model of this package satisfies."""

    @property
    def num_covariates(self) -> int:
        """How many covariates the learner sees."""
        ...

    def sample_population(self, key: Key[jax.Array, ""], n: int) -> PotentialOutcomes:
        """Draws units with both potential outcomes."""
        ...

    def sample(self, key: Key[jax.Array, ""], n: int, source: Source) -> Sample:
        """Draws a table; x is a fair coin if the source is experimental.

        Tables of the two sources are independent, also from one key. The first rows do not
        depend on n.
        """
        ...

    def oracle(self, z: Num[Array, "n num_covariates"]) -> Truth:
        """Computes the exact truth at covariates z [n, num_covariates]."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Returns everything that defines the model, ready for JSON."""
        ...


def require(ok: Any, argument: str, problem: str) -> None:
    """Raises an InputError unless a condition on an argument holds."""
    if not ok:
        raise pb.InputError(argument, problem)


def source_key(key: Key[jax.Array, ""], source: str) -> Key[jax.Array, ""]:
    """Derives the key of a source, or raises if there is no such source."""
    require(source in SOURCES, "source", f"must be in {list(SOURCES)}, got {source!r}.")
    return jax.random.fold_in(key, SOURCES.index(source))


def check_count(n: int, name: str = "n") -> None:
    """Raises unless a number of rows is a whole number of at least one."""
    is_whole = isinstance(n, int | np.integer) and not isinstance(n, bool)
    problem = f"must be a whole number of at least 1, got {n!r}."
    require(is_whole and n >= 1, name, problem)


def as_numbers(name: str, values: Any) -> Float[np.ndarray, "..."]:
    """Converts an argument to float64, or raises."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise pb.InputError(name, f"must be an array of numbers: {error}.") from error


def checked_rows(
    z: Num[Array, "n num_covariates"], num_covariates: int
) -> Float[np.ndarray, "n num_covariates"]:
    """Converts covariates to float64 [n, num_covariates], or raises."""
    z = as_numbers("z", z)
    require(
        z.ndim == 2 and z.shape[1] == num_covariates,
        "z",
        f"must have shape [n, {num_covariates}], one column per observed covariate, got "
        f"{list(z.shape)}.",
    )
    check_entries("z", z, np.isfinite(z), "be finite")
    return z


def check_entries(
    name: str,
    values: Shaped[np.ndarray, "n d"],
    ok: Bool[np.ndarray, "n d"],
    rule: str,
    columns: Sequence[str] | None = None,
) -> None:
    """Raises, naming row and column, unless every entry of a matrix is fine."""
    for row, column in np.argwhere(~ok)[:1].tolist():
        raise pb.InputError(
            name,
            f"must {rule}; {int((~ok).sum())} entries do not, the first in row {row}, "
            f"column {columns[column] if columns else column}: {values[row, column]}.",
        )


def enumerate_binary(
    probs: Sequence[float] | Float[np.ndarray, " k"],
) -> tuple[Int[np.ndarray, "vectors k"], Float[np.ndarray, " vectors"]]:
    """Lists all values of k independent binaries, the last fastest, and their weights."""
    size = len(probs)
    require(
        size <= 20,
        "num_hidden",
        f"must be at most 20, got {size}: the truth is a sum over all their values.",
    )
    vectors = (np.arange(2**size)[:, None] >> np.arange(size - 1, -1, -1)) & 1
    factors = np.where(vectors == 1, probs, 1 - np.asarray(probs, np.float64))
    return vectors, factors.prod(axis=1)


def truth_by_chunks(
    cells: Callable[[np.ndarray], Float[np.ndarray, "m x y0 y1"]],
    z: Float[np.ndarray, "n num_covariates"],
    num_hidden: int,
) -> Truth:
    """Computes the truth in chunks whose [rows, 2^num_hidden] tables have about 8 MB."""
    size = max(1, 2**20 >> num_hidden)
    parts = [cells(z[i : i + size]) for i in range(0, max(len(z), 1), size)]
    return truth_from_cells(np.concatenate(parts))


# Probabilities are kept as multiples of 2^-50. Of such numbers up to 8 in size, float64
# adds and subtracts without rounding; the step is 9e-16.
_STEPS = 2**50


def truth_from_cells(cells: Float[np.ndarray, "n x y0 y1"]) -> Truth:
    """Sums response-type cells into the truth, with no rounding left in the sums.

    Cells [n, x, y0, y1] are the law of (X, Y_0, Y_1) given z. Each is moved to the
    nearest multiple of 2^-50, and the largest absorbs what is missing to one, so that
    the truth satisfies every identity of probability exactly.

    Example:
      >>> cells = np.array([[[[0.1, 0.2], [0.1, 0.1]], [[0.05, 0.3], [0.05, 0.1]]]])
      >>> truth = truth_from_cells(cells)
      >>> [round(float(end[0]), 6) for end in (truth.pns, *truth.interval)]
      [0.5, 0.35, 0.65]
    """
    shape = pb.BINARY.response_shape
    problem = f"must have shape [n, {str(shape)[1:-1]}], got {list(np.shape(cells))}."
    require(np.shape(cells)[1:] == shape, "cells", problem)
    steps = np.rint(np.asarray(cells, np.float64) * _STEPS).astype(np.int64)
    flat = steps.reshape(-1, math.prod(shape))
    missing = _STEPS - flat.sum(1)
    is_law = np.all(flat >= 0) and np.all(np.abs(missing) <= 1e-9 * _STEPS)
    require(is_law, "cells", "must be a probability law in every row.")
    flat[np.arange(len(flat)), flat.argmax(1)] += missing
    steps = flat.reshape(-1, *shape)
    untreated, treated = steps[:, 0], steps[:, 1]  # [n, y0, y1]
    joint = np.stack([untreated.sum(2), treated.sum(1)], axis=1)
    both = untreated + treated
    mu = np.stack([both[:, 1].sum(1), both[:, :, 1].sum(1)], axis=1)
    atoms = pb.Atoms(joint=joint / _STEPS, mu=mu / _STEPS)
    return Truth(
        atoms=atoms,
        pns=both[:, 0, 1] / _STEPS,
        harm=both[:, 1, 0] / _STEPS,
        interval=pb.pns_bounds(atoms),
    )
