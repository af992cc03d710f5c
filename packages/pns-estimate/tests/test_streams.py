"""Streamed tables: the same answers as from tables in memory, and in bounded memory."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pns_estimate as pe
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from absl import flags
from absl.testing import flagsaver
from pns_estimate.answers import files as _files
from pns_estimate.command import main as _command
from pns_estimate.command import run as _command_run
from pns_estimate.methods import protocol
from pns_estimate.tables import readers as _readers
from pns_estimate.tables import rows as _rows
from pns_estimate.tables.columns import quantiles
from pns_estimate.tables.readers import Stream
from pns_estimate.tables.rows import MemoryLimit
from small_tables import draw_table, fit, small_recipe

# Rows are answered in blocks, and on some processors the float32 product of a row depends
# on how many rows stand beside it.
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}


def draw_rough_table(n, randomized, seed):
    """Draws a table with gaps, in which many rows agree."""
    table = draw_table(n, randomized, seed)
    table["age"] = table["age"] // 10 * 10.0
    table.loc[table.index % 19 == 3, "age"] = np.nan
    table.loc[table.index % 17 == 3, "region"] = None
    table["people"] = 1 + table.index % 3
    table["chance"] = 0.5
    return table


def write_folder(table, folder, num_files=3):
    folder.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(table)), num_files)):
        path = folder / f"part-{number}.parquet"
        table.iloc[rows].to_parquet(path, row_group_size=333)
    return folder


@pytest.fixture(scope="module")
def rough():
    return draw_rough_table(3000, False, 0), draw_rough_table(2000, True, 1)


@pytest.fixture(scope="module")
def folders(rough, tmp_path_factory):
    root = tmp_path_factory.mktemp("streams")
    names = ("log", "trial")
    return [write_folder(t, root / n) for t, n in zip(rough, names, strict=True)]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Cuts batches, merges and chunks in the middle of groups and files."""
    monkeypatch.setattr(_readers, "BATCH", 230)
    monkeypatch.setattr(_readers, "_PENDING", 300)
    monkeypatch.setattr(_rows, "_PENDING", 300)
    monkeypatch.setattr(_files, "_CHUNK", 20)


OPTIONS = {"method": "crossfit", "missing": "indicator", "assignment": "chance"}


@pytest.fixture(scope="module")
def both(rough, folders):
    """The same fit from memory and from folders, with weights."""
    options = {**OPTIONS, "recipe": small_recipe("crossfit"), "weights": "people"}
    return fit(*rough, **options), fit(*folders, **options)


def test_a_streamed_fit_is_the_fit_in_memory(both, rough):
    memory, streamed = both
    assert streamed._state.encoder == memory._state.encoder
    assert streamed.sample_size_ == memory.sample_size_
    wanted = dataclasses.asdict(memory.summary_)
    assert dataclasses.asdict(streamed.summary_) == wanted
    assert wanted["tables"]["observational"]["rows"] == 3000
    pd.testing.assert_frame_equal(
        streamed.intervals(rough[1]), memory.intervals(rough[1]), check_exact=True
    )
    cells = [each._state.sampler.inner.cells for each in both]
    np.testing.assert_array_equal(cells[1].z, cells[0].z)
    np.testing.assert_array_equal(cells[1].counts, cells[0].counts)


def test_rows_without_weights_count_one_each(rough, folders):
    options = {**OPTIONS, "recipe": small_recipe("crossfit")}
    options["covariates"] = ["member", "region", "age"]
    memory = fit(*(table.drop(columns="people") for table in rough), **options)
    streamed = fit(ds.dataset(folders[0]), rough[1], **options)  # one table is enough
    assert streamed._state.encoder == memory._state.encoder
    assert streamed.summary_.tables == memory.summary_.tables
    pd.testing.assert_frame_equal(
        streamed.intervals(rough[1]), memory.intervals(rough[1]), check_exact=True
    )


@pytest.mark.parametrize("method", ["folded", "linear"])
def test_every_method_and_sampling_weights_are_streamed(rough, folders, method):
    options = {"weights": "people", "weights_are": "sampling", "missing": "indicator"}
    options |= {"method": method, "assignment": "chance"}
    memory, streamed = fit(*rough, **options), fit(*folders, **options)
    np.testing.assert_allclose(streamed.sample_size_, memory.sample_size_)
    pd.testing.assert_frame_equal(
        streamed.intervals(rough[1]), memory.intervals(rough[1])
    )
    if method == "folded":
        np.testing.assert_allclose(
            streamed.compare_averages(), memory.compare_averages(), rtol=1e-6
        )


