"""Regressions: gradients, slopes by other optimizers, and covariates of all kinds."""

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _linear_learner
from pns_models._learner import RunContext
from pns_models._links import log_probabilities
from scipy import optimize
from sklearn.linear_model import LogisticRegression

LEARNERS = [
    pm.LinearLearner(),
    pm.LinearLearner(num_knots=8),
    pm.LinearLearner(num_landmarks=20),
]


def fit(folded, learner=None, **parts):
    learner = pm.LinearLearner() if learner is None else learner
    resamples = pm.Resamples(folded, **parts)
    return learner.fit(jax.random.key(0), resamples, RunContext())


def make_folded(tables, num_folds=2):
    rows = pm.rows_from_tables(*tables)
    return rows.deal(np.random.default_rng(0), num_folds).folded()[0]


def make_tables(n=2000, m=1500, seed=0):
    """Draws a count of different scales, a flag, and what they decide."""
    rng = np.random.default_rng(seed)
    tables = []
    for size, is_trial in ((n, False), (m, True)):
        z = np.stack([10 * rng.integers(0, 9, size), rng.integers(0, 2, size)], axis=1)
        lean = 0.2 + 0.006 * z[:, 0]
        x = rng.random(size) < (0.5 if is_trial else lean)
        y = rng.random(size) < 0.2 + 0.3 * z[:, 1] * x + 0.004 * z[:, 0]
        tables.append((z.astype(np.float32), x.astype(int), y.astype(int)))
    return tables


@pytest.fixture(scope="module")
def folded():
    return make_folded(make_tables())


@pytest.fixture(scope="module")
def members(folded):
    return fit(folded)


@pytest.mark.parametrize("source", [0, 1])
def test_the_gradient_of_each_member_is_that_of_its_log_likelihood(source):
    rng = np.random.default_rng(0)
    rotated = rng.normal(size=(30, 3)).astype(np.float32)
    counts = rng.integers(0, 5, (30, 6, 2, 2)).astype(np.float32)
    cells = rng.normal(size=(30, 6, 4)).astype(np.float32)
    anchor = np.asarray(jax.nn.log_softmax(cells)) if source else None
    slopes = rng.normal(size=(6, 4, 2 if source else 4))

    def loss(slopes, member):
        own = slopes[0] + rotated @ slopes[1:]
        other = jnp.zeros((30, 2)) if source == 0 else jnp.asarray(cells[:, member])
        raw = jnp.concatenate([other, own] if source else [own, other], axis=1)
        logs = log_probabilities(raw, "anchored")
        return -jnp.sum(counts[:, member] * (logs.outcome if source else logs.joint))

    part = _linear_learner._Part(rotated, anchor, counts)
    values, gradients = _linear_learner._loss(slopes, part)
    for member in range(6):
        expected = jax.value_and_grad(loss)(
            jnp.asarray(slopes[member], jnp.float32), member
        )
        np.testing.assert_allclose(values[member], expected[0], rtol=1e-5)
        np.testing.assert_allclose(gradients[member], expected[1], rtol=1e-4, atol=1e-3)


def standardized(folded):
    """Standardizes the distinct covariate vectors, each counted once."""
    z = folded.cell_covariates().astype(float)
    return (z - z.mean(axis=0)) / z.std(axis=0)


def seen_by(folded, fold, source):
    """Adds up the counts of each cell outside a fold."""
    counts = np.zeros((int(folded.cell.max()) + 1, 2, 2))
    is_seen = folded.fold != fold
    np.add.at(counts, folded.cell[is_seen], folded.counts[1 + source][is_seen])
    return counts


def test_slopes_of_the_log_are_those_of_scikit_learn(folded, members):
    """Its penalty is |b|^2 / (2 C) beside a sum over units, on the unrotated problem."""
    z = standardized(folded)
    for fold in range(2):
        counts = seen_by(folded, fold, 0).reshape(-1, 4)
        tau = members.penalties[fold, 0]
        other = LogisticRegression(C=1 / (2 * tau), tol=1e-8, max_iter=1000)
        rows, label = np.nonzero(counts)
        other.fit(z[rows], label, sample_weight=counts[rows, label])
        ours = members.log[fold]
        np.testing.assert_allclose(ours[1:].T, other.coef_, atol=0.01)
        start = ours[0] - ours[0].mean()
        np.testing.assert_allclose(start, other.intercept_, atol=0.01)
        assert np.abs(other.coef_).max() > 0.2, "or slopes of 0 would pass"


