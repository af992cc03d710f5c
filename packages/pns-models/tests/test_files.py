"""Models on disk: bit for bit the same, by name, and clear about what is damaged."""

import json
import shutil

import chex
import jax
import orbax.checkpoint as ocp
import pns_models as pm
import pytest
from flax import nnx
from pns_models import _files, _model

pytestmark = pytest.mark.usefixtures("quick_compilation")

KINDS = ["anchored", "s_learner", "t_learner", "hypermodel", "epinet", "ensemble"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_predicts_bit_for_bit_the_same(fits, small, kind, tmp_path):
    model, z = fits[kind].model, small.covariates(50)
    model.save(tmp_path / "deep" / "model")
    loaded = pm.FittedModel.load(tmp_path / "deep" / "model")
    assert loaded.recipe == model.recipe
    chex.assert_trees_all_equal(loaded.atoms(z), model.atoms(z))
    if model.is_epistemic:
        pair = [m.draws(jax.random.key(1), z, 20) for m in (loaded, model)]
        chex.assert_trees_all_equal(*pair)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["model"]


def test_a_loaded_model_compiles_nothing(fits, small, tmp_path):
    model, z = fits["anchored"].model, small.covariates(50)
    model.atoms(z)
    model.save(tmp_path / "model")
    compiled = _model._central_atoms._cache_size()
    pm.FittedModel.load(tmp_path / "model").atoms(z)
    assert _model._central_atoms._cache_size() == compiled


def test_arrays_are_stored_by_name(small, tmp_path):
    small.model("epinet").save(tmp_path / "model")
    with ocp.StandardCheckpointer() as checkpointer:
        stored = checkpointer.restore(tmp_path / "model" / "arrays")
    assert set(stored) == {"base", "head", "prior"}
    state = nnx.state(small.model("epinet").network)
    kernel = stored["base"]["body"]["kernels"]["0"]["value"]
    chex.assert_trees_all_equal(kernel, state["base"]["body"]["kernels"][0][...])


def test_arrays_of_another_network_do_not_take_the_places(small, tmp_path):
    first = nnx.state(small.network("anchored"))
    _files.save_arrays(tmp_path / "arrays", first)
    chex.assert_trees_all_equal(_files.load_arrays(tmp_path / "arrays", first), first)
    renamed = nnx.State(dict(first))
    renamed["trunk"] = renamed.pop("body")
    with pytest.raises(ValueError, match="names or shapes of arrays differ: .*trunk"):
        _files.load_arrays(tmp_path / "arrays", renamed)


@pytest.fixture(scope="module")
def saved(fits, tmp_path_factory):
    """A saved model, to be copied and damaged."""
    folder = tmp_path_factory.mktemp("models") / "model"
    fits["anchored"].model.save(folder)
    return folder


def test_a_folder_is_not_written_twice(fits, saved):
    with pytest.raises(ValueError, match="exists already"):
        fits["anchored"].model.save(saved)


def test_a_folder_without_a_model_is_told(tmp_path):
    with pytest.raises(pm.DamagedModelError, match="holds no model"):
        pm.FittedModel.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99, "version": "7.0"}, "format 99, .* with pns-models 7.0"),
        ({"format": 1}, r"format 1, and this .* load it with pns-models 0\.1\."),
        ({"recipe": {}}, "model.json does not fit"),
        ({"recipe": {"network": {"kind": "forest"}}}, "one of .*'anchored'"),
        ({"standardizer": {}}, "model.json does not fit"),
    ],
)
def test_a_card_that_does_not_fit_is_told(saved, tmp_path, change, message):
    folder = shutil.copytree(saved, tmp_path / "model")
    card = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**card, **change}))
    with pytest.raises(pm.DamagedModelError, match=message):
        pm.FittedModel.load(folder)


def test_sizes_that_are_not_those_of_the_arrays_are_told(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "model")
    card = json.loads((folder / "model.json").read_text())
    card["recipe"]["network"]["backbone"]["width"] = 9
    (folder / "model.json").write_text(json.dumps(card))
    with pytest.raises(pm.DamagedModelError, match="names and shapes of a network of"):
        pm.FittedModel.load(folder)


def test_files_that_are_cut_short_or_missing_are_told(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "model")
    card = folder / "model.json"
    text = card.read_text()
    card.write_text(text[:100])
    with pytest.raises(pm.DamagedModelError, match="holds no model"):
        pm.FittedModel.load(folder)
    card.write_text(text)
    largest = max(folder.rglob("d/*"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-10])
    with pytest.raises(pm.DamagedModelError, match="its arrays cannot be read"):
        pm.FittedModel.load(folder)
    shutil.rmtree(folder / "arrays")
    with pytest.raises(pm.DamagedModelError, match="its arrays cannot be read"):
        pm.FittedModel.load(folder)
