"""The paper's own recipes at their smallest: corrected intervals are wider."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_estimate as pe
import pytest
from pns_dgp import Sample
from pns_experiments import methods
from pns_experiments.counting import CountingRecipe
from pns_experiments.methods import ENN_VARIANTS, METHODS
from pns_experiments.recipes import resize
from pns_experiments.refits import RefitRecipe, draw_refits
from pns_experiments.replicates import draw_replicate

PAPER = ("paper_bootstrap_last_layer", "paper_epinet_low_dim")


@pytest.fixture(scope="module")
def data():
    return draw_replicate("li:7", 1500, 1000, num_test=40, replicate=0, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
@pytest.mark.filterwarnings(
    "ignore::pns_infer.bootstrap.multiplier.NotConvergedWarning"
)
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
    if isinstance(recipe, pe.CrossFitRecipe):
        assert small.learners == recipe.learners[:1] and small.num_folds == 2
        assert small.members_per_fold == 2
        return
    if isinstance(recipe, RefitRecipe):
        assert 1 < small.num_refits < recipe.num_refits
        return
    if isinstance(recipe, CountingRecipe):  # no network
        assert 0 < small.num_draws < recipe.num_draws
        return
    assert type(small.network) is type(recipe.network)
    assert small.network.kind == recipe.network.kind
    assert small.network.backbone.width == 16 and small.training.max_steps == 40
    assert resize(recipe, "full") is recipe


@pytest.mark.filterwarnings("ignore::pns_estimate.TableWarning")
def test_methods_of_pns_estimate_see_a_category_as_text(monkeypatch):
    """Everything else sees indicators; points may have a label that no row has."""
    data = draw_replicate("world:mixed:1", 60, 50, 40, 0, seed=0)
    z, covariate = data.z, data.tables.covariate
    frames = []

    def noted(method):
        def call(self, *tables, **names):
            frames.extend(tables)
            return method(self, *tables, **names)

        return call

    for name in ("fit", "predict"):
        monkeypatch.setattr(
            pe.PnsEstimator, name, noted(getattr(pe.PnsEstimator, name))
        )
    key = jax.random.key(0)
    answer = METHODS["crossfit"].answer(key, data.tables, z, 0.05, "smoke")
    assert np.all(answer.interval.lower <= answer.interval.upper)
    log, trial, points = frames
    known = set(log["z0"]) | set(trial["z0"])
    assert not set(points["z0"]) <= known, "or nothing is unknown"
    for frame, given in zip(frames, (*[t.z for t in data.tables.both], z), strict=True):
        columns = frame.drop(columns=["x", "y"], errors="ignore")
        assert list(columns) == [f"z{j}" for j in range(6)]
        assert pd.api.types.is_string_dtype(columns["z0"])
        again = [columns["z0"].to_numpy()[:, None] == np.arange(25).astype(str)]
        again.append(columns.drop(columns="z0").to_numpy())
        np.testing.assert_array_equal(np.column_stack(again), given)
    assert len(covariate) == z.shape[1]


def test_tables_without_categories_reach_methods_of_pns_estimate_as_they_are(data):
    frame = methods._frame(data.z, data.tables.covariate)
    assert data.tables.covariate is None and set(frame.dtypes) == {np.dtype("float32")}
    np.testing.assert_array_equal(frame.to_numpy(), data.z)


@pytest.mark.parametrize("kind", ["boosted_trees", "logistic"])
def test_refits_of_a_classifier_find_the_law_where_it_is_constant(kind):
    """Covariates are noise, so the frequencies of the tables are what is to be found."""
    rng = np.random.default_rng(0)
    tables = []
    for size in (3000, 2000):
        x = rng.integers(0, 2, size)
        y = (rng.random(size) < np.where(x == 1, 0.7, 0.2)).astype(int)
        tables.append(Sample(rng.normal(size=(size, 2)), x, y))
    z = rng.normal(size=(300, 2))
    drawn = draw_refits(jax.random.key(0), tables, z, RefitRecipe(kind, 4))
    assert drawn.mu.shape == (4, 300, 2) and np.all(pb.is_compatible(drawn))
    # Trees overfit, so that projections move many points; the average is close.
    np.testing.assert_allclose(drawn.mu.mean(axis=(0, 1)), [0.2, 0.7], atol=0.08)
    np.testing.assert_allclose(
        drawn.joint.mean(axis=(0, 1)), [[0.4, 0.1], [0.15, 0.35]], atol=0.04
    )


def test_variants_of_the_paper_change_what_it_does_not_print_and_nothing_else():
    paper = METHODS["paper_epinet_low_dim"].recipe
    assert len({variant.name for variant in ENN_VARIANTS}) == len(ENN_VARIANTS)
    free = (
        "num_indices",
        "learning_rate",
        "epochs",
        "max_steps",
        "batch_size",
        "merge",
    )
    stopping = ("patience", "eval_every")
    for variant in ENN_VARIANTS:
        recipe = METHODS[variant.name].recipe
        assert recipe.network.initialization == "enn"
        network = dataclasses.replace(recipe.network, initialization="network")
        assert network == paper.network
        may_differ = free + (stopping if variant.num_steps is None else ())
        kept = {name: getattr(paper.training, name) for name in may_differ}
        assert dataclasses.replace(recipe.training, **kept) == paper.training


def test_800_epochs_are_11719_steps():
    """Four fifths of 150,000 units train, 8,192 at a time."""
    training = METHODS["paper_epinet_low_dim"].recipe.training
    visits = training.epochs * 150_000 * (1 - training.held_out_fraction)
    assert -(-visits // training.batch_size) == 11_719


@pytest.mark.slow
def test_points_with_equal_covariates_have_equal_intervals_in_their_order(data):
    """The points once and twice over, in another order."""
    method, key = METHODS["paper_enn_low_dim"], jax.random.key(2)
    once = method.answer(key, data.tables, data.z, 0.05, "smoke")
    twice = np.concatenate([data.z[::-1], data.z])
    both = method.answer(key, data.tables, twice, 0.05, "smoke")
    expected = np.concatenate([once.interval.lower[::-1], once.interval.lower])
    np.testing.assert_allclose(both.interval.lower, expected, rtol=1e-5)
    assert both.notes["steps"] == 40 and both.notes["held_out_loss"] > 0
