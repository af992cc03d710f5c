"""Networks as a learner: they learn what they saw, and are judged on what they did not."""

import chex
import jax
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _network_learner, _placement
from pns_models._learner import RunContext
from pns_models._links import log_probabilities
from pns_models._members import make_cells

pytestmark = pytest.mark.usefixtures("quick_compilation")
# Linear in one binary covariate: it can hold every frequency.
SATURATED = pm.Recipe(
    pm.AnchoredConfig(pm.Backbone(8, depth=0)),
    pm.make_member_training(
        learning_rate=2e-2, weight_decay=0.0, max_steps=600, batch_size=512
    ),
)


@pytest.fixture(scope="module")
def folded(small):
    """One covariate in two folds; by this seed, frequencies that an anchored law has."""
    tables = [(z[:, 1:2], x, y) for z, x, y in small.tables(600, 500, seed=3)]
    rows = pm.rows_from_tables(*tables)
    return rows.deal(np.random.default_rng(0), 2).folded()[0]


@pytest.fixture(scope="module")
def resamples(folded):
    return pm.Resamples(folded)


@pytest.fixture(scope="module")
def members(resamples):
    learner = pm.NetworkLearner(SATURATED)
    return learner.fit(jax.random.key(0), resamples, RunContext())


def seen_totals(folded, member):
    """Adds up the counts of each cell outside a member's fold."""
    totals = np.zeros((2, 8))
    for cell, fold, *parts in zip(
        folded.cell, folded.fold, *folded.counts[1:], strict=True
    ):
        totals[cell] += (fold != member) * np.ravel(parts)
    return totals


def frequencies(totals):
    """Computes the frequencies of one cell."""
    joint, arms = totals[:4].reshape(2, 2), totals[4:].reshape(2, 2)
    return joint / joint.sum(), arms[:, 1] / arms.sum(axis=1)


def test_a_saturated_network_reaches_the_frequencies_of_what_it_saw(
    folded, resamples, members
):
    """Without the noise of minibatches; frequencies of everybody are not reached."""
    raw = members.raw(resamples.z)
    atoms = jax.tree.map(np.asarray, pm.atoms_from_raw(raw, "free"))
    everybody, errors, others = folded.cell_totals(), [], []
    for member in range(2):
        totals = seen_totals(folded, member)
        for cell in range(2):
            here = (atoms.joint[member, cell], atoms.mu[member, cell])
            own = frequencies(totals[cell])
            assert pb.is_compatible(pb.Atoms(*own)), "or no anchored law has them"
            for law, gaps in ((own, errors), (frequencies(everybody[cell]), others)):
                gaps += [np.abs(a - b).max() for a, b in zip(here, law, strict=True)]
    assert max(errors) < 0.002 and max(others) > 0.04


def test_the_held_out_loss_is_that_of_each_fold_by_its_member(folded, members):
    raw = members.raw(folded.counts.z)
    logs = log_probabilities(raw, "free")
    total = 0.0
    for source, cells in enumerate(folded.counts[1:]):
        terms = [
            (cells[row] * logs[source][folded.fold[row], row]).sum()  # member j: fold j
            for row in range(len(folded.fold))
        ]
        total -= sum(terms) / cells.sum()
    assert members.fold.tolist() == [0, 1]
    loss = _network_learner._held_out_loss(members, folded)
    np.testing.assert_allclose(loss, total, rtol=1e-5)
    np.testing.assert_allclose(members.history.held_out[-1], loss, rtol=1e-6)
    # Few units: half of the 600 steps.
    assert members.history.step.tolist() == list(range(30, 301, 30))


def test_some_rows_are_of_all_folds(small, monkeypatch):
    rows = pm.rows_from_tables(*small.tables())
    folded, _ = rows.deal(np.random.default_rng(0), 3).folded()
    monkeypatch.setattr(_network_learner, "_EVAL_ROWS", 6)
    some = _network_learner._some_rows(folded)
    assert 3 <= len(some.fold) <= 6 and set(some.fold) == {0, 1, 2}


