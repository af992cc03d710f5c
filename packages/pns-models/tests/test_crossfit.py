"""Cross-fitting: honest answers, classes that fail are told, one result per key."""

import jax
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _crossfit, _members, _model, _placement, _stack

pytestmark = pytest.mark.usefixtures("quick_compilation")
RIDGE = pm.LinearLearner()


def make_networks(learning_rate=2e-2, name="networks"):
    training = pm.make_member_training(learning_rate, max_steps=60, batch_size=128)
    backbone = pm.Backbone(4, 1, bottleneck=2)
    return pm.NetworkLearner(pm.Recipe(pm.AnchoredConfig(backbone), training), name)


NETWORKS = make_networks()


@pytest.fixture(scope="module")
def folded(small):
    rows = pm.rows_from_tables(*small.tables())
    return rows.deal(np.random.default_rng(0), 2).folded()[0]


def run(folded, key=0, learners=(RIDGE, NETWORKS), members_per_fold=2, **options):
    return pm.cross_fit(
        jax.random.key(key), folded, learners, members_per_fold, **options
    )


@pytest.fixture(scope="module")
def result(folded):
    return run(folded)


def assert_same(one, other):
    for part, again in zip(one.held_out, other.held_out, strict=True):
        np.testing.assert_array_equal(part, again)
    np.testing.assert_array_equal(one.stack.weights, other.stack.weights)
    np.testing.assert_array_equal(one.losses, other.losses)
    z = one.folded.counts.z
    for part, again in zip(one.stack.answer(z), other.stack.answer(z), strict=True):
        np.testing.assert_array_equal(part, again)


class FakeMembers:
    """Answers with constants, and writes down which rows it was asked about."""

    kind = "fake"

    def __init__(self, fold, raw, asked):
        self.fold, self._raw, self.asked = fold, raw, asked

    def raw(self, z):
        for fold in self.fold:
            self.asked.append((int(fold), z[:, 0].tolist()))
        return np.repeat(self._raw[:, None], len(z), axis=1)

    def take(self, order):
        return FakeMembers(self.fold[order], self._raw[order], self.asked)

    def save(self, folder):
        raise NotImplementedError

    @classmethod
    def load(cls, folder):
        raise NotImplementedError


class FakeLearner:
    """Knows nothing of networks; `fails` says in which phase, and how."""

    def __init__(self, name="fake", fails=None, phase=1, cell=0.0):
        self.name, self.fails, self.phase, self.cell = name, fails, phase, cell
        self.seen, self.asked, self.keys = [], [], []

    def __repr__(self):
        return self.name

    def fit(self, key, resamples, context):
        self.seen.append(resamples)
        self.keys.append(key)
        self.asked.append([])
        raw = np.zeros((len(resamples.member_fold), 6), np.float32)
        raw[:, 0] = self.cell
        raw[:, 4:] = 0.1 * len(self.seen)
        if self.fails and len(self.seen) == self.phase:
            if self.fails == "raises":
                raise ZeroDivisionError(f"{self.name} divides by nothing")
            raw[-1, 3] = self.fails
        return FakeMembers(resamples.member_fold, raw, self.asked[-1])


def make_flat(num_rows=60, num_folds=3):
    """Makes rows with the same units in each cell: constants are the best law."""
    ones = np.full((num_rows, 2, 2), 3, np.float32)
    z = np.arange(num_rows, dtype=np.float32)[:, None]
    fold, cell = np.arange(num_rows) % num_folds, np.arange(num_rows)
    return pm.FoldedCounts(pm.Counts(z, ones, ones), fold, cell)


@pytest.mark.parametrize("block", [8192, 7])
def test_every_row_is_asked_about_once_by_the_members_that_did_not_see_it(
    monkeypatch, block
):
    monkeypatch.setattr(_crossfit, "_ROWS", block)
    learner, flat = FakeLearner(), make_flat()
    run(flat, learners=[learner], members_per_fold=4)
    assert len(learner.asked) == 3, "one for each phase"
    for asked, per_fold in zip(learner.asked, (1, 4, 4), strict=True):
        by_row = [[] for _ in flat.fold]
        for fold, rows in asked:
            for row in rows:
                by_row[int(row)].append(fold)
        for fold, members in zip(flat.fold, by_row, strict=True):
            assert members == [fold] * per_fold


