"""The cross-fitted method: cells and their counts, draws by cell, no cells at all."""

import dataclasses
import re

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm
import pytest
from pns_estimate.methods.crossfit import CROSSFIT, CrossFitRecipe
from pns_estimate.methods.residual import CellCounts, ResidualSampler, choose_cells
from pns_estimate.methods.stack import StackSampler
from pns_models import _placement
from small_stacks import SlopeMembers
from small_tables import deal_rows, draw_table, fit, small_networks, small_recipe


class OneLaw:
    """Says the same law of everybody, without any noise."""

    has_draws, is_posterior = True, False

    def atoms(self, z):
        return pb.Atoms(np.full((len(z), 2, 2), 0.25), np.full((len(z), 2), 0.5))

    def draws(self, key, z, num_draws):
        atoms = self.atoms(z)
        return pb.Atoms(*(np.repeat(part[None], num_draws, axis=0) for part in atoms))


@pytest.fixture
def sampler():
    """A known cell at z = 0 with 3,000 units; strength 1,000, half of the log is new."""
    counts = np.array([[500.0, 400, 300, 800, 300, 200, 100, 400]])
    values = (0.0, 1e3, 1e3, 0.5, 1.0, 0.5)
    settings = pi.ResidualSettings(*(np.array([value]) for value in values))
    profile = pi.ResidualProfile(settings, np.ones(1), np.zeros(1), rare_size=2999.0)
    return ResidualSampler(OneLaw(), CellCounts(np.zeros((1, 2)), counts), profile)


def test_draws_of_a_known_cell_have_the_moments_of_its_posterior(sampler):
    """Closed form: Dirichlet(1000 / 4 + counts / 2), Beta(500 + hits, 500 + misses)."""
    drawn = sampler.draws(jax.random.key(0), np.zeros((1, 2), np.float32), 4000)
    shape = 250 + sampler.cells.counts[0, :4] / 2
    mean = shape / shape.sum()
    error = np.sqrt(mean * (1 - mean) / (shape.sum() + 1))
    # 4,000 draws: a mean is right to 1.6% of a deviation, a deviation to 1.1%.
    joint = drawn.joint[:, 0].reshape(-1, 4)
    np.testing.assert_allclose(joint.mean(axis=0), mean, atol=0.08 * error.max())
    np.testing.assert_allclose(joint.std(axis=0), error, rtol=0.06)
    hits = 500 + sampler.cells.counts[0, [5, 7]]
    size = 1000 + sampler.cells.counts[0, 4:].reshape(2, 2).sum(axis=1)
    np.testing.assert_allclose(drawn.mu[:, 0].mean(axis=0), hits / size, atol=2e-3)
    estimate = sampler.atoms(np.zeros((1, 2), np.float32))
    np.testing.assert_allclose(estimate.joint[0].ravel(), mean, rtol=1e-6)
    np.testing.assert_allclose(estimate.mu[0], hits / size, rtol=1e-6)


def test_estimates_are_the_mean_of_draws_where_strengths_are_uncertain(sampler):
    """At the average strength of 30,500 the 1,000 units of arm 0 would weigh 3%."""
    values = np.array([[0, 0], [1e3, 6e4], [1e3, 6e4], [1, 1], [1, 1], [1, 1]])
    settings = pi.ResidualSettings(*values)
    profile = pi.ResidualProfile(settings, np.full(2, 0.5), np.zeros(2), 0.0)
    uncertain = dataclasses.replace(sampler, profile=profile)
    z, size = np.zeros((1, 2), np.float32), 4000
    drawn = uncertain.draws(jax.random.key(0), z, size)
    for draws, estimate in zip(drawn, uncertain.atoms(z), strict=True):
        error = draws.std(axis=0).max() / np.sqrt(size)
        np.testing.assert_allclose(draws.mean(axis=0), estimate, atol=4.5 * error)
    # Arm 1: half of (500 + 400) / 1500, half of (30,000 + 400) / 60,500.
    wanted = (900 / 1500 + 30400 / 60500) / 2
    np.testing.assert_allclose(uncertain.atoms(z).mu[0, 1], wanted, rtol=1e-6)


