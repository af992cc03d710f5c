"""Streams as tables of distinct rows, each with the number of rows like it.

Nothing that a fit learns from tells rows apart that agree in covariates, treatment,
outcome and fold. So what is held is one of them and how many there are, and memory grows
with the number of distinct rows, not with the number of rows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Int

from pns_estimate._errors import Setting, UserError
from pns_estimate.tables.columns import COPIES
from pns_estimate.tables.streams import Stream, to_pandas
from pns_estimate.tables.training_data import check_weights

FOLD = "__fold__"
_FIRST = "__first__"
_PENDING = 2**20  # rows that wait to be merged, at least
_BASE = 2e9  # bytes of a process that has imported and compiled everything, and draws
_PER_ROW = 1200  # bytes that a fit and its averages take for a distinct row
_PER_VALUE = 75  # and for each of its values; together, 2,700 were measured for 20


class MemoryLimit(NamedTuple):
    """What a fit may take.

    Attributes:
      memory_gb: all of it.
      num_values: of each row, encoded if the encoder is known.
      num_held: distinct rows of the other table.
    """

    memory_gb: float
    num_values: int
    num_held: int = 0

    def check(self, name: str, num_rows: int) -> None:
        """Raises if so many distinct rows would take too much.

        Args:
          name: of the table.
          num_rows: distinct ones so far.
        """
        row = _PER_ROW + _PER_VALUE * self.num_values
        need = (_BASE + row * (num_rows + self.num_held)) / 1e9
        if need > self.memory_gb:
            raise UserError(
                f"the {name} table has at least {num_rows:,} rows that differ from each "
                f"other, for which a fit takes about {need:.1f} GB or more, and it may "
                "take ",
                Setting("memory_gb", self.memory_gb),
                "; round or bin covariates so that more rows agree, leave some covariates "
                "out, give a sample of the rows, or raise ",
                Setting("memory_gb"),
                ".",
            )


def find_distinct_rows(
    stream: Stream,
    columns: Sequence[str],
    limit: MemoryLimit,
    weights: str | None = None,
    fold: Int[np.ndarray, " n"] | None = None,
) -> pd.DataFrame:
    """Reads a stream and merges rows that agree.

    Args:
      stream: the table.
      columns: in which rows must agree.
      limit: how many distinct rows may be held.
      weights: a column of weights, which are added up.
      fold: of each row of the stream; rows of different folds differ.

    Returns:
      The distinct rows in the order of their first appearance: the columns, the weights,
      `COPIES`, and `FOLD` if there are folds.
    """
    keys = [*columns, *([] if fold is None else [FOLD])]
    sums = [COPIES, *([] if weights is None else [weights])]
    merged: list[pa.Table] = []
    start = 0
    for batch in stream.batches([*columns, *sums[1:]], "counting rows"):
        size = batch.num_rows
        table = pa.Table.from_batches([batch])
        if weights is not None:
            values = check_weights(table[weights].to_pandas(), weights, stream.name)
            table = table.drop_columns([weights]).append_column(weights, [values])
        table = table.append_column(COPIES, [np.ones(size, np.int64)])
        table = table.append_column(_FIRST, [np.arange(start, start + size)])
        if fold is not None:
            table = table.append_column(FOLD, [fold[start : start + size]])
        start += size
        merged.append(_merge([table], keys, sums, stream.name))
        pending = sum(part.num_rows for part in merged[1:])
        if pending > max(_PENDING, merged[0].num_rows):
            merged = [_merge(merged, keys, sums, stream.name)]
            limit.check(stream.name, merged[0].num_rows)
    table = _merge(merged, keys, sums, stream.name).sort_by(_FIRST)
    limit.check(stream.name, table.num_rows)
    return to_pandas(table.drop_columns([_FIRST]), stream.dataset.schema)


def read_rows(
    stream: Stream, column: str, encode: Callable[[pd.DataFrame], np.ndarray]
) -> Int[np.ndarray, " n"]:
    """Encodes one column of a stream as a small integer per row.

    Args:
      stream: the table.
      column: to read.
      encode: makes integers below 128 of a table with that column.
    """
    parts = [
        encode(frame).astype(np.int8)
        for frame in stream.frames([column], "dealing folds")
    ]
    return np.concatenate(parts)


def _merge(
    parts: list[pa.Table], keys: list[str], sums: list[str], name: str
) -> pa.Table:
    """Merges rows that agree in the keys."""
    table = pa.concat_tables(parts, promote_options="permissive")
    wanted = [(_FIRST, "min"), *((column, "sum") for column in sums)]
    try:
        found = table.group_by(keys, use_threads=False).aggregate(wanted)
    except pa.ArrowNotImplementedError as error:
        raise UserError(
            f"the {name} table has a column that is neither numbers, text nor booleans; "
            "name the covariates, without it."
        ) from error
    results = [f"{column}_{how}" for column, how in wanted]
    return found.select([*keys, *results]).rename_columns([*keys, _FIRST, *sums])