def test_averages_are_those_of_the_rows(both):
    memory, streamed = (each.population_ for each in both)
    for name in ("comparison", "subgroups", "value"):
        wanted, found = (getattr(each, name)() for each in (memory, streamed))
        assert found.index.tolist() == wanted.index.tolist()
        numbers = ["lower", "bound_lower", "bound_upper", "upper"]
        np.testing.assert_allclose(found[numbers], wanted[numbers], rtol=1e-6)
    members = [each.subgroups()["people"].tolist() for each in (memory, streamed)]
    assert members[0] == members[1]
    is_member = [
        each.average(lambda people: people["member"] == 1).bound_lower
        for each in (memory, streamed)
    ]
    np.testing.assert_allclose(is_member[1], is_member[0], rtol=1e-6)
    with pytest.raises(pe.UserError, match="must be a function"):
        streamed.average(np.ones(5000, bool))


def test_streamed_intervals_are_those_in_memory(both, rough, folders, tmp_path):
    memory, _ = both
    assert memory.write_intervals(tmp_path / "all.parquet", folders[1]) == 2000
    found = pd.read_parquet(tmp_path / "all.parquet")
    wanted = memory.intervals(rough[1])
    pd.testing.assert_frame_equal(found, wanted, check_index_type=False, **ROUNDING)
    assert memory.write_intervals(tmp_path / "some.parquet", rough[1].head(7)) == 7
    some = pd.read_parquet(tmp_path / "some.parquet")
    pd.testing.assert_frame_equal(some, found.head(7), **ROUNDING)


def test_streams_are_read_without_covariates_and_with_numbers_as_text(
    rough, folders, tmp_path
):
    plain = [table[["x", "y", "member"]] * 1 for table in rough]
    odd = plain[0].assign(member=plain[0]["member"].astype(str))
    written = (
        write_folder(odd, tmp_path / "odd"),
        write_folder(plain[1], tmp_path / "p"),
    )
    streamed, memory = (
        fit(*of, method="folded", covariates=["member"]) for of in (written, plain)
    )
    pd.testing.assert_frame_equal(streamed.subgroups(), memory.subgroups())
    none = fit(*written, method="folded", covariates=[])
    assert none.summary_.covariates == []
    assert none.write_intervals(tmp_path / "i.parquet", written[0]) == 3000
    table = pd.read_parquet(tmp_path / "i.parquet")
    assert len(table) == 3000 and table["lower"].nunique() == 1


def test_rows_of_the_text_are_numbered_through_all_batches(both, folders, tmp_path):
    people = Stream("prediction", ds.dataset(folders[1]))
    paths = tmp_path / "all.parquet", tmp_path / "all.csv"
    found = both[0]._write_intervals(paths[0], people, pe.Question(), paths[1])
    text = pd.read_csv(paths[1], index_col="row")
    assert text.index.tolist() == list(range(2000)) and len(found.sample) == 1000
    np.testing.assert_allclose(
        text["lower"], pd.read_parquet(paths[0])["lower"], rtol=1e-6
    )


def test_answers_that_are_forgotten_are_made_again(
    both, folders, tmp_path, monkeypatch
):
    memory, _ = both
    memory.write_intervals(tmp_path / "kept.parquet", folders[1])
    monkeypatch.setattr(_files, "_MOST_KNOWN", 3)
    memory.write_intervals(tmp_path / "forgotten.parquet", folders[1])
    kept, forgotten = (
        pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("kept", "forgotten")
    )
    pd.testing.assert_frame_equal(kept, forgotten, **ROUNDING)


def test_rows_are_those_in_memory_however_they_are_read(both):
    memory, streamed = (each.population_.rows for each in both)
    for name, wanted, found in zip(memory._fields, memory, streamed, strict=True):
        np.testing.assert_array_equal(found, wanted, err_msg=name)
    assert memory.copies.sum() > 2 * len(memory.z)