def test_a_cell_of_the_rare_size_itself_is_rare(sampler):
    """Strength 1,000 counts as 500 there; 3,000 units are in the cell."""
    z = np.zeros((1, 2), np.float32)
    profile = sampler.profile._replace(rare_size=3000.0)
    rare = dataclasses.replace(sampler, profile=profile)
    counts = sampler.cells.counts[0, 4:].reshape(2, 2)
    for one, strength in ((sampler, 1000), (rare, 500)):
        expected = (strength / 2 + counts[:, 1]) / (strength + counts.sum(axis=1))
        np.testing.assert_allclose(one.atoms(z).mu[0], expected, rtol=1e-6)


def test_people_of_a_cell_share_their_draws_and_others_get_the_models(sampler):
    z = np.array([[0, 0], [1, 0], [0, 0], [-0.0, 0]], np.float32)
    drawn = sampler.draws(jax.random.key(0), z, 200)
    np.testing.assert_array_equal(drawn.mu[:, 0], drawn.mu[:, 2])
    np.testing.assert_array_equal(drawn.mu[:, 0], drawn.mu[:, 3])
    assert np.all(pb.is_compatible(drawn))
    alone = sampler.draws(jax.random.key(0), z[1:2], 200)
    np.testing.assert_array_equal(alone.joint[:, 0], drawn.joint[:, 1])
    # Without counts the model is worth 1,000 units, half as many where people are rare.
    error = np.sqrt(0.25 * 0.75 / 501)
    np.testing.assert_allclose(drawn.joint[:, 1].std(axis=0), error, rtol=0.2)
    other = sampler.draws(jax.random.key(1), z, 200)
    assert np.abs(other.mu - drawn.mu).max() > 0.01


def test_small_cells_are_not_kept():
    z = np.array([[0.0], [1.0], [0.0], [2.0]], np.float32)
    cell = np.array([0, 1, 0, 2])
    totals = np.array([[9.0] + [0] * 7, [10.0] + [0] * 7, [3.0, 8.0] + [0] * 6])
    kept = choose_cells(z, cell, totals, least_size=10)
    np.testing.assert_array_equal(kept.z, [[1.0], [2.0]])
    np.testing.assert_array_equal(kept.find(z).sum(axis=1), [0, 10, 0, 11])


