"""Saved estimators: the same answers, and clear words about damaged folders."""

import hashlib
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
    assert loaded.summary_ == fitted.summary_  # read back by type
    assert (loaded.method, loaded.num_draws, loaded.seed) == ("epinet", 300, 0)
    with pytest.raises(pe.UserError, match="exists already"):
        fitted.save(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def _rewrite(folder, card):
    """Replaces a card, with the right checksum."""
    text = json.dumps(card)
    (folder / "estimator.json").write_text(text)
    digests = json.loads((folder / "checksums.json").read_text())
    digests["estimator.json"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "checksums.json").write_text(json.dumps(digests))


def test_a_changed_file_is_told_by_its_checksum(linear, tmp_path):
    folder = tmp_path / "model"
    linear.save(folder)
    card = json.loads((folder / "estimator.json").read_text())
    whole = (folder / "checksums.json").read_text()
    (folder / ".DS_Store").write_text("what a file manager leaves")
    pe.PnsEstimator.load(folder)
    text = json.dumps({**card, "sample_size": 10 * card["sample_size"]})
    (folder / "estimator.json").write_text(text)
    with pytest.raises(pe.UserError, match="estimator.json is missing, cut short or"):
        pe.PnsEstimator.load(folder)
    _rewrite(folder, card)
    for damaged in ("{}", "[1]", whole[:40], None):
        (folder / "checksums.json").unlink()
        if damaged is not None:
            (folder / "checksums.json").write_text(damaged)
        with pytest.raises(pe.UserError, match="checksums.json (cannot be|is missing)"):
            pe.PnsEstimator.load(folder)


def test_a_full_disk_leaves_no_folder_behind(linear, tmp_path, monkeypatch):
    def full(*_):
        raise ValueError("RESOURCE_EXHAUSTED: write: No space left on device")

    monkeypatch.setattr(type(linear._state.sampler.inner), "save", full)
    with pytest.raises(pe.UserError, match="model cannot be written: No space left"):
        linear.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_folders_that_are_no_model_are_told(linear, tmp_path):
    with pytest.raises(pe.UserError, match="holds no model"):
        pe.PnsEstimator.load(tmp_path)
    linear.save(tmp_path / "old")
    card = json.loads((tmp_path / "old" / "estimator.json").read_text())
    for change, message in (
        ({"format": 99}, "is in format 99"),
        ({"format": 3}, "is in format 3, and this version reads format 4"),
        ({"summary": {}}, "estimator.json lacks 'treatment'"),
        ({"settings": {**card["settings"], "method": "forest"}}, "method must be one"),
    ):
        _rewrite(tmp_path / "old", {**card, **change})
        with pytest.raises(pe.UserError, match=message):
            pe.PnsEstimator.load(tmp_path / "old")
    linear.save(tmp_path / "less")
    text = (tmp_path / "less" / "estimator.json").read_text()
    (tmp_path / "less" / "estimator.json").write_text(text[: len(text) // 2])
    with pytest.raises(pe.UserError, match="or an incomplete one"):
        pe.PnsEstimator.load(tmp_path / "less")
    linear.save(tmp_path / "scale")
    scale = tmp_path / "scale" / "sampler" / "settings.npz"
    scale.unlink()
    with pytest.raises(pe.UserError, match="holds an incomplete model"):
        pe.PnsEstimator.load(tmp_path / "scale")


def test_a_damaged_network_is_told(fitted, tmp_path):
    fitted.save(tmp_path / "cut")
    arrays = next((tmp_path / "cut" / "sampler" / "inner").rglob("d/*"))
    arrays.write_bytes(arrays.read_bytes()[:20])
    with pytest.raises(pe.UserError, match="holds an incomplete model"):
        pe.PnsEstimator.load(tmp_path / "cut")


def test_a_sampler_of_an_unknown_kind_is_told(linear, tmp_path, monkeypatch):
    linear.save(tmp_path / "model")
    monkeypatch.setattr(pe.SAMPLERS, "_classes", {})
    with pytest.raises(pe.UserError, match="samplers of kind 'scaled'"):
        pe.PnsEstimator.load(tmp_path / "model")
