"""Tables that are read in batches: in memory they are one, Parquet files are many."""

import dataclasses
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import tqdm

from pns_estimate._errors import UserError
from pns_estimate._progress import advance, is_watched
from pns_estimate.tables.columns import Column, no_column
from pns_estimate.tables.files import check_shape, first_line, read_table

BATCH = 131_072  # rows that are read at a time
_PENDING = 2**20  # values that wait to be merged, at least
_BYTES_PER_VALUE = 40  # what a fit in memory takes for each value of a table, about


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """A table in memory, which is one batch."""

    name: str  # what to call it in messages
    frame: pd.DataFrame  # its rows

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.frame.columns)

    def num_rows(self) -> int:
        """Counts the rows."""
        return len(self.frame)

    def frames(self, columns: Sequence[str], doing: str) -> Iterator[pd.DataFrame]:
        """Yields the table; it may have more columns than were asked for."""
        del columns, doing
        yield self.frame

    def column(self, column: str) -> Column:
        """Returns the values of a column as they come."""
        return Column(self.name, self.frame[column], np.ones(len(self.frame), int))


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """A table that is read batch by batch, and never held as a whole."""

    name: str  # what to call it in messages
    dataset: ds.Dataset  # its files
    # Whether to show a bar while it is read, if there is a terminal.
    progress: bool = False

    @property
    def columns(self) -> list[str]:
        """Names of the columns, without those of a pandas index."""
        return _own_columns(self.dataset.schema)

    def num_rows(self) -> int:
        """Counts the rows; those of files from their metadata."""
        with _readable(self.name):
            return self.dataset.count_rows()

    def column(self, column: str) -> Column:
        """Reads a column; each of its values comes once, in order of appearance."""
        values, copies = pd.Series(dtype=object), np.zeros(0, int)
        pending: list[pd.Series] = []
        frames = self.frames([column], f"reading {column}")
        for frame in itertools.chain(frames, [None]):
            if frame is not None:
                pending.append(frame[column])
                if sum(map(len, pending)) <= max(_PENDING, len(values)):
                    continue
            both = pd.concat([values, *pending] if len(values) else pending)
            try:
                code, distinct = pd.factorize(both, use_na_sentinel=False)
            except TypeError as error:  # such as lists
                raise UserError(
                    f"the {self.name} table has a column that is neither numbers, text "
                    "nor booleans; name the covariates, without it."
                ) from error
            weights = np.concatenate([copies, np.ones(len(code) - len(copies))])
            copies = np.bincount(code, weights).astype(int)
            values, pending = pd.Series(distinct), []
        return Column(self.name, values, copies)

    def frames(self, columns: Sequence[str], doing: str) -> Iterator[pd.DataFrame]:
        """Yields batches of some columns, whose index counts the rows of the table."""
        show = self.progress and sys.stderr.isatty() and not is_watched()
        bar = tqdm.tqdm(
            total=self.num_rows(),
            desc=f"{doing}: {self.name}",
            unit=" rows",
            unit_scale=True,
            disable=not show,
        )
        start = 0
        with bar, _readable(self.name):
            for batch in self.dataset.to_batches(
                columns=list(columns),
                batch_size=BATCH,
                batch_readahead=2,
                fragment_readahead=1,
            ):
                if batch.num_rows:
                    frame = _to_pandas(batch, self.dataset.schema)
                    frame.index = pd.RangeIndex(start, start + len(frame))
                    start += len(frame)
                    yield frame
                    bar.update(len(frame))
                    advance(start / bar.total)


