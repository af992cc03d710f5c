"""Boosted trees: derivatives, limits that hold, and one answer whatever the machine."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _tree_learner
from pns_models._learner import RunContext
from pns_models._stack import source_losses

SMALL = pm.TreeLearner(max_trees=40)


def fit(folded, learner=SMALL, key=0, **parts):
    resamples = pm.Resamples(folded, **parts)
    return learner.fit(jax.random.key(key), resamples, RunContext())


def make_folded(tables):
    rows = pm.rows_from_tables(*tables)
    return rows.deal(np.random.default_rng(0), 2).folded()[0]


def make_tables(n=1500, m=1500, seed=0):
    """Draws outcomes by an interaction, which no additive model has."""
    rng = np.random.default_rng(seed)
    tables = []
    for size, is_trial in ((n, False), (m, True)):
        z = rng.normal(size=(size, 2)).astype(np.float32)
        same = z[:, 0] * z[:, 1] > 0
        x = rng.random(size) < (0.5 if is_trial else 0.3 + 0.4 * same)
        y = rng.random(size) < np.where(same & x, 0.9, 0.2)
        tables.append((z, x.astype(int), y.astype(int)))
    return tables


@pytest.fixture(scope="module")
def folded():
    return make_folded(make_tables())


@pytest.fixture(scope="module")
def members(folded):
    return fit(folded, per_fold=2, share=0.5)


def make_loss(rng, size=40):
    least = rng.uniform(0, 0.6, size)
    length = (1 - least) * rng.uniform(0.2, 1, size)
    weight = rng.integers(1, 9, size).astype(float)
    return _tree_learner._Loss(rng.integers(0, 2, size), weight, least, length)


def test_derivatives_are_those_of_the_log_likelihood():
    """The gradient, and the second derivative in expectation over the label."""
    rng = np.random.default_rng(0)
    loss, place = make_loss(rng), 2 * rng.normal(size=40)

    def one(place, label, weight, least, length):
        mu = least + length * jax.nn.sigmoid(place)
        return -weight * jnp.where(label == 1, jnp.log(mu), jnp.log(1 - mu))

    with jax.enable_x64(True):
        arrays = [jnp.asarray(part) for part in loss]
        value = one(place, *arrays).sum()
        first = jax.vmap(jax.grad(one))(place, *arrays)
        second = jax.vmap(jax.grad(jax.grad(one)))
        mu = loss.least + loss.length / (1 + np.exp(-place))
        rest = arrays[1:]
        expected = mu * second(place, jnp.ones(40), *rest)
        expected += (1 - mu) * second(place, jnp.zeros(40), *rest)
    gradient, curvature = loss.derivatives(place)
    np.testing.assert_allclose(loss.value(place), value, rtol=1e-12)
    np.testing.assert_allclose(gradient, first, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(curvature, expected, rtol=1e-9, atol=1e-12)


def test_the_start_is_the_best_constant_with_half_a_unit_of_each_label():
    loss = make_loss(np.random.default_rng(1))
    grid = np.linspace(-6, 6, 4001)
    values = [
        loss.value(np.full(40, place)) + (np.logaddexp(0, place) - place / 2)
        for place in grid
    ]
    assert abs(loss.best_constant() - grid[np.argmin(values)]) < 0.005
    zeros, ones = np.zeros(1), np.ones(1)
    never = _tree_learner._Loss(np.zeros(1, int), np.array([99.5]), zeros, ones)
    np.testing.assert_allclose(never.best_constant(), np.log(0.5 / 100), atol=1e-3)


def test_trees_find_an_interaction(folded):
    atoms = pm.atoms_from_raw(
        fit(folded).raw(np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]], np.float32)),
        "free",
    )
    mu1 = np.asarray(atoms.mu).mean(axis=0)[:, 1]
    # The truth is 0.9 and 0.2; a leaf of a hundred units has a standard error of 0.04.
    np.testing.assert_allclose(mu1, [0.9, 0.2, 0.9, 0.2], atol=0.15)


def test_arms_lie_between_the_limits_of_the_log(folded, members):
    """Also far away from all rows."""
    z = np.r_[folded.counts.z, 100 * folded.counts.z[:20]]
    raw = members.raw(z)
    assert raw.shape == (4, len(z), 6) and raw.dtype == np.float32
    atoms = pb.Atoms(*map(np.asarray, pm.atoms_from_raw(raw, "free")))
    assert np.all(pb.is_compatible(atoms, 1e-6))
    for arm in (0, 1):
        functions = members.functions[2]
        least, length = _tree_learner._limits(list(functions), z, arm)
        np.testing.assert_allclose(least, atoms.joint[2, :, arm, 1], atol=1e-6)
        np.testing.assert_allclose(length, atoms.joint[2, :, 1 - arm].sum(1), atol=1e-6)


def test_members_have_the_folds_and_the_trees_of_their_functions(members):
    assert members.fold.tolist() == [0, 1, 0, 1]
    assert len(members.num_trees) == 5
    for functions in members.functions:
        for function, size in zip(functions, members.num_trees, strict=True):
            assert 10 <= size <= 40 and size % 10 == 0
            assert function.trees.count("Tree=") <= size


def test_the_held_out_loss_counts_every_tree_once(folded):
    """Blocks need not be of equal size: an update that finds no split adds no tree."""
    lightgbm = pytest.importorskip("lightgbm")
    resamples = pm.Resamples(folded)
    entries = np.flatnonzero(resamples.source == 0)
    limits = [(np.zeros(1), np.ones(1))] * 2
    task = _tree_learner._Task(resamples, entries, resamples.treatment[entries], limits)
    data = lightgbm.Dataset(task.z(), task.label, params=_tree_learner._DATASET)
    seen, loss = task.training(0)
    booster = lightgbm.Booster(_tree_learner._COMMON, data.construct().subset(seen))
    judge = task.judge(0)
    for num_updates in (7, 3, 10):
        for _ in range(num_updates):
            booster.update(fobj=lambda f, _: loss.derivatives(f))
        value = judge(booster, 0.3)
        held_out = resamples.held_out(0)[entries]
        every = _tree_learner._Loss(task.label, held_out, np.zeros(1), np.ones(1))
        expected = every.value(0.3 + booster.predict(task.z(), raw_score=True))
        np.testing.assert_allclose(value, expected, rtol=1e-9)
    assert judge(booster, 0.3) == value, "no tree was added"


def test_saved_members_answer_alike(folded, members, tmp_path):
    pm.MEMBERS.save(members, tmp_path / "members")
    again = pm.MEMBERS.load(tmp_path / "members")
    z = folded.counts.z
    np.testing.assert_array_equal(again.raw(z), members.raw(z))
    assert again.fold.tolist() == members.fold.tolist()
    assert again.num_trees == members.num_trees
    order = np.array([3, 1, 1])
    np.testing.assert_array_equal(again.take(order).raw(z), members.raw(z)[order])
    assert again.take(order).fold.tolist() == [1, 1, 1]


@pytest.mark.parametrize("num_cores", [1, 2, 5])
def test_the_number_of_threads_does_not_matter(folded, members, monkeypatch, num_cores):
    monkeypatch.setattr(os, "cpu_count", lambda: num_cores)
    again = fit(folded, per_fold=2, share=0.5)
    z = folded.counts.z
    np.testing.assert_array_equal(again.raw(z), members.raw(z))
    assert again.functions == members.functions


def test_the_key_decides_the_trees(folded):
    z, few = folded.counts.z, pm.TreeLearner(max_trees=10)
    one, same, other = (fit(folded, few, key).raw(z) for key in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert np.any(one != other)


def test_an_outcome_without_a_case_outside_a_fold_stays_finite():
    """All cases of both sources lie in fold 0, whose members see none."""
    folded = make_folded(make_tables())
    outside = folded.fold != 0
    for part in folded.counts[1:]:
        part[outside, :, 0] += part[outside, :, 1]
        part[outside, :, 1] = 0
    members = fit(folded, pm.TreeLearner(max_trees=10))
    raw = members.raw(folded.counts.z)
    assert np.isfinite(raw).all()
    mu = np.asarray(pm.atoms_from_raw(raw, "free").mu)
    assert members.fold.tolist() == [0, 1]
    assert mu[0].max() < 0.02 and mu[1].mean() > 0.2


def test_constant_covariates_give_the_frequencies_outside_the_fold():
    tables = [(np.ones((len(z), 2), np.float32), x, y) for z, x, y in make_tables()]
    folded = make_folded(tables)
    raw = fit(folded, pm.TreeLearner(max_trees=10)).raw(np.ones((1, 2), np.float32))
    # Half a unit more of each label moves those of 375 units by a few thousandths.
    atoms = pm.atoms_from_raw(raw, "free")
    for fold in range(2):
        joint, arms = (part[folded.fold != fold][0] for part in folded.counts[1:])
        np.testing.assert_allclose(atoms.joint[fold, 0], joint / joint.sum(), atol=6e-3)
        mu = arms[:, 1] / arms.sum(axis=1)
        np.testing.assert_allclose(atoms.mu[fold, 0], mu, atol=6e-3)


LEVELS = 12  # of a category; those in `GOOD` are much alike, and so are the others
GOOD = {0, 2, 3, 7, 8, 11}
COVARIATE = np.repeat([0, 1, 2], [LEVELS, 2, 1])


def encode(level, number, other):
    """Makes indicators of levels, one of missing numbers, the number, and another."""
    missing = np.isnan(number)
    levels = np.asarray(level)[:, None] == np.arange(LEVELS)
    columns = [levels, missing, np.where(missing, 0, number), other]
    return np.column_stack(columns).astype(np.float32)


def make_categories(n=1500, m=1500, seed=0, num_folds=2):
    """Draws outcomes by a category, and by a number that is high where it is missing."""
    rng = np.random.default_rng(seed)
    tables = []
    for size, is_trial in ((n, False), (m, True)):
        level, number = rng.integers(0, LEVELS, size), rng.normal(size=size)
        missing = rng.random(size) < 0.3
        good = np.isin(level, list(GOOD))
        x = rng.random(size) < (0.5 if is_trial else 0.2 + 0.6 * good)
        high = (number > 0.5) | missing
        y = rng.random(size) < 0.1 + 0.4 * (good & x) + 0.3 * high
        z = encode(level, np.where(missing, np.nan, number), rng.normal(size=size))
        tables.append((z, x.astype(int), y.astype(int)))
    rows = pm.rows_from_tables(*tables).deal(np.random.default_rng(0), num_folds)
    return rows._replace(covariate=COVARIATE).folded()[0]


@pytest.fixture(scope="module")
def categories():
    return make_categories()


@pytest.fixture(scope="module")
def of_categories(categories):
    return fit(categories)


def test_trees_of_two_leaves_are_newton_steps_of_two_sets_of_levels(categories):
    """By hand: levels are sorted by their mean residual, and up to four are split off."""
    z = categories.counts.z[:, :LEVELS]
    counts = categories.counts._replace(z=z)
    alone = categories._replace(counts=counts, covariate=np.zeros(LEVELS, int))
    learner = pm.TreeLearner(num_leaves=2, max_trees=10)
    found = fit(alone, learner).functions[0][0]  # treatment, of units outside fold 0
    seen = alone.fold != 0
    weight = np.array(
        [(z[seen] * counts.observational[seen].sum(2)[:, [x]]).sum(0) for x in (0, 1)]
    )  # [treatment, level]
    place = np.full(LEVELS, found.start)
    for _ in range(10):
        chance = 1 / (1 + np.exp(-place))
        gradient = weight.sum(0) * chance - weight[1]
        hessian = weight.sum(0) * chance * (1 - chance)
        order = np.argsort(gradient / (hessian + 10))  # cat_smooth
        gains = []
        sizes = [*range(1, 5), *range(LEVELS - 4, LEVELS)]
        for size in sizes:
            parts = order[:size], order[size:]
            gains.append(
                sum(
                    gradient[own].sum() ** 2
                    / (hessian[own].sum() + learner.penalty + 30)  # cat_l2
                    for own in parts
                )
            )
        size = sizes[int(np.argmax(gains))]
        for own in (order[:size], order[size:]):
            step = gradient[own].sum() / (hessian[own].sum() + learner.penalty + 30)
            place[own] -= learner.learning_rate * step
    booster = _tree_learner._read(found)
    answer = found.start + booster.predict(np.arange(LEVELS)[:, None], raw_score=True)
    np.testing.assert_allclose(answer, place, rtol=1e-4)
    assert np.ptp(answer) > 0.5, "or answers that are all alike would pass"


def test_trees_that_see_categories_lose_less_than_those_of_indicators():
    """Of few units per level; the truth is a set of levels, in both sources."""
    gains = []
    for seed in range(20):
        folded = make_categories(500, 500, seed)
        losses = []
        for covariate in (COVARIATE, None):
            members = fit(folded._replace(covariate=covariate), pm.TreeLearner())
            raw = members.raw(folded.counts.z)[folded.fold, np.arange(len(folded.fold))]
            losses.append(source_losses(raw, folded.counts).sum())
        gains.append(losses[1] - losses[0])
    assert np.mean(gains) > 2 * np.std(gains) / np.sqrt(20) > 0, np.mean(gains)


def test_what_a_missing_number_stands_for_does_not_matter(of_categories):
    z = encode([3, 4], np.array([np.nan, np.nan]), [0.1, 0.2])
    again = z.copy()
    again[:, LEVELS + 1] = 9.0
    np.testing.assert_array_equal(of_categories.raw(z), of_categories.raw(again))


def test_missing_numbers_go_where_units_without_one_are_like_them(of_categories):
    """In truth they are like numbers above 0.5: 0.8 in a good level, and not 0.5."""
    z = encode(np.full(3, 3), np.array([np.nan, 1.5, 0.0]), np.zeros(3))
    mu = pm.atoms_from_raw(of_categories.raw(z), "free").mu[:, :, 1].mean(axis=0)
    # About a hundred units of an arm are alike; leaves are shrunk.
    assert abs(mu[0] - mu[1]) < 0.12 and mu[0] - mu[2] > 0.15


def test_unknown_levels_and_missing_numbers_get_finite_compatible_answers(
    of_categories,
):
    rng = np.random.default_rng(3)
    number = np.where(rng.random(60) < 0.5, np.nan, 100 * rng.normal(size=60))
    z = encode(np.full(60, -1), number, rng.normal(size=60))
    raw = of_categories.raw(z)
    assert np.isfinite(raw).all()
    atoms = pb.Atoms(*map(np.asarray, pm.atoms_from_raw(raw, "free")))
    assert np.all(pb.is_compatible(atoms, 1e-6))
    # An unknown level is none of those that a split names: the answer lies among theirs.
    known = [encode(np.full(60, level), number, z[:, -1]) for level in range(LEVELS)]
    chance = np.stack(
        [pm.atoms_from_raw(of_categories.raw(part), "free").joint for part in known]
    )
    treated = chance[..., 1, :].sum(axis=-1)
    answer = atoms.joint[..., 1, :].sum(axis=-1)
    assert np.all(answer > treated.min(axis=0) - 0.1)
    assert np.all(answer < treated.max(axis=0) + 0.1)


def test_the_order_of_levels_does_not_matter(categories, of_categories):
    order = np.r_[np.random.default_rng(1).permutation(LEVELS), LEVELS : LEVELS + 3]
    counts = categories.counts._replace(z=categories.counts.z[:, order])
    again = fit(categories._replace(counts=counts)).raw(counts.z)
    # Sums in another order, and ties between levels.
    np.testing.assert_allclose(again, of_categories.raw(categories.counts.z), atol=1e-3)


def test_columns_are_covariates_unless_it_is_said_otherwise(folded):
    few = pm.TreeLearner(max_trees=10)
    one, other = (
        fit(folded._replace(covariate=given), few) for given in (None, np.arange(2))
    )
    assert one.functions == other.functions and one.covariate.tolist() == [0, 1]


def test_saved_members_know_which_columns_belong_together(
    categories, of_categories, tmp_path
):
    pm.MEMBERS.save(of_categories, tmp_path / "members")
    again = pm.MEMBERS.load(tmp_path / "members")
    z = np.r_[categories.counts.z, encode([-1, 2], np.array([np.nan, 1]), [0, 0])]
    np.testing.assert_array_equal(again.raw(z), of_categories.raw(z))
    np.testing.assert_array_equal(again.take(np.array([1])).covariate, COVARIATE)


@pytest.mark.parametrize("num_cores", [1, 5])
def test_categories_do_not_depend_on_the_number_of_threads(
    categories, of_categories, monkeypatch, num_cores
):
    monkeypatch.setattr(os, "cpu_count", lambda: num_cores)
    assert fit(categories).functions == of_categories.functions


def test_all_that_runs_beside_each_other_asks_for_one_thread(folded, monkeypatch):
    """LightGBM's number of threads is global: raised while another predicts, it crashes."""
    lightgbm = pytest.importorskip("lightgbm")
    subset, asked = lightgbm.Dataset.subset, []

    def noted(self, rows, params=None):
        asked.append(params["num_threads"])
        return subset(self, rows, params)

    monkeypatch.setattr(lightgbm.Dataset, "subset", noted)
    fit(folded, pm.TreeLearner(max_trees=10))
    assert asked == [1] * 10 and _tree_learner._COMMON["num_threads"] == 1


