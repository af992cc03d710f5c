"""Tables in and out: CSV and Parquet, and files that appear only when complete."""

import codecs
import gzip
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pns_estimate._errors import UserError, storage_reason

_TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_SAMPLE = 65_536  # bytes
_COMMA_NUMBER = re.compile(r"(^|;)-?\d+,\d+(;|$)", re.MULTILINE)


class TextFormat(NamedTuple):
    """Arguments of `pandas.read_csv`."""

    sep: str
    encoding: str
    decimal: str

    def note(self) -> str | None:
        """Says what is unusual about it."""
        unusual = {
            f"separated by {self.sep!r}": self.sep != ",",
            "numbers with a decimal comma": self.decimal != ".",
            f"encoded as {self.encoding}": self.encoding != "utf-8-sig",
        }
        return ", ".join(note for note, is_so in unusual.items() if is_so) or None


def sniff_format(path: Path) -> TextFormat:
    """Finds out from the first bytes of a file; a comma and UTF-8 if nothing speaks against."""
    is_packed = path.suffix.lower() == ".gz"
    with gzip.open(path) if is_packed else path.open("rb") as file:
        sample = file.read(_SAMPLE)
    encoding = _find_encoding(sample)
    text = sample.decode(encoding, errors="ignore")
    header = text.partition("\n")[0]
    sep = ","
    if path.name.lower().endswith((".tsv", ".tsv.gz")):
        sep = "\t"
    elif "," not in header:
        sep = max(",;\t|", key=header.count)
    is_comma = sep == ";" and _COMMA_NUMBER.search(text.replace("\r", "")) is not None
    return TextFormat(sep, encoding, "," if is_comma else ".")


def _find_encoding(sample: bytes) -> str:
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # may end in a letter
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"


def read_table(
    source: Any,
    name: str,
    tell: Callable[[str], None] | None = None,
    key: str | None = None,
) -> pd.DataFrame:
    """Reads a table, or a path that ends in .csv, .tsv (also with .gz) or .parquet.

    A table is a DataFrame, one of a library that speaks Arrow (polars, pyarrow), or NumPy
    arrays by column name (a dictionary, or one structured array). `tell` is called with a
    note if a text file is unusual. Values of the column `key` are kept as they are
    written: '007' is no 7.
    """
    if isinstance(source, pd.DataFrame):
        table = source
    elif hasattr(source, "__arrow_c_stream__"):
        table = pa.table(source).to_pandas()
    elif isinstance(source, (Mapping, np.ndarray)):
        table = _from_arrays(source, name)
    elif isinstance(source, (str, os.PathLike)):
        table = _read_file(Path(source), name, tell, key)
    else:
        raise UserError(
            f"the {name} table must be a DataFrame or a path, got "
            f"{type(source).__name__}."
        )
    check_shape(table.columns, len(table), name)
    return table


def _read_file(
    path: Path, name: str, tell: Callable[[str], None] | None, key: str | None
) -> pd.DataFrame:
    if path.is_dir():
        raise UserError(
            f"the {name} table {path} is a folder, which only fit and write_intervals "
            "read."
        )
    if not path.is_file():
        raise UserError(f"the {name} table {path} is not a file.")
    if not path.name.lower().endswith((*_TEXT, ".parquet")):
        raise UserError(
            f"the {name} table {path} must end in .csv, .tsv, .csv.gz, .tsv.gz or "
            ".parquet."
        )
    try:
        if path.suffix.lower() == ".parquet":
            return pd.read_parquet(path)
        style = sniff_format(path)
        options: dict[str, Any] = style._asdict()
        if path.suffix.lower() == ".gz":
            options["compression"] = "gzip"
        # Repeated names would be renamed in silence.
        header = pd.read_csv(path, header=None, nrows=1, dtype=str, **options)
        names = pd.Index(header.iloc[0])
        check_shape(names, len(header), name)
        if key is not None and key in names:
            options["dtype"] = {key: str}
        table = pd.read_csv(path, **options)
        if "dtype" in options:
            table[key] = _as_written(table[key])
    except UserError:
        raise
    except Exception as error:  # every reader has errors of its own
        raise UserError(
            f"the {name} table {path} cannot be read ({first_line(error)}); check that "
            "it is complete and what its ending says."
        ) from error
    if tell is not None and style.note() is not None:
        tell(f"the {name} table {path} is read as {style.note()}")
    if not isinstance(table.index, pd.RangeIndex):
        raise UserError(
            f"the {name} table {path} has rows with more fields than its header names; "
            "name every column."
        )
    return table


def _as_written(text: pd.Series) -> pd.Series:
    """Makes numbers of text that they are written as; else the text stays."""
    numbers = pd.to_numeric(text, errors="coerce")
    is_whole = pd.api.types.is_integer_dtype(numbers)
    return numbers if is_whole and (numbers.astype(str) == text).all() else text


def check_shape(columns: pd.Index, num_rows: int, name: str) -> None:
    """Raises for repeated names of columns, and for a table without rows."""
    repeated = columns[columns.duplicated()].unique().tolist()
    if repeated:
        raise UserError(
            f"the {name} table has the column names {repeated} more than once; rename "
            "them."
        )
    if not num_rows:
        raise UserError(f"the {name} table has no rows.")


def _from_arrays(source: Mapping[str, Any] | np.ndarray, name: str) -> pd.DataFrame:
    """Makes a table of a dictionary of columns, or of an array whose fields have names."""
    if isinstance(source, np.ndarray):
        if source.dtype.names is None:
            raise UserError(
                f"the {name} table is an array without column names; give a dictionary "
                "of columns, such as {'x': array[:, 0]}, or a DataFrame."
            )
        source = {field: source[field] for field in source.dtype.names}
    columns = {column: np.asarray(values) for column, values in source.items()}
    shapes = {column: values.shape for column, values in columns.items()}
    if any(len(shape) != 1 for shape in shapes.values()) or len({*shapes.values()}) > 1:
        raise UserError(
            f"the columns of the {name} table must be lists of the same length, got "
            f"shapes { ({c: list(s) for c, s in shapes.items()}) }."
        )
    return pd.DataFrame(columns)


def first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def write_json(path: Path, values: Any) -> None:
    """Writes JSON; the file appears when complete."""
    with complete_file(path) as aside:
        aside.write_text(json.dumps(values, indent=1) + "\n")


def remove(path: Path) -> None:
    """Removes a file, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def complete_file(path: Path, is_folder: bool = False) -> Iterator[Path]:
    """Gives a path to write to, and moves what was written to `path` at the end.

    The same for a folder, which must not exist.
    """
    path = Path(path).absolute()
    if is_folder and path.exists():
        raise UserError(f"{path} exists already; name a new folder, or remove it.")
    place: dict[str, Any] = {"prefix": f".{path.name}-", "dir": path.parent}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_folder:
            aside = Path(tempfile.mkdtemp(**place))
        else:
            handle, name = tempfile.mkstemp(**place)
            os.close(handle)
            aside = Path(name)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        yield aside
        aside.chmod(0o755 if is_folder else 0o644)
        aside.replace(path)
    except BaseException as error:
        remove(aside)
        if isinstance(error, Exception) and not isinstance(error, UserError):
            reason = storage_reason(error)
            if reason is not None:
                raise UserError(f"{path} cannot be written: {reason}.") from error
        raise