@pytest.mark.filterwarnings("ignore::pns_estimate.TableWarning")  # rows repeat
def test_covariates_may_repeat_without_any_cell_of_ten(tmp_path):
    """Three units in each of 1,000 combinations of age and region."""
    cell = np.arange(1000)
    covariates = pd.DataFrame({"age": 20 + cell % 50, "region": cell // 50})
    covariates["region"] = "region " + covariates["region"].astype(str)
    tables = []
    for copies, randomized in ((2, False), (1, True)):
        drawn = draw_table(1000 * copies, randomized, seed=copies)
        repeated = pd.concat([covariates] * copies, ignore_index=True)
        tables.append(drawn[["x", "y"]].join(repeated))
    estimator = fit(*tables, method="crossfit", recipe=small_recipe("crossfit"))
    sampler = estimator._state.sampler.inner
    assert isinstance(sampler, ResidualSampler) and not len(sampler.cells.z)
    answer = estimator.intervals(covariates[:20])
    assert (answer["lower"] <= answer["upper"]).all()
    estimator.save(tmp_path / "model")
    again = pe.PnsEstimator.load(tmp_path / "model").intervals(covariates[:20])
    pd.testing.assert_frame_equal(again, answer)


@pytest.mark.parametrize(("units", "joins"), [(5999, False), (6000, True)])
def test_networks_join_the_stack_from_6000_units_of_both_tables_on(units, joins):
    networks = dataclasses.replace(small_networks(), min_units=6000)
    learners = (pm.LEARNERS["ridge"], networks)
    recipe = CrossFitRecipe(learners, num_folds=2, members_per_fold=2)
    tables = draw_table(4000, False, 0), draw_table(units - 4000, True, 1)
    rows = deal_rows(CROSSFIT, tables, recipe)
    note = CROSSFIT.fit(jax.random.key(0), rows, recipe).notes[networks.name]
    if joins:
        assert "loss on data not seen" in note
    else:
        assert note == "left out: there are 5,999 rows, and networks need 6,000."


def test_all_networks_of_the_default_need_6000_units_and_nothing_else_does():
    least = {
        name: learner.min_units
        for name, learner in pm.LEARNERS.items()
        if isinstance(learner, pm.NetworkLearner)
    }
    assert least == dict.fromkeys(["networks", "networks_2", "networks_3"], 6000)
    assert CROSSFIT.recipe.learners == tuple(pm.LEARNERS.values())


@dataclasses.dataclass(frozen=True)
class Failing:
    """Fits nothing."""

    name: str = "a broken learner"

    def fit(self, key, resamples, context):
        raise FloatingPointError("the loss is not finite.")


@dataclasses.dataclass(frozen=True)
class Useless:
    """Says of everybody what nearly nobody does."""

    name: str = "a useless learner"

    def fit(self, key, resamples, context):
        fold = resamples.member_fold
        slopes = np.zeros((len(fold), 3, 6), np.float32)
        slopes[:, -1] = [6, 0, 0, -6, 9, -9]
        return SlopeMembers(fold, slopes)


def test_notes_name_every_class_with_its_weights_or_the_reason_why_it_has_none(tables):
    learners = (Useless(), pm.LEARNERS["ridge"], Failing(), pm.LEARNERS["splines"])
    recipe = CrossFitRecipe(learners, num_folds=2, members_per_fold=2)
    rows = deal_rows(CROSSFIT, tables, recipe)
    with pytest.warns(UserWarning, match="a broken learner was left out: the loss"):
        learned = CROSSFIT.fit(jax.random.key(0), rows, recipe)
    notes = learned.notes
    assert list(notes)[:5] == [each.name for each in learners] + ["the stack of these"]
    assert notes["a broken learner"].startswith("left out: ")
    assert notes["a broken learner"].endswith("the loss is not finite.")
    assert notes["a useless learner"].startswith("no weight; loss on data not seen ")
    stack = learned.sampler.inner.stack
    assert stack.names == ("ridge regression", "additive splines")
    np.testing.assert_allclose(stack.weights.sum(axis=0), 1, rtol=1e-9)
    for name, weights in zip(stack.names, stack.weights, strict=True):
        said = re.match(
            r"weight (\d+)% \(log\) and (\d+)% \(trial\); loss", notes[name]
        )
        np.testing.assert_allclose(
            np.array(said.groups(), float) / 100, weights, atol=0.006
        )
    # The loss of the stack by the held-out atoms themselves.
    atoms, held_out = learned.held_out_atoms, learned.held_out
    arms = np.stack([1 - atoms.mu, atoms.mu], axis=-1)
    losses = [
        -(counts * np.log(law)).sum() / counts.sum()
        for counts, law in zip(held_out[1:], (atoms.joint, arms), strict=True)
    ]
    found = re.findall(r"\d\.\d{4}", notes["the stack of these"])
    np.testing.assert_allclose(np.array(found[:2], float), losses, atol=2e-3)


def test_a_fit_of_which_all_learners_fail_raises_their_error(tables):
    recipe = CrossFitRecipe((Failing(),), num_folds=2, members_per_fold=2)
    rows = deal_rows(CROSSFIT, tables, recipe)
    with pytest.raises(FloatingPointError, match="not finite"):
        CROSSFIT.fit(jax.random.key(0), rows, recipe)


@pytest.mark.slow
def test_a_fit_uses_cells_only_where_people_share_covariates(tables):
    recipe = small_recipe("crossfit")
    shared = fit(*tables, method="crossfit", recipe=recipe)
    assert isinstance(shared._state.sampler.inner, ResidualSampler)
    scales = shared._state.sampler.inner.profile.settings.draw_scale
    assert scales.min() >= 0.5  # whatever the counts of cells say
    assert "people of the log" in " ".join(shared.summary_.notes.values())
    rng = np.random.default_rng(0)
    unique = [t.assign(age=rng.normal(size=len(t))) for t in tables]
    alone = fit(*unique, method="crossfit", recipe=recipe)
    assert isinstance(alone._state.sampler.inner, StackSampler)
    assert "people of the log" not in " ".join(alone.summary_.notes.values())
    without = dataclasses.replace(recipe, least_cell_size=None)
    refused = fit(*tables, method="crossfit", recipe=without)
    assert not hasattr(refused._state.sampler.inner, "cells")


@pytest.mark.slow
def test_every_row_has_the_answer_of_members_that_did_not_see_its_group(tables):
    site, recipe = np.arange(5000) % 40, small_recipe("crossfit")
    rows = deal_rows(CROSSFIT, tables, recipe, ["member"], groups=site)
    learned = CROSSFIT.fit(jax.random.key(0), rows, recipe)
    assert sum(part.sum() for part in learned.held_out[1:]) == 5000
    assert len(learned.held_out_atoms.mu) == len(learned.held_out.z) == 6
    assert np.all(pb.is_compatible(learned.held_out_atoms))
    assert all(len(set(rows.fold[rows.group == label])) == 1 for label in range(40))
    np.testing.assert_array_equal(learned.held_out.z[learned.held_out_place], rows.z)
    pairs = np.stack([learned.held_out_place, rows.fold])
    assert len(np.unique(pairs, axis=1).T) == 6


def test_rows_with_held_out_answers_are_those_of_the_tables_and_are_not_saved(
    tables, tmp_path
):
    recipe = small_recipe("crossfit")
    heavy = [table.assign(w=1.0 + 2 * table["member"]) for table in tables]
    estimator = fit(*heavy, method="crossfit", recipe=recipe, weights="w")
    population = estimator.population_
    rows, place = population.rows, population.tables.read.place
    assert rows.source[place].tolist() == [0] * 3000 + [1] * 2000 and rows.group is None
    for name, column in (("treatment", "x"), ("outcome", "y")):
        wanted = np.concatenate([table[column] for table in heavy])
        np.testing.assert_array_equal(getattr(rows, name)[place], wanted)
    weights = np.concatenate([table["w"] for table in heavy])
    np.testing.assert_array_equal(np.bincount(place, weights), rows.weights)
    assert len(rows.z) < 4000 and set(rows.fold) == {0, 1, 2}
    # People who share covariates and fold share their answer, and the fold decides it.
    one = heavy[0].iloc[0][["age", "region", "member"]]
    same = np.concatenate(
        [(table[list(one.index)] == one).all(axis=1) for table in heavy]
    )
    answers = population.atoms.mu[place[same]][:, 1]
    assert len(np.unique(answers)) == len(set(rows.fold[place[same]])) > 1
    estimator.save(tmp_path / "model")
    assert not pe.PnsEstimator.load(tmp_path / "model").has_population


@pytest.mark.filterwarnings("ignore::pns_estimate.TableWarning")
def test_trees_see_categories_and_gaps_of_the_tables_and_so_do_saved_ones(
    tables, people, tmp_path
):
    given = [t.assign(age=t["age"].where(t["age"] != 30)) for t in tables]
    recipe = CrossFitRecipe((pm.TreeLearner(max_trees=10),), 3, members_per_fold=2)
    options = {"missing": "indicator", "unseen": "unknown"}
    estimator = fit(*given, method="crossfit", recipe=recipe, **options)
    rows = people.assign(age=people["age"].astype(float))
    rows.loc[0, ["age", "region"]] = None
    rows.loc[1, "region"] = "atlantis"
    found = estimator.intervals(rows)
    assert np.isfinite(found[["lower", "upper"]]).all(axis=None)
    estimator.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.intervals(rows), found, check_exact=True)
    # The eight numbers of a row are four covariates of a tree.
    trees = next((tmp_path / "model").rglob("trees_0_0.txt")).read_text()
    infos = re.search("feature_infos=(.*)", trees)[1].split()
    assert len(infos) == 4, "age, flag, region missing, region"
    assert sorted(map(int, infos[3].removeprefix("-1:").split(":"))) == [0, 1, 2]


def test_a_recipe_of_another_method_is_told(tables):
    with pytest.raises(pe.UserError, match="must be a CrossFitRecipe, got Recipe"):
        fit(*tables, method="crossfit", recipe=small_recipe("epinet"))


def few_people(tables):
    observational, experimental = tables
    treated = experimental["x"] == 1
    two = [t.assign(g=np.arange(len(t)) % 2) for t in tables]
    return {
        "fewer people than folds": ((observational[:2], experimental[:9]), {}),
        "a part without an arm": (
            (
                observational,
                pd.concat([experimental[~treated], experimental[treated][:2]]),
            ),
            {},
        ),
        "fewer groups than folds": (two, {"groups": "g"}),
    }


@pytest.mark.filterwarnings("ignore::pns_estimate.TableWarning")  # few they are
@pytest.mark.parametrize(
    "name",
    ["fewer people than folds", "a part without an arm", "fewer groups than folds"],
)
def test_too_few_people_for_the_folds_are_told(tables, name):
    few, options = few_people(tables)[name]
    with pytest.raises(pe.UserError, match="too few rows for cross-fitting"):
        fit(*few, method="crossfit", recipe=small_recipe("crossfit"), **options)


@pytest.mark.slow
def test_a_covariate_that_is_constant_in_each_fold_and_fractional_weights_are_fine(
    tables, people
):
    """Each of three sites is a fold; weights are fractions, so all cells are."""
    rng = np.random.default_rng(0)
    odd = [
        t.assign(site=s, g=s, w=rng.uniform(0.2, 3.0, len(t)))
        for t, s in ((t, np.arange(len(t)) % 3) for t in tables)
    ]
    estimator = fit(
        *odd,
        method="crossfit",
        recipe=small_recipe("crossfit"),
        covariates=["region", "member", "site"],
        weights="w",
        groups="g",
    )
    population = estimator.population_
    rows, place = population.rows, population.tables.read.place
    site = np.concatenate([t["site"] for t in odd])
    assert all(len(set(rows.fold[rows.group == s])) == 1 for s in range(3))
    np.testing.assert_array_equal(rows.group[place], site)
    answer = estimator.intervals(people.assign(site=1))
    assert (answer["lower"] <= answer["upper"]).all()
    total = sum(t["w"].sum() for t in odd)
    np.testing.assert_allclose(estimator.sample_size_, total, rtol=1e-5)


@pytest.mark.slow
def test_intervals_are_narrower_with_more_people():
    """The same small recipe on a tenth of the people, and on all of them."""
    widths = []
    for size in (500, 5000):
        tables = draw_table(size, False, 3), draw_table(size // 2, True, 4)
        covariates = ["region", "member"]
        estimator = fit(
            *tables,
            method="crossfit",
            covariates=covariates,
            recipe=small_recipe("crossfit"),
        )
        answer = estimator.intervals(draw_table(50, True, 5)[covariates])
        widths.append((answer["upper"] - answer["lower"]).mean())
    assert widths[1] < widths[0] - 0.02


@pytest.mark.slow
def test_a_fit_goes_on_from_its_own_checkpoints_alone(tmp_path, monkeypatch):
    tables = draw_table(800, False, 7), draw_table(600, True, 8)
    recipe = CrossFitRecipe((small_networks(),), num_folds=3, members_per_fold=2)
    options = {"method": "crossfit", "recipe": recipe}
    options |= {"covariates": ["age", "member"], "checkpoint_dir": tmp_path}
    whole = fit(*tables, **options)

    def refuse(*arguments):
        raise AssertionError("trained again")

    monkeypatch.setattr(_placement, "train_members", refuse)
    again = fit(*tables, **options)
    people = tables[1].head(20)
    pd.testing.assert_frame_equal(again.intervals(people), whole.intervals(people))
    for others, seed in ((tables, 1), ((tables[0][1:], tables[1]), 0)):
        with pytest.raises(AssertionError, match="trained again"):
            fit(*others, **options, seed=seed)
