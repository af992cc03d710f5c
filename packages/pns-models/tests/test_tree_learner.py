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