def test_slopes_of_the_trial_minimize_its_loss_given_the_log(folded, members):
    """By BFGS without a gradient of ours, on the unrotated problem."""
    z = standardized(folded)
    for fold in range(2):
        counts = jnp.asarray(seen_by(folded, fold, 1))
        cells = members.log[fold][0] + z @ members.log[fold][1:]
        tau = members.penalties[fold, 1]

        def loss(flat, cells=cells, counts=counts, tau=tau):
            slopes = flat.reshape(3, 2)
            raw = jnp.concatenate([cells, slopes[0] + z @ slopes[1:]], axis=1)
            outcome = log_probabilities(raw, "anchored").outcome
            return -jnp.sum(counts * outcome) + tau * jnp.sum(slopes[1:] ** 2)

        with jax.enable_x64(True):
            both = jax.jit(jax.value_and_grad(loss))
            best = optimize.minimize(both, np.zeros(6), jac=True, method="BFGS")
            ours = float(loss(jnp.asarray(members.trial[fold], float).ravel()))
        assert best.fun <= ours + 1e-6 and ours < best.fun + 0.01
        slopes = best.x.reshape(3, 2)
        np.testing.assert_allclose(members.trial[fold], slopes, atol=0.05)
        assert np.abs(slopes[1:]).max() > 0.2, "or slopes of 0 would pass"


def test_answers_are_free_numbers_of_compatible_atoms(folded, members):
    z = folded.counts.z
    raw = members.raw(z)
    atoms = pm.atoms_from_raw(raw, "free")
    assert raw.shape == (2, len(z), 6) and raw.dtype == np.float32
    assert np.all(pb.is_compatible(pb.Atoms(*map(np.asarray, atoms)), 1e-6))
    flag = z[:, 1] == 1
    effect = np.asarray(atoms.mu[..., 1] - atoms.mu[..., 0])
    assert effect[:, flag].mean() > effect[:, ~flag].mean() + 0.2, "0.3 in truth"


def test_far_away_rows_are_answered_as_the_edge(folded, members):
    edge, far = [[80.0, 1.0]], [[1e9, 1.0]]
    np.testing.assert_array_equal(
        members.raw(np.array(far, np.float32)), members.raw(np.array(edge, np.float32))
    )


def test_members_weigh_penalties_by_held_out_likelihood(folded):
    """Slopes of the log are strong here, so no penalty is; without slopes all are."""
    members = fit(folded, per_fold=3, share=0.25, seed=1)
    assert members.fold.tolist() == [0, 1, 0, 1, 0, 1]
    assert np.all(np.isin(members.penalties, _linear_learner._PENALTIES))
    assert np.all(np.diff(members.penalties, axis=0) <= 0)
    assert members.penalties[:, 0].max() < 1000
    raw = members.raw(folded.counts.z)
    assert not np.allclose(raw[0], raw[2])
    rng = np.random.default_rng(0)
    noise = [(rng.permutation(z), x, y) for z, x, y in make_tables()]
    flat = fit(make_folded(noise), per_fold=3, share=0.25, seed=1)
    assert flat.penalties[0, 0] > 10 * members.penalties[0, 0]


def test_a_spline_follows_a_curve_that_a_ridge_cannot():
    rng = np.random.default_rng(0)
    tables = []
    for size in (4000, 4000):
        z = rng.uniform(-2, 2, (size, 1)).astype(np.float32)
        x = rng.integers(0, 2, size)
        y = (rng.random(size) < 0.1 + 0.8 * (np.abs(z[:, 0]) > 1)).astype(int)
        tables.append((z, x, y))
    folded = make_folded(tables)
    z = np.array([[-1.7], [0.0], [1.7]], np.float32)
    means = [
        np.asarray(pm.atoms_from_raw(fit(folded, learner).raw(z), "free").mu).mean(
            (0, 2)
        )
        for learner in (pm.LinearLearner(num_knots=10), pm.LinearLearner())
    ]
    np.testing.assert_allclose(means[0], [0.9, 0.1, 0.9], atol=0.08)
    assert np.abs(means[1] - 0.5).max() < 0.1


def test_a_kernel_follows_a_product_that_splines_cannot():
    rng = np.random.default_rng(0)
    tables = []
    for size in (4000, 4000):
        z = rng.uniform(-2, 2, (size, 2)).astype(np.float32)
        x = rng.integers(0, 2, size)
        y = (rng.random(size) < 0.3 + 0.4 * (z[:, 0] * z[:, 1] > 0)).astype(int)
        tables.append((z, x, y))
    folded = make_folded(tables)
    z = np.array([[1.3, 1.3], [1.3, -1.3], [-1.3, -1.3]], np.float32)
    kernel, splines = (
        np.asarray(pm.atoms_from_raw(fit(folded, learner).raw(z), "free").mu).mean(
            (0, 2)
        )
        for learner in (pm.LinearLearner(num_landmarks=100), pm.LinearLearner(10))
    )
    np.testing.assert_allclose(kernel, [0.7, 0.3, 0.7], atol=0.07)
    assert np.ptp(splines) < 0.1