def test_phases_see_less_and_less_and_all_classes_see_the_same(folded):
    first, second = FakeLearner("first"), FakeLearner("second", cell=0.01)
    run(folded, learners=[first, second], members_per_fold=3)
    units = sum(float(part.sum()) for part in folded.counts[1:])
    for full, *parts in (first.seen, second.seen):
        assert full.member_fold.tolist() == [0, 1]
        outside = [units - full.held_out(fold).sum() for fold in (0, 1)]
        for member in range(2):
            assert full.weights(member).sum() == outside[member]
        for part, share in zip(parts, (1 / 4, 1 / 16), strict=True):
            assert part.member_fold.tolist() == [0, 1] * 3
            for member in range(6):
                seen, size = part.weights(member).sum(), outside[member % 2]
                error = np.sqrt(size * share * (1 - share))
                assert abs(seen - size * share) < 4 * error
    for one, other in zip(first.seen, second.seen, strict=True):
        for member in range(len(one.member_fold)):
            np.testing.assert_array_equal(one.weights(member), other.weights(member))
    keys = [jax.random.key_data(key).tolist() for key in first.keys + second.keys]
    assert len(set(map(tuple, keys))) == 6


@pytest.mark.parametrize(
    "units, expected", [(700, 8), (3000, 8), (6000, 4), (15_000, 2), (10**6, 2)]
)
def test_small_tables_have_more_fits_to_each_share(folded, units, expected):
    scale = units / sum(part.sum() for part in folded.counts[1:])
    counts = pm.Counts(folded.counts.z, *(scale * part for part in folded.counts[1:]))
    learner = FakeLearner()
    run(folded._replace(counts=counts), learners=[learner], members_per_fold=None)
    sizes = [len(seen.member_fold) for seen in learner.seen]
    assert sizes == [2, 2 * expected, 2 * expected]


def test_held_out_numbers_are_pooled_by_weights_of_least_held_out_loss(folded, result):
    held_out, z = [], folded.counts.z
    for members in result.stack.members:
        raw = members.raw(z)
        own = [raw[members.fold == fold, row] for row, fold in enumerate(folded.fold)]
        held_out.append(np.concatenate(own))
    weights = _stack.stack_weights(held_out, folded.counts)
    np.testing.assert_allclose(result.stack.weights, weights, atol=1e-3)
    size = result.stack.size
    pooled = _stack.pool(held_out, result.stack.weights, size)
    np.testing.assert_allclose(result.held_out.center, pooled.center, atol=1e-5)
    np.testing.assert_allclose(result.held_out.factors, pooled.factors, atol=1e-5)
    losses = _stack.source_losses(pooled.center, folded.counts)
    np.testing.assert_allclose(result.losses, losses, rtol=1e-6)
    for each, raw in zip(result.classes, held_out, strict=True):
        expected = _stack.source_losses(raw, folded.counts)
        np.testing.assert_allclose(each.losses, expected, rtol=1e-5)
        assert each.problem == ""
        assert np.all(result.losses <= each.losses + 1e-5)
    names = tuple(each.name for each in result.classes)
    assert names == result.stack.names == ("ridge regression", "networks")


