"""Cross-fitting: the right recipe, honest answers, one result per key."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _crossfit, _members, _model, _placement
from pns_models._links import log_probabilities

pytestmark = pytest.mark.usefixtures("quick_compilation")
BACKBONE = pm.Backbone(4, 1, bottleneck=2)


def make_learner(learning_rate=2e-2, **settings):
    training = pm.make_member_training(
        **{
            "learning_rate": learning_rate,
            "max_steps": 60,
            "batch_size": 128,
            **settings,
        }
    )
    return pm.NetworkLearner(pm.Recipe(pm.AnchoredConfig(BACKBONE), training))


GOOD, BAD = make_learner(), make_learner(learning_rate=1e-6)


@pytest.fixture(scope="module")
def folded(small):
    rows = pm.rows_from_tables(*small.tables())
    return rows.deal(np.random.default_rng(0), 2).folded()[0]


def run(folded, key=0, learners=(GOOD,), members_per_fold=2, **options):
    """Trains two groups of as many members, so that they share one program."""
    return pm.cross_fit(
        jax.random.key(key), folded, learners, members_per_fold, **options
    )


@pytest.fixture(scope="module")
def result(folded):
    return run(folded)


def test_the_recipe_of_the_least_cross_fitted_loss_is_chosen(folded, result):
    tried = run(folded, learners=(BAD, GOOD))
    assert len(tried.losses) == 2 and tried.losses[1] < tried.losses[0] - 0.05
    assert tried.learner == GOOD
    assert tried.members.model.recipe.training == GOOD.recipe.training
    assert len(result.losses) == 1
    # The first of each fold are the members that were judged.
    logs = log_probabilities(jnp.asarray(tried.held_out[0]), "anchored")
    loss = -sum(
        (cells * np.asarray(part)).sum() / cells.sum()
        for cells, part in zip(folded.counts[1:], logs, strict=True)
    )
    np.testing.assert_allclose(loss, tried.losses[1], rtol=1e-5)


def test_held_out_numbers_are_those_of_the_members_that_did_not_see_the_row(result):
    folded, raw = result.folded, result.members.raw(result.folded.counts.z)
    chex.assert_shape(result.held_out, (2, len(folded.fold), 6))
    assert result.members.fold.tolist() == [0, 1, 0, 1]
    for row, fold in enumerate(folded.fold):
        mine = np.flatnonzero(result.members.fold == fold)
        np.testing.assert_allclose(result.held_out[:, row], raw[mine, row], atol=1e-5)


def test_means_of_a_fold_are_those_of_its_members_for_every_row(result):
    raw = result.members.raw(result.folded.counts.z)
    for fold in range(2):
        mean = raw[result.members.fold == fold].mean(axis=0)
        np.testing.assert_allclose(result.fold_means[fold], mean, atol=1e-5)


def test_training_lowers_the_loss_and_history_tells(result):
    history = result.members.history
    assert history.step.tolist() == list(range(6, 61, 6))
    assert history.training[-1] < history.training[0] - 0.3
    assert np.isfinite(history.held_out).all()


class CountingMembers:
    """Answers with constants, and counts how often each row was asked about."""

    kind = "counting"

    def __init__(self, fold, raw):
        self.fold, self._raw, self.asked = fold, raw, []

    def raw(self, z):
        self.asked += z[:, 0].tolist()
        return np.repeat(self._raw[:, None], len(z), axis=1)

    def join(self, other):
        both = np.concatenate([self._raw, other._raw])
        return type(self)(np.concatenate([self.fold, other.fold]), both)


class RepeatableMembers(CountingMembers):
    """Members of which some can take the places of others."""

    def take(self, order):
        return type(self)(self.fold[order], self._raw[order])


class CountingLearner:
    """Knows nothing of networks."""

    def __init__(self, members_class):
        self.members_class, self.made = members_class, []

    def fit(self, key, resamples, context):
        raw = np.zeros((len(resamples.member_fold), 6), np.float32)
        raw[resamples.member_fold == 1, 0] = 0.1
        raw[-1, 3] = 9 * len(self.made)  # the very last is far from the others
        self.made.append(self.members_class(resamples.member_fold, raw))
        return self.made[-1]


@pytest.mark.parametrize("members_class", [CountingMembers, RepeatableMembers])
@pytest.mark.parametrize("num_rows", [100, 40_000])
def test_every_member_sees_all_rows_once_after_its_fit(members_class, num_rows):
    """Whatever is learned of them: loss, stuck members, held-out answers, means."""
    rng = np.random.default_rng(0)
    cells = rng.integers(1, 9, (2, num_rows, 2, 2)).astype(np.float32)
    z = np.arange(num_rows, dtype=np.float32)[:, None]
    fold, cell = np.arange(num_rows) % 2, np.arange(num_rows)
    folded = pm.FoldedCounts(pm.Counts(z, *cells), fold, cell)
    learner = CountingLearner(members_class)
    result = run(folded, learners=[learner], members_per_fold=3, replaces_stuck=True)
    assert len(learner.made) == 2
    for members in learner.made:
        assert sorted(members.asked) == list(range(num_rows))
    assert not result.members.asked, "the joined ones were not asked again"
    can_repeat = members_class is RepeatableMembers
    assert result.num_stuck == can_repeat
    is_replaced = result.members.raw(z[:1])[-1, 0, 3] == 0
    assert is_replaced == can_repeat
    assert (result.held_out[2, 1, 3] == 0) == can_repeat
    np.testing.assert_allclose(result.fold_means[1, :, 3], 0 if can_repeat else 3)


def test_a_key_gives_one_result_and_a_second_run_compiles_nothing(folded, result):
    traced = _members.train_members._cache_size(), _model._encoded._cache_size()
    again, other = run(folded, 0), run(folded, 1)
    assert traced == (
        _members.train_members._cache_size(),
        _model._encoded._cache_size(),
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
    rows = pm.rows_from_tables(
        (z[:split], x[:split], y[:split]),
        (z[split:], x[split:], y[split:]),
    )
    folded, _ = rows.deal(np.random.default_rng(0), 2, groups=site).folded()
    for fold in (0, 1):
        assert len(np.unique(folded.counts.z[folded.fold == fold, 0])) == 1
    result = run(folded)
    assert np.isfinite(result.held_out).all()
    assert np.isfinite(result.members.raw(z[:5])).all()


def test_an_absurd_learning_rate_is_told(folded):
    with pytest.raises(pm.DivergedError, match="try a smaller learning_rate"):
        run(folded, learners=(make_learner(learning_rate=1e30),))


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
    chex.assert_trees_all_equal(again.members.history, result.members.history)
    z = folded.counts.z
    np.testing.assert_array_equal(again.members.raw(z), result.members.raw(z))
    assert again.losses == result.losses


def test_checkpoints_of_another_run_are_refused(folded, tmp_path):
    run(folded, checkpoint_dir=tmp_path)
    flipped = folded.counts._replace(observational=folded.counts.observational + 1)
    for change in (
        {"key": 1},
        {"learners": (BAD,)},
        {"folded": folded._replace(counts=flipped)},
        {"members_per_fold": 3},
    ):
        with pytest.raises(ValueError, match="checkpoints of another run"):
            run(**{"folded": folded, "checkpoint_dir": tmp_path, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members_per_fold": 1}, "members_per_fold must be at least 2"),
        ({"learners": ()}, "sequence of one Learner or more"),
        ({"learners": GOOD}, "sequence of one Learner or more"),
        ({"learners": ((), (GOOD,))}, "sequence of one Learner or more"),
        ({"learners": (GOOD.recipe,)}, "must hold Learners, got Recipe"),
    ],
)
def test_bad_arguments_are_told(folded, change, message):
    with pytest.raises(pb.InputError, match=message):
        run(folded, **change)


def test_counts_without_folds_are_told(folded):
    with pytest.raises(pb.InputError, match="come from Rows.folded, got a Counts"):
        run(folded.counts)


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
        return _crossfit._Trial(name, None, None, losses[name])

    best, found = _crossfit._choose(sequences, train)
    assert names == tried and found == [losses[name] for name in tried]
    assert best.loss == min(found)
    places = list(itertools.chain(*sequences))  # a number stands for the same recipe
    assert numbers == [places.index(name) for name in names]