@pytest.mark.parametrize("share", [0.25, 1 / 16])
def test_members_that_see_a_share_fit_it_alone(share):
    """Slopes by another optimizer, of the units that each member sees."""
    folded = make_folded(make_tables())
    resamples = pm.Resamples(folded, 2, share, seed=1)
    members = pm.LinearLearner().fit(jax.random.key(0), resamples, RunContext())
    features = members.basis(resamples.z)
    for member in range(4):
        cells = resamples.counts(member)[:, 0].reshape(-1, 4)
        tau = members.penalties[member, 0]

        def loss(flat, cells=cells, tau=tau):
            slopes = flat.reshape(3, 4)
            raw = jnp.asarray(slopes[0] + features @ slopes[1:])
            return float(
                tau * (slopes[1:] ** 2).sum() - (cells * jax.nn.log_softmax(raw)).sum()
            )

        own = members.log[member].astype(float)
        best = optimize.minimize(loss, own.ravel(), method="Powell")
        assert loss(own.ravel()) < best.fun + 0.02


@pytest.mark.parametrize("learner", LEARNERS)
def test_collinear_categories_and_constants_are_no_problem(learner):
    """Three indicators that add up to 1, beside a column of ones."""
    rng = np.random.default_rng(1)
    tables, rates = [], np.array([0.2, 0.5, 0.8])
    for size in (3000, 3000):
        group = rng.integers(0, 3, size)
        z = np.c_[np.eye(3)[group], np.ones(size)].astype(np.float32)
        y = (rng.random(size) < rates[group]).astype(int)
        tables.append((z, rng.integers(0, 2, size), y))
    members = fit(make_folded(tables), learner)
    z = np.c_[np.eye(3), np.ones(3)].astype(np.float32)
    atoms = pm.atoms_from_raw(members.raw(z), "free")
    # The standard error of a rate is 0.02: half of a group of 500 in an arm.
    np.testing.assert_allclose(
        atoms.mu, np.tile(rates, (2, 2, 1)).swapaxes(1, 2), atol=0.08
    )
    other = z.copy()
    other[:, 3] = 7  # never seen
    np.testing.assert_array_equal(members.raw(other), members.raw(z))


@pytest.mark.parametrize("learner", LEARNERS)
def test_covariates_that_are_all_constant_give_the_frequencies(learner):
    tables = [(np.ones((len(z), 2), np.float32), x, y) for z, x, y in make_tables()]
    folded = make_folded(tables)
    atoms = pm.atoms_from_raw(
        fit(folded, learner).raw(np.ones((1, 2), np.float32)),
        "free",
    )
    for fold in range(2):
        joint, arms = (seen_by(folded, fold, source)[0] for source in (0, 1))
        np.testing.assert_allclose(atoms.joint[fold, 0], joint / joint.sum(), atol=2e-3)
        mu = arms[:, 1] / arms.sum(axis=1)
        np.testing.assert_allclose(atoms.mu[fold, 0], mu, atol=2e-3)


@pytest.mark.parametrize("learner", LEARNERS)
def test_an_outcome_without_a_case_outside_a_fold_stays_finite(learner):
    """All three cases of both sources lie in fold 0, whose members see none."""
    tables = make_tables()
    folded = make_folded(
        [(z, x, (np.arange(len(y)) < 3).astype(int)) for z, x, y in tables]
    )
    for part in folded.counts[1:]:
        outside = folded.fold != 0
        part[outside, :, 0] += part[outside, :, 1]
        part[outside, :, 1] = 0
    raw = fit(folded, learner).raw(folded.counts.z)
    assert np.isfinite(raw).all()
    mu = np.asarray(pm.atoms_from_raw(raw, "free").mu)
    assert mu.max() < 0.05
    assert mu[0].mean() < mu[1].mean(), "fold 0 has members that saw no case"


@pytest.mark.parametrize("learner", LEARNERS)
def test_saved_members_answer_alike(folded, tmp_path, learner):
    members = fit(folded, learner, per_fold=2, share=0.5)
    pm.MEMBERS.save(members, tmp_path / "members")
    again = pm.MEMBERS.load(tmp_path / "members")
    z = folded.counts.z
    np.testing.assert_array_equal(again.raw(z), members.raw(z))
    np.testing.assert_array_equal(again.fold, members.fold)
    np.testing.assert_array_equal(
        again.take(np.array([3, 0])).raw(z), members.raw(z)[[3, 0]]
    )


def test_nothing_but_the_resamples_decides(folded):
    members = [
        pm.LinearLearner().fit(jax.random.key(key), pm.Resamples(folded), RunContext())
        for key in (0, 1)
    ]
    np.testing.assert_array_equal(members[0].trial, members[1].trial)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.name)
def test_cells_in_which_nobody_is_have_logits_of_moderate_size(learner):
    """Each member sees about thirty units, of whom hardly any responds."""
    rng = np.random.default_rng(0)
    tables = [
        (
            rng.normal(size=(size, 8)).astype(np.float32),
            rng.integers(0, 2, size),
            (rng.random(size) < 0.02).astype(int),
        )
        for size in (500, 250)
    ]
    members = fit(make_folded(tables, 5), learner, per_fold=8, share=1 / 16)
    constants = members.log[:, 0]
    spread = np.ptp(constants, axis=1)
    assert spread.max() > 8, "some members see no case at all"
    assert spread.max() < 30