def test_a_streamed_column_has_every_value_once_in_order_of_appearance(rough, folders):
    stream = Stream("observational", ds.dataset(folders[0]))
    for column in ("age", "region", "member"):
        found = stream.column(column)
        wanted = rough[0][column].value_counts(sort=False, dropna=False)
        assert found.num_rows == 3000
        assert found.num_missing == rough[0][column].isna().sum()
        values = rough[0][column].drop_duplicates().tolist()
        assert list(map(str, found.values)) == list(map(str, values))
        assert sorted(found.copies) == sorted(wanted)


def test_quantiles_of_copies_are_those_of_repeated_values():
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 40):
        values, copies = rng.normal(size=size), rng.integers(1, 6, size)
        levels = np.array([0.0, 0.25, 0.5, 0.9, 1.0])
        every = np.repeat(values, copies)
        found = quantiles(values, copies, levels)
        np.testing.assert_allclose(found, np.quantile(every, levels), rtol=1e-12)
        assert found[2] == np.median(every)


def test_rows_that_differ_too_much_are_one_sentence(rough, folders):
    with pytest.raises(pe.UserError, match=r"memory_gb=2\.001.*round or bin") as caught:
        fit(*folders, method="crossfit", missing="indicator", memory_gb=2.001)
    assert "rows that differ" in str(caught.value)
    with pytest.raises(pe.UserError, match="positive number"):
        fit(*rough, method="crossfit", memory_gb=0)


def test_memory_is_that_of_distinct_rows_of_all_values():
    limit = MemoryLimit(2.5, num_values=20)  # 0.5 GB for rows of 2,700 bytes
    limit.check("experimental", 180_000)
    for other in (limit._replace(num_values=200), limit._replace(memory_gb=2.2)):
        with pytest.raises(pe.UserError, match="180,000 rows that differ"):
            other.check("experimental", 180_000)


def test_one_large_file_is_streamed(rough, tmp_path):
    rough[0].to_parquet(tmp_path / "log.parquet")
    path = tmp_path / "log.parquet"
    assert isinstance(_readers.open_table(path, "prediction", 5e-4), Stream)
    assert isinstance(_readers.open_table(path, "prediction", 1.0), _readers.Frame)


def test_a_pandas_index_is_no_column_and_categories_stay(tmp_path):
    table = pd.DataFrame({"a": pd.Categorical([3, 1, 3]), "b": [1.0, 2.0, 1.0]})
    table.index = pd.Index(["u", "v", "w"], name="person")
    table.to_parquet(tmp_path / "t.parquet")
    stream = _readers.open_table(tmp_path, "prediction", 1.0)
    assert stream.columns == ["a", "b"]
    (frame,) = stream.frames(["a"], "reading")
    assert frame["a"].dtype == "category" and frame["a"].tolist() == [3, 1, 3]


def test_an_index_without_a_name_that_only_some_files_have_is_no_column(tmp_path):
    table = pd.DataFrame({"a": [1, 2, 3], "b": [1.0, 2.0, 1.0]})
    table.to_parquet(tmp_path / "first.parquet")
    table.set_index(np.array([5, 7, 6])).to_parquet(tmp_path / "second.parquet")
    stream = _readers.open_table(tmp_path, "prediction", 1.0)
    assert stream.columns == ["a", "b"]
    found = pd.concat(stream.frames(["a", "b"], "reading"))
    pd.testing.assert_frame_equal(found, pd.concat([table, table], ignore_index=True))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.drop(columns="age"), r"part-9.* has no column 'age'"),
        (lambda t: t.assign(new=1), r"part-0.* has no column 'new'"),
        (lambda t: t.assign(x="yes"), "cannot be read"),
    ],
)
def test_files_that_differ_are_one_sentence(rough, tmp_path, change, message):
    folder = write_folder(rough[0], tmp_path / "log")
    change(rough[0]).to_parquet(folder / "part-9.parquet")
    with pytest.raises(pe.UserError, match=message):
        fit(folder, rough[1], method="crossfit", missing="indicator")


