"""Benchmark folders: what is read back is what was written."""

import json

import chex
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_dgp
import pytest

MODELS = {"li": pns_dgp.li_model_1(), "acic": pns_dgp.acic_model(seed=5)}


def export(model, folder, seed=3):
    return pns_dgp.export_benchmark(
        model,
        folder,
        seed=seed,
        num_observational=300,
        num_experimental=200,
        num_test=50,
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_reads_back_identical(name, tmp_path):
    written = export(MODELS[name], tmp_path / "a" / "bench")
    read = pns_dgp.read_benchmark(tmp_path / "a" / "bench")
    assert read.card == written.card
    chex.assert_trees_all_equal_dtypes(read[:4], written[:4])
    chex.assert_trees_all_equal(read[:4], written[:4])
    assert len(read.observational.x) == 300 and len(read.experimental.x) == 200


@pytest.mark.parametrize("name", MODELS)
def test_the_card_remakes_the_model_and_its_draws(name, tmp_path):
    written = export(MODELS[name], tmp_path / "bench")
    model = pns_dgp.load_model(tmp_path / "bench" / "card.json")
    again = export(model, tmp_path / "again")
    chex.assert_trees_all_equal(again[:4], written[:4])
    other = export(model, tmp_path / "other", seed=4)
    assert not np.array_equal(other.observational.z, written.observational.z)


def test_the_tables_are_plain_parquet_with_the_truth_in_columns(tmp_path):
    written = export(MODELS["li"], tmp_path / "bench")
    test = pd.read_parquet(tmp_path / "bench" / "test.parquet")
    np.testing.assert_array_equal(test["p10"], written.truth.atoms.joint[:, 1, 0])
    np.testing.assert_array_equal(test["mu1"], written.truth.atoms.mu[:, 1])
    np.testing.assert_array_equal(test["upper"], written.truth.interval.upper)
    table = pd.read_parquet(tmp_path / "bench" / "experimental.parquet")
    assert list(table.columns) == [*(f"Z{i}" for i in range(1, 16)), "x", "y"]
    page = (tmp_path / "bench" / "README.md").read_text()
    assert f"{test['pns'].mean():.3f}" in page


def test_an_existing_folder_and_bad_counts_are_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(pb.InputError, match="exists already"):
        export(MODELS["li"], tmp_path / "mine")
    with pytest.raises(pb.InputError, match="num_observational must be .* at least 1"):
        pns_dgp.export_benchmark(MODELS["li"], tmp_path / "b", 0, 0, 10, 10)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_names_that_clash_with_the_tables_are_refused(tmp_path):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 3)))
    rows.columns = ["x", "age", "pns"]
    model = pns_dgp.acic_model(num_active=2, covariates=pns_dgp.RowCovariates(rows))
    with pytest.raises(pb.InputError, match=r"must not name covariates \['pns', 'x'\]"):
        export(model, tmp_path / "bench")


def test_numpy_numbers_are_numbers_and_large_seeds_are_refused(tmp_path):
    sizes = [np.int64(5)] * 3
    pns_dgp.export_benchmark(MODELS["li"], tmp_path / "a", np.int64(3), *sizes)
    with pytest.raises(pb.InputError, match=r"seed must lie in \[0, 2\^32\)"):
        pns_dgp.export_benchmark(MODELS["li"], tmp_path / "b", 2**40 + 1, 5, 5, 5)


def test_test_units_are_not_those_of_the_tables(tmp_path):
    written = export(MODELS["acic"], tmp_path / "bench")
    for table in (written.observational, written.experimental):
        assert not np.any(np.all(table.z[:50] == written.z_test, axis=1))


def test_a_failed_export_leaves_nothing_behind(tmp_path, monkeypatch):
    from pns_dgp import _benchmark

    def fail(card):
        raise OSError("disk full")

    monkeypatch.setattr(_benchmark, "_card_page", fail)
    with pytest.raises(OSError, match="disk full"):
        export(MODELS["li"], tmp_path / "bench")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_a_benchmark_is_refused(tmp_path):
    with pytest.raises(pb.InputError, match="is not a benchmark: card.json"):
        pns_dgp.read_benchmark(tmp_path)
    (tmp_path / "card.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(pb.InputError, match="not in the format"):
        pns_dgp.read_benchmark(tmp_path)
    export(MODELS["li"], tmp_path / "bench")
    path = tmp_path / "bench" / "experimental.parquet"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(pb.InputError, match="unusable .*experimental.parquet"):
        pns_dgp.read_benchmark(tmp_path / "bench")
    path.unlink()
    with pytest.raises(pb.InputError, match="unusable .*experimental.parquet"):
        pns_dgp.read_benchmark(tmp_path / "bench")
