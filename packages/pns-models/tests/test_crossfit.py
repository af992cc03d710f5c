"""Cross-fitting: the right recipe, honest answers, one result per key."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from flax import nnx
from pns_models import _crossfit, _members, _placement

pytestmark = pytest.mark.usefixtures("quick_compilation")
BACKBONE = pm.Backbone(4, 1, bottleneck=2)


def make_recipe(learning_rate=2e-2, **settings):
    training = pm.make_member_training(
        **{
            "learning_rate": learning_rate,
            "max_steps": 60,
            "batch_size": 128,
            **settings,
        }
    )
    return pm.Recipe(pm.AnchoredConfig(BACKBONE), training)


GOOD, BAD = make_recipe(), make_recipe(learning_rate=1e-6)


@pytest.fixture(scope="module")
def folded(small):
    counts = pm.counts_from_tables(*small.tables(), merge=False)
    fold = pm.assign_folds(np.random.default_rng(0), counts, 2)
    return pm.fold_counts(counts, fold)[0]


def run(folded, key=0, recipes=(GOOD,), members_per_fold=2, **options):
    """Trains two groups of as many members, so that they share one program."""
    return pm.cross_fit(
        jax.random.key(key), folded, recipes, members_per_fold, **options
    )


@pytest.fixture(scope="module")
def result(folded):
    return run(folded)


def test_the_recipe_of_the_least_cross_fitted_loss_is_chosen(folded, result):
    tried = run(folded, recipes=(BAD, GOOD))
    assert len(tried.losses) == 2 and tried.losses[1] < tried.losses[0] - 0.05
    assert tried.model.recipe.training == GOOD.training
    assert len(result.losses) == 1
    # The first of each fold are the members that were judged.
    logs = pm.log_probabilities(jnp.asarray(tried.held_out[0]), "anchored")
    loss = -sum(
        (cells * np.asarray(part)).sum() / cells.sum()
        for cells, part in zip(folded.counts[1:], logs, strict=True)
    )
    np.testing.assert_allclose(loss, tried.losses[1], rtol=1e-5)


def test_held_out_numbers_are_those_of_the_members_that_did_not_see_the_row(result):
    network, folded = result.model.network, result.folded
    z = jnp.asarray(result.model.standardizer(folded.counts.z))
    chex.assert_shape(result.held_out, (2, len(z), 6))
    assert sorted(result.member_fold.tolist()) == [0, 0, 1, 1]
    structure, state = nnx.split(network.members)
    for row, fold in enumerate(folded.fold):
        mine = np.flatnonzero(result.member_fold == fold)
        for i, member in enumerate(mine):
            params = jax.tree.map(lambda leaf, member=member: leaf[member], state)
            raw = nnx.merge(structure, params).encode(z[row : row + 1])[0]
            np.testing.assert_allclose(result.held_out[i, row], raw, atol=1e-5)


def test_means_of_a_fold_are_those_of_its_members_for_every_row(result):
    folded = result.folded
    chex.assert_shape(result.fold_means, (2, len(folded.fold), 6))
    for fold in range(2):
        here = folded.fold == fold
        np.testing.assert_allclose(
            result.fold_means[fold, here],
            result.held_out[:, here].mean(axis=0),
            atol=1e-5,
        )
    z = jnp.asarray(result.model.standardizer(folded.counts.z))
    np.testing.assert_allclose(
        result.fold_means.mean(axis=0),
        result.model.network.encode(z).mean(axis=0),
        atol=1e-5,
    )


def test_subspaces_hold_uncorrelated_combinations_that_members_use(folded, result):
    """For each fold and for all members; none without a bottleneck."""
    counts = folded.counts
    z, units = counts.z, sum(part.sum(axis=(1, 2)) for part in counts[1:])
    covariance = np.cov(z, rowvar=False, aweights=units)
    assert result.subspaces.shape == (3, z.shape[1], 2)
    for subspace in result.subspaces:
        product = subspace.T @ covariance @ subspace
        np.testing.assert_allclose(product, np.eye(2), atol=1e-5)
    plain = pm.Recipe(pm.AnchoredConfig(pm.Backbone(4, 1)), GOOD.training)
    assert run(folded, recipes=(plain,)).subspaces is None


def test_the_point_estimate_is_the_link_of_the_mean_over_members(result):
    z = result.folded.counts.z[:8]
    raw = result.model.network.encode(jnp.asarray(result.model.standardizer(z)))
    link = jax.jit(lambda raw: pm.atoms_from_raw(raw, "anchored"))
    expected = link(raw.mean(axis=0))
    chex.assert_trees_all_close(result.model.atoms(z), expected, rtol=1e-5)
    members = result.model.members(z)
    chex.assert_shape(members.mu, (4, 8, 2))
    chex.assert_trees_all_close(members, link(raw), rtol=1e-5, atol=1e-7)


def test_only_ensembles_have_members(small):
    with pytest.raises(TypeError, match="'anchored' has no members"):
        small.model("anchored").members(np.zeros((1, 3)))


def test_the_ensemble_is_saved_and_loaded(result, tmp_path):
    result.model.save(tmp_path / "model")
    again = pm.load(tmp_path / "model")
    assert again.recipe == result.model.recipe
    assert again.recipe.network == pm.EnsembleConfig(BACKBONE, 4)
    z = result.folded.counts.z
    chex.assert_trees_all_equal(again.members(z), result.model.members(z))


def test_training_lowers_the_loss_and_history_tells(result):
    assert result.history.step.tolist() == list(range(6, 61, 6))
    assert result.history.training[-1] < result.history.training[0] - 0.3
    assert np.isfinite(result.history.held_out).all()


def test_a_key_gives_one_result_and_a_second_run_compiles_nothing(folded, result):
    traced = _members.train_members._cache_size(), _members.member_raw._cache_size()
    again, other = run(folded, 0), run(folded, 1)
    assert traced == (
        _members.train_members._cache_size(),
        _members.member_raw._cache_size(),
    )
    np.testing.assert_array_equal(again.held_out, result.held_out)
    assert again.losses == result.losses
    assert not np.any(other.held_out == result.held_out)
    assert not np.any(result.held_out[0] == result.held_out[1]), "members differ"


def test_a_covariate_may_be_constant_in_a_fold_or_everywhere(small):
    """Two sites, each a fold of its own, and a column of ones."""
    tables = small.tables()
    z, x, y = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    site = np.arange(len(z)) % 2
    z = np.stack([site, z[:, 1], np.ones(len(z))], axis=1)
    split = len(tables[0][0])
    counts = pm.counts_from_tables(
        (z[:split], x[:split], y[:split]),
        (z[split:], x[split:], y[split:]),
        merge=False,
    )
    fold = pm.assign_folds(np.random.default_rng(0), counts, 2, groups=site)
    folded, _ = pm.fold_counts(counts, fold)
    for fold in (0, 1):
        assert len(np.unique(folded.counts.z[folded.fold == fold, 0])) == 1
    result = run(folded)
    assert np.isfinite(result.held_out).all()
    chex.assert_tree_all_finite(result.model.atoms(z[:5]))


def test_an_absurd_learning_rate_is_told(folded):
    with pytest.raises(pm.DivergedError, match="try a smaller learning_rate"):
        run(folded, recipes=(make_recipe(learning_rate=1e30),))


class KilledError(Exception):
    """Stands for a run that was killed."""


@pytest.mark.parametrize("num_chunks", [3, 14])
def test_an_interrupted_run_continues_to_the_same_result(
    folded, result, tmp_path, monkeypatch, num_chunks
):
    """In the group that judges the recipe, and in that of the other members."""
    train, calls = _placement.train_members, []
    per_chunk = folded.num_folds  # both groups have a member per fold

    def broken(*arguments):
        calls.append(arguments)
        if len(calls) > num_chunks * per_chunk:
            raise KilledError
        return train(*arguments)

    options = {"checkpoint_dir": tmp_path, "checkpoint_seconds": 0}
    with monkeypatch.context() as context:
        context.setattr(_placement, "train_members", broken)
        with pytest.raises(KilledError):
            run(folded, **options)
        calls.clear()
        num_chunks = 20 - num_chunks  # what is left
        again = run(folded, **options)
        assert len(calls) == num_chunks * per_chunk
    np.testing.assert_array_equal(again.held_out, result.held_out)
    chex.assert_trees_all_equal(again.history, result.history)
    chex.assert_trees_all_equal(
        nnx.state(again.model.network), nnx.state(result.model.network)
    )
    assert again.losses == result.losses


def test_checkpoints_of_another_run_are_refused(folded, tmp_path):
    run(folded, checkpoint_dir=tmp_path)
    flipped = folded.counts._replace(observational=folded.counts.observational + 1)
    for change in (
        {"key": 1},
        {"recipes": (BAD,)},
        {"folded": folded._replace(counts=flipped)},
        {"members_per_fold": 3},
    ):
        with pytest.raises(ValueError, match="checkpoints of another run"):
            run(**{"folded": folded, "checkpoint_dir": tmp_path, **change})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"members_per_fold": 1}, ValueError, "members_per_fold must be at least 2"),
        ({"recipes": ()}, ValueError, "sequence of one Recipe or more"),
        ({"recipes": GOOD}, ValueError, "sequence of one Recipe or more"),
        ({"recipes": ("default",)}, TypeError, "must hold Recipes, got 'default'"),
        ({"recipes": (pm.PRESETS["default"],)}, ValueError, "no patience"),
        ({"recipes": (pm.PRESETS["default_ensemble"],)}, TypeError, "anchored netw"),
        ({"recipes": (pm.PRESETS["paper_bootstrap"],)}, ValueError, "needs max_steps"),
        ({"recipes": (make_recipe(batch_size=1),)}, ValueError, "batch_size of 2"),
    ],
)
def test_bad_arguments_are_told(folded, change, error, message):
    with pytest.raises(error, match=message):
        run(folded, **change)


def test_counts_without_folds_are_told(folded):
    with pytest.raises(TypeError, match="must come from fold_counts, got a Counts"):
        run(folded.counts)


def test_every_recipe_of_the_portfolio_is_accepted(folded):
    recipes = list(itertools.chain(*pm.PORTFOLIO))
    assert len(set(recipes)) == len(recipes) >= 2
    _crossfit._check_arguments(folded, pm.PORTFOLIO, 2)
    for recipe in recipes:
        assert pm.Recipe.from_json(recipe.to_json()) == recipe
    # A kind without a bottleneck: not every world has few combinations that matter.
    assert None in {recipe.network.backbone.bottleneck for recipe in recipes}


@pytest.mark.parametrize(
    ("losses", "tried"),
    [
        ({"a": 3, "b": 2, "c": 4, "b2": 1, "b3": 5}, ["a", "b", "c", "b2", "b3"]),
        ({"a": 3, "b": 2, "c": 4, "b2": 2.5}, ["a", "b", "c", "b2"]),
        ({"a": 1, "b": 2, "c": 4}, ["a", "b", "c"]),
        ({"a": 3, "b": 4, "c": 1, "c2": 0}, ["a", "b", "c", "c2"]),
    ],
)
def test_the_next_of_a_sequence_is_tried_while_the_one_before_is_the_best(
    losses, tried
):
    sequences = [("a",), ("b", "b2", "b3"), ("c", "c2")]
    names, numbers = [], []

    def train(number, name):
        names.append(name)
        numbers.append(number)
        return name

    best, found = _crossfit._choose(sequences, train, losses.__getitem__)
    assert names == tried and found == [losses[name] for name in tried]
    assert losses[best] == min(found)
    places = list(itertools.chain(*sequences))  # a number stands for the same recipe
    assert numbers == [places.index(name) for name in names]


def test_an_empty_sequence_of_recipes_is_told(folded):
    with pytest.raises(ValueError, match="one Recipe or more"):
        run(folded, recipes=((), (make_recipe(),)))