@pytest.mark.parametrize(("loss", "param"), [(np.nan, 1), (0.5, np.nan), (np.inf, 1)])
def test_losses_or_parameters_that_are_not_finite_are_told(loss, param):
    params = {"kernel": np.array([1.0, param])}
    with pytest.raises(pm.DivergedError, match="after 7 steps; try a smaller"):
        _network_learner._check_finite(7, np.array([0.5, loss]), params)


@pytest.mark.parametrize("num_cores", [1, 2])
def test_the_number_of_cores_does_not_matter(
    resamples, members, monkeypatch, num_cores
):
    monkeypatch.setattr(_placement, "num_cores", lambda: num_cores)
    learner = pm.NetworkLearner(SATURATED)
    again = learner.fit(jax.random.key(0), resamples, RunContext())
    np.testing.assert_array_equal(again.raw(resamples.z), members.raw(resamples.z))
    chex.assert_trees_all_equal(again.history, members.history)


@pytest.mark.parametrize("num_cores", [3, 4])
def test_members_that_pause_so_that_cores_end_together_lose_no_step(
    resamples, members, monkeypatch, num_cores
):
    """Two members on one core train without a pause; on three or four they pause."""
    program, states = _network_learner.make_states(
        jax.random.key(0), resamples, SATURATED
    )
    cells = make_cells(resamples, members.model.standardizer, 16)
    found = []
    for cores in (1, num_cores):
        monkeypatch.setattr(_placement, "num_cores", lambda cores=cores: cores)
        placed = _placement.OnCores(program, states, cells)
        losses = [placed.train(12), placed.train(12)]
        found.append((np.stack(losses, axis=1), placed.state()))
    assert found[1][0].shape == (2, 2) and found[1][1][2].tolist() == [24, 24]
    chex.assert_trees_all_close(found[1], found[0], atol=1e-6)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("default", "recipe must be a Recipe, got 'default'"),
        (pm.PRESETS["default"], "no patience"),
        (pm.PRESETS["default_ensemble"], "of an anchored network"),
        (pm.PRESETS["paper_bootstrap"], "needs max_steps"),
        (
            pm.Recipe(training=pm.make_member_training(batch_size=1)),
            "batch_size of 2",
        ),
    ],
)
def test_recipes_that_cannot_be_used_are_told(recipe, message):
    with pytest.raises(pb.InputError, match=message):
        pm.NetworkLearner(recipe)


def test_default_networks_survive_json_and_are_of_several_kinds():
    learners = [each for each in pm.LEARNERS.values() if hasattr(each, "recipe")]
    recipes = [learner.recipe for learner in learners]
    assert len({each.name for each in pm.LEARNERS.values()}) == len(pm.LEARNERS)
    assert len(set(recipes)) == len(recipes) >= 2
    for recipe in recipes:
        assert pm.Recipe.from_json(recipe.to_json()) == recipe
    # A kind without a bottleneck: not every world has few combinations that matter.
    assert None in {recipe.network.backbone.bottleneck for recipe in recipes}


@pytest.mark.parametrize(
    ("units", "steps"),
    [(60_000, 3000), (59_999, 1500), (30_000, 1500), (29_999, 750), (10, 375)],
)
def test_training_has_half_the_steps_while_there_are_fewer_than_20_units_for_each(
    units, steps
):
    """But 300 at least, and fewer only if they were asked for."""
    recipe = pm.LEARNERS["networks"].recipe
    assert recipe.training.max_steps == 3000
    shorter = _network_learner._shorten(recipe, units)
    assert shorter.training.max_steps == steps
    assert shorter.network == recipe.network
    few = pm.Recipe(recipe.network, pm.make_member_training(max_steps=20))
    assert _network_learner._shorten(few, 1) == few