def test_what_cannot_be_streamed_is_one_sentence(rough, folders, tmp_path):
    for options, message in (
        ({"method": "crossfit", "groups": "age"}, "groups needs tables that fit"),
        ({"method": "crossfit", "covariates": ["height"]}, "no column 'height'"),
        ({"method": "crossfit", "assignment": "p"}, "no column 'p' of assignment"),
        ({"method": "crossfit"}, r"is missing in 158 rows"),
    ):
        with pytest.raises(pe.UserError, match=message):
            fit(*folders, **options)
    (tmp_path / "empty").mkdir()
    with pytest.raises(pe.UserError, match=r"folder without \.parquet files"):
        fit(tmp_path / "empty", rough[1], method="crossfit")
    write_folder(rough[0], tmp_path / "empty" / "year=1")
    with pytest.raises(pe.UserError, match="in the names of its folders"):
        fit(tmp_path / "empty", rough[1], method="crossfit")
    nobody = write_folder(rough[0].head(0), tmp_path / "nobody", 1)
    with pytest.raises(pe.UserError, match="has no rows"):
        fit(nobody, rough[1], method="crossfit")
    lists = pa.table({"x": [0, 1], "y": [0, 1], "z": [[1], [2]]})
    pq.write_table(lists, tmp_path / "a.parquet")
    with pytest.raises(pe.UserError, match="neither numbers, text nor booleans"):
        fit(*[ds.dataset(tmp_path / "a.parquet")] * 2, method="crossfit")


def test_a_negative_weight_is_not_hidden_by_a_sum(rough, tmp_path):
    table = rough[0].copy()
    table.loc[5, "people"] = -1
    folder = write_folder(table, tmp_path / "log")
    with pytest.raises(pe.UserError, match="must be positive numbers"):
        fit(folder, rough[1], weights="people", **OPTIONS)


def test_people_who_cannot_be_answered_for_are_found_by_their_rows(
    both, rough, tmp_path
):
    people = rough[1].copy()
    people.loc[700, "region"] = "moon"
    folder = write_folder(people, tmp_path / "people", 1)
    with pytest.raises(pe.UserError, match=r"among rows \d+ to \d+, .*moon"):
        both[0].write_intervals(tmp_path / "x.parquet", folder)
    assert not (tmp_path / "x.parquet").exists()


@pytest.fixture
def run_command(monkeypatch, capsys):
    """Runs the command with a small recipe; returns its code, and what it told."""
    method = dataclasses.replace(
        pe.METHODS["crossfit"], recipe=small_recipe("crossfit")
    )
    monkeypatch.setitem(protocol._METHODS, "crossfit", method)
    monkeypatch.setattr(_command_run, "use_compilation_cache", lambda: None)

    def run(**options):
        given = [f"--{name}={value}" for name, value in options.items()]
        with flagsaver.flagsaver(), pytest.raises(SystemExit) as caught:
            flags.FLAGS.unparse_flags()
            _command.run(["pns-estimate", *given])
        return caught.value.code or 0, *capsys.readouterr()

    return run


@pytest.mark.slow
def test_the_command_fits_and_answers_streams(
    both, rough, folders, tmp_path, run_command, monkeypatch
):
    tables = {"observational": folders[0], "experimental": folders[1]}
    columns = {"treatment": "x", "outcome": "y", "weights": "people"}
    options = {**columns, "missing": "indicator", "assignment": "chance"}
    options |= {"num_draws": 300, "memory_gb": 5, "out": tmp_path / "out"}
    code, _, told = run_command(**tables, **options, gains="1,0,0,-1")
    assert code == 2 and "--gains needs people who fit into memory" in told

    code, printed, told = run_command(**tables, **options)
    assert code == 0, told
    assert "crossfit, 3,000 + 2,000 rows" in told and "2,000 intervals" in printed
    wanted = both[0].intervals(rough[1])
    found = pd.read_parquet(tmp_path / "out" / "intervals.parquet")
    pd.testing.assert_frame_equal(found, wanted, **ROUNDING)
    text = pd.read_csv(tmp_path / "out" / "intervals.csv", index_col="row")
    np.testing.assert_allclose(text["lower"], wanted["lower"], rtol=1e-6)
    assert (tmp_path / "out" / "averages.csv").exists()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["memory_gb"] == 5
    page = (tmp_path / "out" / "report.html").read_text()
    assert "a sample of the people of the trial" in page

    monkeypatch.setattr(_command_run, "_CSV_ROWS", 1000)
    model = tmp_path / "out" / "model"
    code, _, told = run_command(load=model, predict=folders[1], out=tmp_path / "more")
    assert code == 0 and "no intervals.csv" in told
    assert not (tmp_path / "more" / "intervals.csv").exists()
    found = pd.read_parquet(tmp_path / "more" / "intervals.parquet")
    pd.testing.assert_frame_equal(found, wanted, **ROUNDING)