WITHOUT_LIGHTGBM = """
import sys, warnings
import jax, numpy as np

class Broken:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "lightgbm":
            raise OSError("libgomp.so.1: cannot open shared object file")

sys.meta_path.insert(0, Broken())
import pns_models as pm

ones = np.full((4, 2, 2), 25.0, np.float32)
z = np.array([[0.0], [1.0], [0.0], [1.0]], np.float32)
fold, cell = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
folded = pm.FoldedCounts(pm.Counts(z, ones, ones), fold, cell)
learners = [pm.TreeLearner(), pm.LinearLearner()]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    result = pm.cross_fit(jax.random.key(0), folded, learners)
print([str(each.message) for each in caught if "left out" in str(each.message)])
print(result.stack.names, result.classes[0].problem)
"""

IMPORTED = """
import sys
import pns_models
print([name for name in ("lightgbm", "pandas", "sklearn", "skops") if name in sys.modules])
"""


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_without_lightgbm_only_the_trees_are_left_out():
    """Its library may be there, and the one of OpenMP that it needs may not."""
    missing = "libgomp.so.1: cannot open shared object file"
    warned, names = run(WITHOUT_LIGHTGBM)
    assert warned == str([f"boosted trees was left out: {missing}"])
    assert names == f"('ridge regression',) {missing}"


def test_importing_the_package_imports_no_library_of_single_learners():
    assert run(IMPORTED) == ["[]"]
