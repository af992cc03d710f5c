"""The paper's own recipes at their smallest: corrected intervals are wider."""

import jax
import numpy as np
import pns_bounds as pb
import pns_estimate as pe
import pytest
from pns_experiments.methods import METHODS
from pns_experiments.recipes import resize
from pns_experiments.replicates import draw_replicate

PAPER = ("paper_bootstrap_last_layer", "paper_epinet_low_dim")


@pytest.fixture(scope="module")
def data():
    return draw_replicate("li:7", 1500, 1000, num_test=40, replicate=0, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
@pytest.mark.filterwarnings("ignore::pns_infer.NotConvergedWarning")
def test_corrected_intervals_are_wider_than_plug_in_bounds(name, data):
    key = jax.random.key(2)
    answer = METHODS[name].answer(key, data.tables, data.z, 0.05, "smoke")
    assert np.all(pb.is_compatible(answer.atoms))
    plain = pb.pns_bounds(answer.atoms)
    widths = [np.mean(np.asarray(i.upper) - i.lower) for i in (answer.interval, plain)]
    assert widths[0] > widths[1] + 0.01


@pytest.mark.parametrize("name", METHODS)
def test_every_recipe_has_a_small_one_of_the_same_kind(name):
    recipe = METHODS[name].recipe
    small = resize(recipe, "smoke")
    assert type(small) is type(recipe)
    if isinstance(recipe, pe.CrossFitRecipe):  # a portfolio of recipes
        assert len(small.portfolio) == 1 and small.num_folds == 2
        small, recipe = small.portfolio[0], recipe.portfolio[0]
    assert type(small.network) is type(recipe.network)
    assert small.network.kind == recipe.network.kind
    assert small.network.backbone.width == 16 and small.training.max_steps == 40
    assert resize(recipe, "full") is recipe