@pytest.mark.parametrize(
    ("fails", "problem"),
    [
        ("raises", "bad divides by nothing"),
        (np.nan, "its answers are not finite."),
        (np.inf, "its answers are not finite."),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_learner_that_fails_is_left_out_and_named(fails, problem, place):
    """As the first or the last of two."""
    learners = [FakeLearner("good")]
    learners.insert(place, FakeLearner("bad", fails, phase=1))
    with pytest.warns(UserWarning, match="^bad was left out: "):
        result = run(make_flat(), learners=learners)
    bad, good = result.classes[place], result.classes[1 - place]
    assert (bad.name, bad.losses, bad.problem) == ("bad", None, problem)
    assert bad.weights.tolist() == [0, 0]
    assert good.problem == "" and good.weights.tolist() == [1, 1]
    assert result.stack.names == ("good",)
    assert len(result.stack.members) == 1
    alone = run(make_flat(), learners=[FakeLearner("good")])
    np.testing.assert_array_equal(result.held_out.center, alone.held_out.center)


def test_if_all_learners_fail_the_last_error_is_raised():
    learners = [FakeLearner(name, "raises", phase=1) for name in ("one", "two")]
    with (
        pytest.warns(UserWarning, match="one was left out"),
        pytest.raises(ZeroDivisionError, match="two divides by nothing"),
    ):
        run(make_flat(), learners=learners)


@pytest.mark.parametrize("phase", [2, 3])
def test_a_learner_that_fails_with_few_units_stays_in_the_stack(phase):
    """Without a warning; where nothing can be fitted, frequencies are what is known."""
    folded = make_flat()
    log = folded.counts.observational.copy()
    log[:, 0, 1] += 6  # which constants of no log do not know
    folded = folded._replace(counts=folded.counts._replace(observational=log))
    result = run(folded, learners=[FakeLearner("only", "raises", phase)])
    assert result.stack.names == ("only",)
    law = log.sum(axis=0).ravel() / log.sum()
    entropy = -(law * np.log(law)).sum()
    drop = entropy - np.log(4) if phase == 2 else 0.0
    np.testing.assert_allclose(result.curve.drop[0], drop, atol=1e-3)


def test_the_curve_compares_the_losses_of_stacks_that_see_less():
    """Members that are wrong by more, the less they see: losses in closed form."""

    class Learning(FakeLearner):
        def fit(self, key, resamples, context):
            members = super().fit(key, resamples, context)
            members._raw[:] = 0
            members._raw[:, 4:] = {1: 0.1, 0.25: 0.3, 1 / 16: 0.7}[resamples.share]
            return members

    flat = make_flat()
    curve = run(flat, learners=[Learning()]).curve
    losses = [np.log(2 * np.cosh(arm / 2)) for arm in (0.1, 0.3, 0.7)]
    np.testing.assert_allclose(curve.drop, [0, losses[1] - losses[0]], atol=1e-6)
    rate = (losses[2] - losses[1]) / (losses[1] - losses[0])
    np.testing.assert_allclose(curve.rate, min(rate, 4), rtol=1e-3)


def test_a_lost_process_and_a_wrong_argument_are_not_the_failure_of_a_learner():
    class Broken(FakeLearner):
        def fit(self, key, resamples, context):
            raise self.fails

    for error in (pm.LostProcessError("gone"), pb.InputError("x", "is wrong.")):
        with pytest.raises(type(error)):
            run(make_flat(), learners=[Broken("bad", error), FakeLearner("good")])


def test_a_class_of_little_weight_fits_no_further_members():
    """Constants of the right law, and others that are far from it."""
    learners = [FakeLearner("good"), FakeLearner("far", cell=9.0)]
    # Both know the trial; the second learns nothing of it that the first does not.
    folded = make_flat()
    trial = folded.counts.experimental.copy()
    trial[:, :, 1] += 1
    folded = folded._replace(counts=folded.counts._replace(experimental=trial))
    learners[1].fit = with_arms(learners[1].fit, -9.0)
    result = run(folded, learners=learners)
    assert [len(each.seen) for each in learners] == [3, 1]
    assert result.stack.names == ("good",)
    far = result.classes[1]
    assert far.problem == "" and far.weights.tolist() == [0, 0]
    assert np.all(far.losses > result.classes[0].losses + 0.5)
    np.testing.assert_array_equal(result.stack.weights, [[1, 1]])


def with_arms(fit, value):
    def changed(*arguments):
        members = fit(*arguments)
        members._raw[:, 4:] = value
        return members

    return changed


def test_a_class_with_weight_in_one_source_stays():
    learners = [FakeLearner("good"), FakeLearner("far", cell=9.0)]
    result = run(make_flat(), learners=learners)
    assert result.stack.names == ("good", "far")
    assert result.stack.weights[1, 0] < 0.02 < result.stack.weights[1, 1]


def test_a_key_gives_one_result_and_a_second_run_compiles_nothing(
    folded, networks_alone
):
    result, _ = networks_alone
    traced = _members.train_members._cache_size(), _model._encoded._cache_size()
    again, other = (run(folded, key, learners=(NETWORKS,)) for key in (0, 1))
    assert traced == (
        _members.train_members._cache_size(),
        _model._encoded._cache_size(),
    )
    assert_same(again, result)
    assert not np.any(other.held_out.center == result.held_out.center)


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
    few_trees = pm.TreeLearner(max_trees=10)
    result = run(folded, learners=(RIDGE, pm.LinearLearner(6), few_trees, NETWORKS))
    assert all(each.problem == "" for each in result.classes)
    for part in (*result.held_out, *result.stack.answer(z[:5].astype(np.float32))):
        assert np.isfinite(part).all()


def test_networks_that_diverge_are_left_out_or_told(folded):
    wild = make_networks(1e30, "wild networks")
    with pytest.raises(pm.DivergedError, match="try a smaller learning_rate"):
        run(folded, learners=(wild,))
    with pytest.warns(UserWarning, match="wild networks was left out: the loss is not"):
        result = run(folded, learners=(wild, RIDGE))
    assert result.classes[0].problem.startswith("the loss is not finite")


def test_a_learner_that_is_not_made_for_the_tables_is_left_out_without_a_warning(
    folded,
):
    """Networks with few rows, splines with many covariates; here warnings are errors."""
    few = pm.NetworkLearner(NETWORKS.recipe, "few rows", min_units=501)
    result = run(folded, learners=(few, RIDGE))
    assert result.stack.names == ("ridge regression",)
    assert result.classes[0].losses is None
    assert result.classes[0].problem == "there are 500 rows, and networks need 501."
    assert pm.NetworkLearner(NETWORKS.recipe, min_units=500) != few
    with pytest.raises(ValueError, match="networks need 501"):
        run(folded, learners=(few,))
    wide = make_flat()
    z = np.random.default_rng(0).normal(size=(60, 60)).astype(np.float32)
    wide = wide._replace(counts=wide.counts._replace(z=z))
    result = run(wide, learners=(FakeLearner(), pm.LinearLearner(num_knots=10)))
    assert "there are 60 covariates" in result.classes[1].problem


class KilledError(BaseException):
    """Stands for a run that was killed."""


def run_until(num_calls, folded, **options):
    """Trains until it is killed; returns the result and how often members trained."""
    train, calls, found = _placement.train_members, [], None

    def broken(*arguments):
        if len(calls) >= num_calls:
            raise KilledError
        calls.append(arguments)
        return train(*arguments)

    with pytest.MonkeyPatch.context() as context:
        context.setattr(_placement, "train_members", broken)
        try:
            found = run(folded, learners=(NETWORKS,), **options)
        except KilledError:
            pass
    return found, len(calls)


@pytest.fixture(scope="module")
def networks_alone(folded):
    return run_until(np.inf, folded)


@pytest.mark.parametrize("share", [0.15, 0.7])
def test_an_interrupted_run_continues_to_the_same_result(
    folded, networks_alone, tmp_path, share
):
    """Among the members that see everything, and among those that see a share."""
    result, total = networks_alone
    options = {"checkpoint_dir": tmp_path, "checkpoint_seconds": 0}
    killed, _ = run_until(int(share * total), folded, **options)
    assert killed is None
    again, num_calls = run_until(np.inf, folded, **options)
    assert 0 < num_calls < total, "it went on from the checkpoint"
    assert_same(again, result)
    once_more, num_calls = run_until(np.inf, folded, **options)
    assert num_calls == 0, "everything was there"
    assert_same(once_more, result)


def test_checkpoints_of_another_run_are_refused(folded, tmp_path):
    run(folded, checkpoint_dir=tmp_path)
    flipped = folded.counts._replace(observational=folded.counts.observational + 1)
    for change in (
        {"key": 1},
        {"learners": (RIDGE, make_networks(1e-2))},
        {"folded": folded._replace(counts=flipped)},
    ):
        with pytest.raises(pb.InputError, match="checkpoints of another run"):
            run(**{"folded": folded, "checkpoint_dir": tmp_path, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members_per_fold": 0}, "members_per_fold must be at least 1"),
        ({"learners": ()}, "sequence of one Learner or more"),
        ({"learners": NETWORKS}, "sequence of one Learner or more"),
        ({"learners": "ridge"}, "sequence of one Learner or more"),
        ({"learners": ((), (NETWORKS,))}, "must hold Learners, got "),
        ({"learners": (NETWORKS.recipe,)}, "must hold Learners, got Recipe"),
        ({"folded": make_flat(num_folds=1)}, "at least 2 folds, got 1"),
        (
            {"folded": make_flat()._replace(covariate=np.arange(9))},
            r"the covariate of each of its 1 columns, got shape \[9\]",
        ),
    ],
)
def test_bad_arguments_are_told(folded, change, message):
    with pytest.raises(pb.InputError, match=message):
        run(**{"folded": folded, **change})


def test_counts_without_folds_are_told(folded):
    with pytest.raises(pb.InputError, match="come from Rows.folded, got a Counts"):
        run(folded.counts)
