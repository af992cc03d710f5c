"""Models saved as JSON are the same models when loaded."""

import json

import numpy as np
import pns_bounds as pb
import pns_dgp
import pytest


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
    model = pns_dgp.acic_model(num_active=2, covariates=pns_dgp.RowCovariates(rows))
    pns_dgp.save_model(model, tmp_path / "model.json")
    with pytest.raises(
        pb.InputError, match="covariates must be .*: 50 rows given by the user"
    ):
        pns_dgp.load_model(tmp_path / "model.json")
    with pytest.raises(
        pb.InputError, match="covariates must be .*: 50 rows given by the user"
    ):
        others = pns_dgp.RowCovariates(rows * 2 + 1)
        pns_dgp.load_model(tmp_path / "model.json", covariates=others)
    loaded = pns_dgp.load_model(
        tmp_path / "model.json", covariates=pns_dgp.RowCovariates(rows)
    )
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
