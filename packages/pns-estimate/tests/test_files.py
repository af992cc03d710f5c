"""Tables as people have them: other libraries, other separators and encodings."""

import gzip

import numpy as np
import pandas as pd
import pns_estimate as pe
import pyarrow as pa
import pytest
from absl import flags
from absl.testing import flagsaver
from pns_estimate.command import flags as _flags
from pns_estimate.tables.files import read_table

TABLE = pd.DataFrame({"größe": [1.5, 2.25], "ort": ["Köln", "Zug"], "n": [1, 2]})


@pytest.mark.parametrize(
    ("name", "options", "note"),
    [
        ("a.csv", {}, None),
        ("A.CSV", {}, None),
        ("a.csv", {"encoding": "utf-8-sig"}, None),
        ("a.tsv", {"sep": "\t"}, "separated by '\\t'"),
        ("a.csv", {"sep": ";"}, "separated by ';'"),
        (
            "a.csv",
            {"sep": ";", "decimal": ",", "encoding": "cp1252"},
            "separated by ';', numbers with a decimal comma, encoded as cp1252",
        ),
        ("a.csv", {"encoding": "utf-16"}, "encoded as utf-16"),
    ],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_text_is_read_whatever_its_form(tmp_path, name, options, note, is_packed):
    path = tmp_path / name
    TABLE.to_csv(path, index=False, **options)
    if is_packed:
        packed = tmp_path / f"{name}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path = packed
    said = []
    pd.testing.assert_frame_equal(read_table(path, "trial", said.append), TABLE)
    assert said == ([f"the trial table {path} is read as {note}"] if note else [])


def test_tables_that_speak_arrow_are_read():
    pd.testing.assert_frame_equal(read_table(pa.table(TABLE), "trial"), TABLE)

    class Foreign:  # as polars: nothing but the protocol
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table(TABLE).__arrow_c_stream__(requested_schema)

    pd.testing.assert_frame_equal(read_table(Foreign(), "trial"), TABLE)
    with pytest.raises(pe.UserError, match="must be a DataFrame or a path, got list"):
        read_table([1], "trial")


def test_numpy_arrays_with_names_are_read():
    columns = {"age": np.array([31, 52]), "sex": np.array(["f", "m"])}
    expected = pd.DataFrame(columns)
    pd.testing.assert_frame_equal(read_table(columns, "trial"), expected)
    fields = np.array(
        list(zip(*columns.values(), strict=True)), [("age", int), ("sex", "U1")]
    )
    pd.testing.assert_frame_equal(read_table(fields, "trial"), expected)
    with pytest.raises(pe.UserError, match=r"array without column names.*dictionary"):
        read_table(np.ones((3, 2)), "trial")
    for wrong in ({"age": [1, 2], "sex": [1]}, {"age": [[1, 2]]}):
        with pytest.raises(pe.UserError, match="lists of the same length, got shapes"):
            read_table(wrong, "trial")


def test_parquet_with_a_capital_ending_is_read(tmp_path):
    TABLE.to_parquet(tmp_path / "A.PARQUET")
    pd.testing.assert_frame_equal(read_table(tmp_path / "A.PARQUET", "trial"), TABLE)


def test_a_covariate_may_have_a_comma_in_its_name():
    with flagsaver.flagsaver():
        flags.FLAGS(["pns-estimate", '--covariates=age,"height, cm"'])
        assert _flags.COVARIATES.value == ["age", "height, cm"]
