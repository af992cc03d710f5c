"""Saved estimators: the same answers, and clear words about damaged folders."""

import json

import numpy as np
import pandas as pd
import pns_estimate as pe
import pytest


def test_a_loaded_estimator_answers_bit_for_bit_the_same(fitted, people, tmp_path):
    folder = tmp_path / "model"
    fitted.save(folder)
    loaded = pe.PnsEstimator.load(folder)
    pd.testing.assert_frame_equal(
        loaded.intervals(people), fitted.intervals(people), check_exact=True
    )
    pd.testing.assert_frame_equal(
        loaded.atoms(people), fitted.atoms(people), check_exact=True
    )
    np.testing.assert_array_equal(loaded.average(people), fitted.average(people))
    assert loaded.summary_ == fitted.summary_
    assert loaded.compatibility() == fitted.compatibility()
    assert (loaded.method, loaded.num_draws, loaded.seed) == ("epinet", 300, 0)
    with pytest.raises(pe.UserError, match="exists already"):
        fitted.save(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_folders_that_are_no_model_are_told(linear, tmp_path):
    with pytest.raises(pe.UserError, match="holds no model"):
        pe.PnsEstimator.load(tmp_path)
    linear.save(tmp_path / "old")
    card = json.loads((tmp_path / "old" / "estimator.json").read_text())
    for change, message in (
        ({"format": 99}, "is in format 99"),
        ({"summary": {}}, "estimator.json lacks 'treatment'"),
        ({"settings": {**card["settings"], "method": "forest"}}, "method must be one"),
    ):
        changed = json.dumps({**card, **change})
        (tmp_path / "old" / "estimator.json").write_text(changed)
        with pytest.raises(pe.UserError, match=message):
            pe.PnsEstimator.load(tmp_path / "old")
    linear.save(tmp_path / "less")
    text = (tmp_path / "less" / "estimator.json").read_text()
    (tmp_path / "less" / "estimator.json").write_text(text[: len(text) // 2])
    with pytest.raises(pe.UserError, match="or an incomplete one"):
        pe.PnsEstimator.load(tmp_path / "less")
    linear.save(tmp_path / "scale")
    (tmp_path / "scale" / "sampler" / "scale.json").unlink()
    with pytest.raises(pe.UserError, match="holds an incomplete model"):
        pe.PnsEstimator.load(tmp_path / "scale")


def test_a_damaged_network_is_told(fitted, tmp_path):
    fitted.save(tmp_path / "cut")
    arrays = next((tmp_path / "cut" / "sampler" / "inner").rglob("d/*"))
    arrays.write_bytes(arrays.read_bytes()[:20])
    with pytest.raises(pe.UserError, match="holds an incomplete model"):
        pe.PnsEstimator.load(tmp_path / "cut")
