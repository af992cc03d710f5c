"""Benchmark folders and saved models: written whole, read back, damaged ones refused."""

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
    model = pns_dgp.acic_model(num_active=2, covariates=rows)
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
    from pns_dgp import _files

    def fail(card):
        raise OSError("disk full")

    monkeypatch.setattr(_files, "_card_page", fail)
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


def test_a_li_model_survives_json(tmp_path):
    model = pns_dgp.random_li_model(9, 12, 4)
    pns_dgp.save_model(model, tmp_path / "model.json")
    assert pns_dgp.load_model(tmp_path / "model.json") == model
    readable = json.loads((tmp_path / "model.json").read_text())
    assert readable["parameters"]["effect"] == model.effect
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


@pytest.mark.parametrize("num_hidden", [0, 3])
def test_an_acic_model_survives_json(tmp_path, num_hidden):
    model = pns_dgp.acic_model(seed=2, num_hidden=num_hidden, gamma=0.2)
    pns_dgp.save_model(model, tmp_path / "model.json")
    loaded = pns_dgp.load_model(tmp_path / "model.json")
    z = np.random.default_rng(0).normal(size=(20, 200))
    np.testing.assert_array_equal(loaded.oracle(z).pns, model.oracle(z).pns)


def test_rows_of_a_user_must_be_given_again(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 6))
    model = pns_dgp.acic_model(num_active=2, covariates=rows)
    pns_dgp.save_model(model, tmp_path / "model.json")
    with pytest.raises(
        pb.InputError, match="covariates must be .*: 50 rows given by the user"
    ):
        pns_dgp.load_model(tmp_path / "model.json")
    with pytest.raises(
        pb.InputError, match="covariates must be .*: 50 rows given by the user"
    ):
        others = rows * 2 + 1
        pns_dgp.load_model(tmp_path / "model.json", covariates=others)
    loaded = pns_dgp.load_model(tmp_path / "model.json", covariates=rows)
    assert loaded.num_covariates == 6


def test_what_is_not_a_model_is_refused(tmp_path):
    path = tmp_path / "model.json"
    for content in (
        "",
        "[]",
        "{}",
        '{"model": "Other", "parameters": {}}',
        '{"model": "LiModel", "parameters": {}}',
        '{"model": "AcicModel", "parameters": {}}',
    ):
        path.write_text(content)
        with pytest.raises(pb.InputError, match="model.json is not a saved model"):
            pns_dgp.load_model(path)
