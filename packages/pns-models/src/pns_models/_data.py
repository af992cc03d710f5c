"""Data as counts: a covariate vector, and how many units did what.

A row stands for units that share covariates z: how many of them chose x and had y, and
how many were assigned an arm and had y. A unit on a row of its own has a single 1.
Identical vectors merge by adding counts, which leaves every likelihood exactly as it was;
merged rows are called cells.

With folds, a row holds the units of one fold that share covariates, so a covariate vector
has as many rows as folds in which it occurs.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from pns_bounds import BINARY

from pns_models._errors import require

Array = Any  # NumPy or JAX
_ALIGNMENT = 64  # bytes, of the memory that XLA reads


class Counts(NamedTuple):
    """Units grouped by covariates.

    Attributes:
      z: covariates, float32; distinct vectors if the counts are merged.
      observational: `[..., x, y]` units that chose x and had y.
      experimental: `[..., arm, y]` units assigned arm that had y.
    """

    z: Float[Array, "num_cells num_covariates"]
    observational: Float[Array, "num_cells treatments levels"]
    experimental: Float[Array, "num_cells treatments levels"]

    def merged(self, only_if_halved: bool = False) -> "Counts":
        """Merges rows with identical covariates by adding their counts.

        Args:
          only_if_halved: return these counts unless at most half of the rows remain.

        Example:
          >>> import numpy as np
          >>> ones = np.ones((3, 2, 2))
          >>> counts = Counts(np.array([[0.0], [1.0], [1.0]], np.float32), ones, ones)
          >>> merged = counts.merged()
          >>> merged.z.ravel().tolist(), merged.observational[1].tolist()
          ([0.0, 1.0], [[2.0, 2.0], [2.0, 2.0]])
          >>> len(counts.merged(only_if_halved=True).z)
          3
        """
        z = np.asarray(self.z)
        first, group = distinct_rows(z)
        if only_if_halved and 2 * len(first) > len(z):
            return self
        cells = sum_by_group(group, flat_weights(self), len(first)).astype(np.float32)
        cells = cells.reshape(-1, 2, *BINARY.joint_shape)
        return Counts(pick_rows(z, first), cells[:, 0], cells[:, 1])


class FoldedCounts(NamedTuple):
    """Counts by covariates and fold.

    Attributes:
      counts: the units of each row.
      fold: of each row, from 0.
      cell: of each row, from 0; rows of a cell share their covariates.
      covariate: of each column of z, the covariate that it belongs to, see `Rows`.
    """

    counts: Counts
    fold: Int[np.ndarray, " n"]
    cell: Int[np.ndarray, " n"]
    covariate: Int[np.ndarray, " d"] | None = None

    @property
    def num_folds(self) -> int:
        """Number of folds."""
        return int(self.fold.max()) + 1

    def cell_totals(self) -> Float[np.ndarray, "num_cells counts"]:
        """Sums the counts of each cell over the folds."""
        size = int(self.cell.max()) + 1
        return sum_by_group(self.cell, flat_weights(self.counts), size)

    def cell_covariates(self) -> Float[np.ndarray, "num_cells d"]:
        """Returns the covariates of each cell."""
        first = np.unique(self.cell, return_index=True)[1]
        return pick_rows(np.asarray(self.counts.z), first)


def distinct_rows(
    *labels: np.ndarray | None,
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " n"]]:
    """Finds which rows agree in all labels.

    Args:
      *labels: [n] each, or a table [n, d] of float32 alone; None says nothing.

    Returns:
      The first row of each kind, in the order of appearance, and the kind of each row.

    Example:
      >>> import numpy as np
      >>> first, kind = distinct_rows(np.array([7, 5, 7, 7]), np.array([0, 0, 1, 0]))
      >>> first.tolist(), kind.tolist()
      ([0, 1, 2], [0, 1, 2, 0])
      >>> z = np.array([[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]], np.float32)
      >>> distinct_rows(z)[1].tolist()
      [0, 1, 0]
    """
    given = [np.asarray(label) for label in labels if label is not None]
    if given[0].ndim == 2:
        return _distinct_vectors(given[0])
    kind = np.zeros(len(given[0]), np.int64)
    size = 1
    for label in given:
        values, code = np.unique(label, return_inverse=True)
        if size * len(values) >= 2**62:
            kind = np.unique(kind, return_inverse=True)[1]
            size = int(kind.max()) + 1
        kind, size = kind * len(values) + code, size * len(values)
    return _number_groups(kind)


def _distinct_vectors(
    z: Float[np.ndarray, "n d"],
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " n"]]:
    """Finds rows by a 64-bit hash of their bits and compares them in full: it is exact.

    Beside the table itself this takes a few numbers per row.
    """
    first, group = _number_groups(_row_hashes(z))
    for part in row_blocks(*z.shape):
        if not np.array_equal(z[part], z[first[group[part]]]):
            # Two different rows share a hash: group by the rows themselves.
            return _number_groups(np.unique(z, axis=0, return_inverse=True)[1])
    return first, group


def _row_hashes(z: Float[np.ndarray, "n d"]) -> Shaped[np.ndarray, " n"]:
    """Hashes rows of float32 to 64 bits, a block of rows at a time."""
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 2**64, size=z.shape[1], dtype=np.uint64) | np.uint64(1)
    hashes = np.empty(len(z), np.uint64)
    for part in row_blocks(*z.shape):
        block = np.ascontiguousarray(z[part], np.float32)
        block = block + np.float32(0)  # -0.0 becomes 0.0: they are equal, so they merge
        mixed = block.view(np.uint32).astype(np.uint64) * factors
        hashes[part] = (mixed ^ (mixed >> np.uint64(31))).sum(1)
    return hashes


def _number_groups(
    labels: Shaped[np.ndarray, " n"],
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " n"]]:
    """Numbers equal labels in the order of their first appearance."""
    _, first, group = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[group]


def sum_by_group(
    group: Int[np.ndarray, " n"], table: Float[np.ndarray, "n c"], size: int
) -> Float[np.ndarray, "{size} c"]:
    """Adds up the rows of each group."""
    return np.stack([np.bincount(group, column, size) for column in table.T], axis=1)


def pick_rows(
    table: Shaped[np.ndarray, "n ..."], rows: Int[np.ndarray, " m"]
) -> Shaped[np.ndarray, "m ..."]:
    """Picks rows; those that follow each other are no copy."""
    start = int(rows[0]) if len(rows) else 0
    part = slice(start, start + len(rows))
    return table[part if np.array_equal(rows, np.r_[part]) else rows]


def split_counts(
    rng: np.random.Generator, counts: Counts, held_out_fraction: float
) -> tuple[Counts, Counts]:
    """Holds each unit out with the given probability.

    Whole counts are thinned binomially, which is the same as a coin for each unit. Of a
    fractional one the whole part is thinned, and the rest goes to one side or the other.

    Returns:
      Training and held-out counts, each without its empty rows.
    """
    z, every = np.asarray(counts.z), np.asarray(counts[1:], np.float64)
    held_out = np.empty_like(every)
    for cells, out in zip(every, held_out, strict=True):
        whole = np.floor(cells)
        thinned = rng.binomial(whole.astype(int), held_out_fraction)
        tossed = rng.random(cells.shape) < held_out_fraction
        out[:] = thinned + (cells - whole) * tossed

    def without_empty(cells: Float[np.ndarray, "2 n treatments levels"]) -> Counts:
        filled = cells.sum(axis=(0, 2, 3)) > 0
        return Counts(z[filled], *cells[:, filled].astype(np.float32))

    return without_empty(every - held_out), without_empty(held_out)


def flat_weights(counts: Counts) -> Float[np.ndarray, "num_cells counts"]:
    """Puts the counts of each row side by side: observational, experimental."""
    parts = [
        np.asarray(part, np.float32).reshape(-1, BINARY.num_cells)
        for part in counts[1:]
    ]
    return np.concatenate(parts, axis=1)


def check_counts(counts: Counts) -> None:
    """Raises unless shapes fit, numbers are finite and both arms have units."""
    shapes = [np.shape(part) for part in counts]
    expected = [(shapes[0][0], *BINARY.joint_shape)] * 2
    require(
        len(shapes[0]) == 2 and shapes[1:] == expected,
        "counts",
        f"must have z [n, d] and two tables of cells {list(expected[0])}, got shapes "
        f"{shapes}; make them with rows_from_tables(...).counts().",
    )
    check_finite("z", np.asarray(counts.z))
    for name, cells in zip(counts._fields[1:], counts[1:], strict=True):
        cells = np.asarray(cells)
        is_right = np.all(np.isfinite(cells) & (cells >= 0))
        require(is_right, f"{name} counts", "must be finite and not negative.")
    arms = np.asarray(counts.experimental, np.float64).sum(axis=(0, 2))
    require(
        arms.sum() == 0 or arms.min() > 0,
        "experimental counts",
        "must have units in both arms, got "
        f"{arms[0]:g} in control and {arms[1]:g} in treatment.",
    )


def check_finite(name: str, z: Float[np.ndarray, "n d"]) -> None:
    """Raises if a number is missing or infinite."""
    bad = np.zeros(z.shape[1], bool)
    for part in row_blocks(*z.shape):
        bad |= ~np.isfinite(z[part]).all(axis=0)
    columns = np.flatnonzero(bad).tolist()
    require(not columns, name, f"has missing or infinite values in columns {columns}.")


def empty_table(num_rows: int, num_columns: int) -> Float[np.ndarray, "n d"]:
    """Makes a table to fill in, which JAX on a CPU reads without a copy of its own.

    Example:
      >>> empty_table(3, 2).shape
      (3, 2)
    """
    size = 4 * num_rows * num_columns
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    table = buffer[start : start + size].view(np.float32)
    return table.reshape(num_rows, num_columns)


def row_blocks(num_rows: int, num_columns: int) -> Iterator[slice]:
    """Cuts rows into blocks of about a million numbers: no temporaries of a table's size."""
    size = min(65_536, max(1, 2**20 // max(num_columns, 1)))
    return (slice(start, start + size) for start in range(0, num_rows, size))
