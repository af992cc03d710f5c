"""Tables larger than memory: Parquet files that are read in record batches."""

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import tqdm

from pns_estimate._errors import UserError
from pns_estimate.tables.files import first_line, read_table

BATCH = 131_072  # rows that are read at a time
_BYTES_PER_VALUE = 40  # what a fit in memory takes for each value of a table, about


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """A table that is read batch by batch, and never held as a whole.

    Attributes:
      name: what to call it in messages.
      dataset: its files.
      progress: whether to show a bar while it is read, if there is a terminal.
    """

    name: str
    dataset: ds.Dataset
    progress: bool = False

    @property
    def columns(self) -> list[str]:
        """Names of the columns, without those of a pandas index."""
        return _own_columns(self.dataset.schema)

    def num_rows(self) -> int:
        """Counts the rows; of files, by what they say of themselves."""
        with _readable(self.name):
            return self.dataset.count_rows()

    def head(self) -> pd.DataFrame:
        """Returns a table with the columns, and no rows."""
        return pd.DataFrame(columns=self.columns)

    def batches(self, columns: Sequence[str], doing: str) -> Iterator[pa.RecordBatch]:
        """Reads some columns, in the order of the files and of their rows.

        Args:
          columns: to read.
          doing: what the bar says.
        """
        show = self.progress and sys.stderr.isatty()
        bar = tqdm.tqdm(
            total=self.num_rows(),
            desc=f"{doing}: {self.name}",
            unit=" rows",
            unit_scale=True,
            disable=not show,
        )
        with bar, _readable(self.name):
            for batch in self.dataset.to_batches(
                columns=list(columns),
                batch_size=BATCH,
                batch_readahead=2,
                fragment_readahead=1,
            ):
                if batch.num_rows:
                    yield _without_dictionaries(batch)
                    bar.update(batch.num_rows)

    def frames(self, columns: Sequence[str], doing: str) -> Iterator[pd.DataFrame]:
        """Reads batches as DataFrames; their index counts the rows of the table."""
        start = 0
        for batch in self.batches(columns, doing):
            frame = to_pandas(pa.Table.from_batches([batch]), self.dataset.schema)
            frame.index = pd.RangeIndex(start, start + len(frame))
            start += len(frame)
            yield frame


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
) -> pd.DataFrame | Stream:
    """Reads a table, or opens it as a stream if it is meant to be one.

    A `pyarrow.dataset.Dataset` and a folder of Parquet files are streamed; so is one
    Parquet file that a fit in memory would need more than `memory_gb` for.

    Args:
      source: as for `read_table`, or a folder, or a dataset.
      name: what to call it in messages.
      memory_gb: what a fit may take.
      progress: whether streams show a bar.
      tell: as for `read_table`.
    """
    if isinstance(source, Stream):
        return source
    if isinstance(source, ds.Dataset):
        return _checked(Stream(name, source, progress))
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir():
            return _checked(Stream(name, _open_folder(path, name), progress))
        if path.suffix.lower() == ".parquet" and _is_large(path, memory_gb):
            return _checked(Stream(name, ds.dataset(path, format="parquet"), progress))
    return read_table(source, name, tell)


def as_stream(table: pd.DataFrame | Stream, name: str) -> Stream:
    """Returns a stream of a table that is in memory."""
    if isinstance(table, Stream):
        return table
    try:
        given = pa.Table.from_pandas(table, preserve_index=False)
    except pa.ArrowException as error:
        raise UserError(
            f"the {name} table has a column of mixed values ({first_line(error)}); make "
            "them alike, since tables are streamed here."
        ) from error
    return Stream(name, ds.dataset(given))


def _is_large(path: Path, memory_gb: float) -> bool:
    try:
        shape = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False  # whoever reads it says what is wrong
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


def _checked(stream: Stream) -> Stream:
    """Raises for repeated names and for a table without rows, as `read_table` does."""
    columns = pd.Index(stream.dataset.schema.names)
    repeated = columns[columns.duplicated()].unique().tolist()
    if repeated:
        raise UserError(
            f"the {stream.name} table has the column names {repeated} more than once; "
            "rename them."
        )
    if not stream.num_rows():
        raise UserError(f"the {stream.name} table has no rows.")
    return stream


def _without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replaces codes by their values: each batch has codes of its own."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def to_pandas(table: pa.Table, schema: pa.Schema) -> pd.DataFrame:
    """Makes a DataFrame; what were categories in `schema` are categories again."""
    frame = table.to_pandas()
    for column in frame.columns:
        if column in _categories(schema):
            frame[column] = frame[column].astype("category")
    return frame


def _categories(schema: pa.Schema) -> set[str]:
    """Returns the names of columns of categories, by their type or as pandas says."""
    stored = (schema.pandas_metadata or {}).get("columns", [])
    said = {c["name"] for c in stored if c["pandas_type"] == "categorical"}
    return said | {field.name for field in schema if pa.types.is_dictionary(field.type)}