def _own_columns(schema: pa.Schema) -> list[str]:
    """Lists columns without those of a pandas index, which some of several files may have."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    named = {column for column in index if isinstance(column, str)}
    return [
        column
        for column in schema.names
        if column not in named and not re.fullmatch(r"__index_level_\d+__", column)
    ]


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Says of errors of Arrow which table cannot be read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"the {name} table cannot be read ({first_line(error)}); check that its files "
            "are complete and hold the same kinds of columns."
        ) from error


def open_table(
    source: Any,
    name: str,
    memory_gb: float,
    progress: bool = False,
    tell: Callable[[str], None] | None = None,
    key: str | None = None,
) -> Frame | Stream:
    """Reads a table, or opens it as a stream if it is meant to be one.

    A `pyarrow.dataset.Dataset` and a folder of Parquet files are streamed; so is one
    Parquet file that a fit in memory would need more than `memory_gb` for. A table that
    was opened before is returned as it is; anything else is read by `read_table`, which
    explains `key`.
    """
    if isinstance(source, Frame | Stream):
        return source
    dataset = source if isinstance(source, ds.Dataset) else None
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir():
            dataset = _open_folder(path, name)
        elif path.suffix.lower() == ".parquet" and _is_large(path, memory_gb):
            dataset = ds.dataset(path, format="parquet")
    if dataset is None:
        return Frame(name, read_table(source, name, tell, key))
    stream = Stream(name, dataset, progress)
    check_shape(pd.Index(dataset.schema.names), stream.num_rows(), name)
    return stream


def require_columns(table: Frame | Stream, columns: Sequence[str]) -> None:
    """Raises if a table lacks one of the columns."""
    for column in columns:
        if column not in table.columns:
            raise no_column(table.name, column, table.columns)


def _is_large(path: Path, memory_gb: float) -> bool:
    try:
        shape = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False  # reading it says what is wrong
    return shape.num_rows * shape.num_columns * _BYTES_PER_VALUE > memory_gb * 1e9


def _open_folder(folder: Path, name: str) -> ds.Dataset:
    """Opens all Parquet files of a folder, in the order of their paths."""
    found = folder.rglob("*")
    files = sorted(path for path in found if path.suffix.lower() == ".parquet")
    if not files:
        raise UserError(
            f"the {name} table {folder} is a folder without .parquet files."
        )
    if any("=" in str(path.relative_to(folder).parent) for path in files):
        raise UserError(
            f"the {name} table {folder} has columns in the names of its folders, which "
            "are not read; write them into the files, or in Python give "
            "pyarrow.dataset.dataset(folder, partitioning='hive')."
        )
    schemas = []
    for path in files:
        with _readable(name):
            schemas.append(pq.read_schema(path))
        first, last = set(_own_columns(schemas[0])), set(_own_columns(schemas[-1]))
        if first != last:
            lacking = path if first - last else files[0]
            columns = sorted(first - last or last - first)
            raise UserError(
                f"the file {lacking} of the {name} table has no column {columns[0]!r}, "
                "which other files have; all files need the same columns."
            )
    schema = schemas[0]
    if any(not schema.equals(other) for other in schemas):
        with _readable(name):  # such as whole numbers in one file, fractions in another
            schema = pa.unify_schemas(schemas, promote_options="permissive")
    return ds.dataset([str(path) for path in files], schema=schema, format="parquet")


def _to_pandas(batch: pa.RecordBatch, schema: pa.Schema) -> pd.DataFrame:
    """Makes a DataFrame; what were categories in `schema` are categories again."""
    columns = [  # codes are those of the batch
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    frame = pa.Table.from_arrays(columns, names=batch.schema.names).to_pandas()
    if not columns:  # its rows count all the same
        return pd.DataFrame(index=pd.RangeIndex(batch.num_rows))
    for column in _categories(schema) & set(frame.columns):
        frame[column] = frame[column].astype("category")
    return frame


def _categories(schema: pa.Schema) -> set[str]:
    """Returns the names of columns of categories, by their type or as pandas says."""
    stored = (schema.pandas_metadata or {}).get("columns", [])
    said = {c["name"] for c in stored if c["pandas_type"] == "categorical"}
    return said | {field.name for field in schema if pa.types.is_dictionary(field.type)}
