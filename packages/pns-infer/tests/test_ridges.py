"""Ridge corrections: indices that are known, ratios by loops, and honest folds."""

import dataclasses

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from pns_infer.calibration import ridges as _ridges
from scipy import special, stats

ALPHA, BETA = np.array([0.8, -0.6, 0.0]), np.array([0.0, 0.6, 0.8])
NUM_FOLDS = 4


@dataclasses.dataclass
class Data:
    """Rows of 20 units each; the model is the truth without its steps."""

    z: np.ndarray
    observational: np.ndarray
    experimental: np.ndarray
    fold: np.ndarray
    model: pb.Atoms
    truth: pb.Atoms

    def fit(self, **changes):
        changes = {name: changes.get(name, getattr(self, name)) for name in vars(self)}
        truth_of = pb.Atoms(
            *(np.stack([p] * (NUM_FOLDS + 1)) for p in changes["model"])
        )
        return pi.fit_ridges(
            np.random.default_rng(0),
            *(changes["z"], changes["observational"], changes["experimental"]),
            *(changes["fold"], truth_of),
            np.stack([np.eye(3)] * (NUM_FOLDS + 1)),
        )


def make_atoms(z, step):
    """Treatment by alpha . z, outcome by beta . z, with a step in each."""
    treated = special.expit(z @ ALPHA + step * np.sign(np.sin(9 * z @ ALPHA)))
    mu1 = special.expit(0.5 * z @ BETA + step * np.sign(np.sin(7 * z @ BETA)))
    mu = np.stack([0.6 * mu1, mu1], axis=-1)
    rows = [(1 - treated)[:, None] * np.stack([1 - mu[:, 0], mu[:, 0]], axis=-1)]
    rows += [treated[:, None] * np.stack([1 - mu[:, 1], mu[:, 1]], axis=-1)]
    return pb.Atoms(np.stack(rows, axis=1), mu)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((4000, 3))
    truth = make_atoms(z, step=0.7)
    arms = np.stack([1 - truth.mu, truth.mu], axis=-1)
    observational = rng.multinomial(20, truth.joint.reshape(-1, 4)).reshape(-1, 2, 2)
    return Data(
        z=z,
        observational=observational,
        experimental=rng.multinomial(10, arms),
        fold=rng.integers(0, NUM_FOLDS, len(z)),
        model=make_atoms(z, step=0.0),
        truth=truth,
    )


@pytest.fixture(scope="module")
def fit(data):
    return data.fit()


def mean_error(atoms, truth):
    return [np.mean((a - b) ** 2) for a, b in zip(atoms, truth, strict=True)]


def test_the_indices_of_outcome_and_treatment_are_found(data, fit):
    index = data.z @ fit.correction.directions.T + fit.correction.offsets
    np.testing.assert_allclose(index.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(index.std(axis=0), 1, atol=0.02)
    for found, true in zip(index.T, (BETA, ALPHA), strict=True):
        assert abs(np.corrcoef(found, data.z @ true)[0, 1]) > 0.998


def test_a_model_without_the_steps_is_corrected_on_rows_not_seen(data, fit):
    """Nine tenths of the squared error go; each source along its own indices."""
    before = mean_error(data.model, data.truth)
    for after in (
        mean_error(fit.held_out, data.truth),
        mean_error(fit.correction.apply(data.z, data.model), data.truth),
    ):
        assert all(a < 0.15 * b for a, b in zip(after, before, strict=True))
    log, trial = fit.correction.windows
    assert np.all(log > 0) and trial[0] > 0
    assert min(fit.gain) > 100
    assert np.all(pb.is_compatible(fit.held_out))


def test_a_model_that_is_right_is_left_alone(data):
    fit = data.fit(model=data.truth)
    # 24 settings were tried; by chance one may gain a little.
    assert max(fit.gain) < 10
    close = mean_error(fit.held_out, data.truth)
    assert max(close) < 2e-4


def test_held_out_rows_have_no_say_in_their_own_correction(data, monkeypatch):
    """Other outcomes in fold 2 change what is said of all folds but that one."""
    monkeypatch.setattr(_ridges, "_WINDOWS", (0.08,))  # or they choose the settings
    monkeypatch.setattr(_ridges, "_STRENGTHS", (100.0,))
    monkeypatch.setattr(_ridges, "_LEAST_GAIN", -np.inf)
    here = data.fold == 2
    changes = {}
    for name in ("observational", "experimental"):
        changes[name] = getattr(data, name).copy()
        changes[name][here] = changes[name][here][:, :, ::-1]
    before, after = data.fit(), data.fit(**changes)
    for one, other in zip(before.held_out, after.held_out, strict=True):
        np.testing.assert_array_equal(one[here], other[here])
        assert np.abs(one[~here] - other[~here]).max() > 0.01


def test_the_ratio_is_that_of_sums_over_a_window():
    """One by one: with normal weights, bins at their centers, shrunk by the strength."""
    rng = np.random.default_rng(0)
    index = rng.uniform(-1, 1, 60)
    counts = rng.integers(0, 9, (60, 1, 2)).astype(float)
    law = rng.dirichlet([2, 3], (60, 1))
    place = _ridges._bins(index)
    part = _ridges._Part(np.ones(60, bool), np.stack([place] * 2, 1), ALPHA, BETA)
    window, strength = 0.3, 40.0
    sums = _ridges._sum_bins(part, 0, counts, law)
    ratio = _ridges._ratio(*(_ridges._smooth(s, window) for s in sums), strength)
    width = 10 / 4096
    for i in (0, 17, 42):
        weight = np.exp(-(((place - place[i]) * width / window) ** 2) / 2)
        units = (weight * counts[:, 0].sum(axis=1)).sum()
        expected = np.einsum("n,n,no->o", weight, counts[:, 0].sum(axis=1), law[:, 0])
        plain = (weight[:, None] * counts[:, 0]).sum(axis=0) / expected
        wanted = (units * plain + strength) / (units + strength)
        np.testing.assert_allclose(ratio[place[i], 0], wanted, rtol=1e-3)
    assert np.all(_ridges._ratio(*(0 * s for s in sums), strength) == 1)
    surprise = _ridges._ratio(np.array([[9.0, 0]]), np.array([[1e-3, 9]]), 1.0)
    np.testing.assert_allclose(surprise, [[8, 0.125]])


def test_the_single_index_likelihood_is_that_of_the_other_rows_nearby():
    rng = np.random.default_rng(1)
    index = rng.standard_normal(50)
    counts = rng.integers(0, 5, (50, 2, 2)).astype(float)
    place = _ridges._bins(index, 512)
    overall = counts.sum(axis=0) / counts.sum(axis=(0, 2))[:, None]
    total = 0.0
    for i in range(50):
        weight = stats.norm.pdf((place - place[i]) * 10 / 512 / 0.1)
        weight = weight / stats.norm.pdf(0)
        weight[i] = 0
        law = np.tensordot(weight, counts, 1) + 10 * overall
        total += (counts[i] * np.log(law / law.sum(axis=1, keepdims=True))).sum()
    found = _ridges._single_index_likelihood(index, counts)
    np.testing.assert_allclose(found, total, rtol=1e-4)


def test_an_index_among_one_combination_is_itself():
    np.testing.assert_array_equal(
        _ridges.find_index(np.ones((5, 1)), np.ones((5, 1, 2))), [1.0]
    )


@pytest.mark.parametrize("angle", [0.3, 2.9])
def test_the_direction_of_a_step_in_the_plane_is_found(angle):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((3000, 2))
    true = np.array([np.cos(angle), np.sin(angle)])
    chance = np.where(z @ true > 0.2, 0.8, 0.3)
    counts = np.stack([1 - chance, chance], axis=-1)[:, None] * 5
    found = _ridges.find_index(z, rng.poisson(counts))
    assert abs(found @ true) > 0.999
    np.testing.assert_allclose(np.linalg.norm(found), 1)


def test_draws_move_as_their_center_does_and_stay_compatible(data):
    rng = np.random.default_rng(0)
    few = slice(0, 200)
    old, new = (pb.Atoms(a.joint[few], a.mu[few]) for a in (data.model, data.truth))
    joint = rng.dirichlet(np.ones(4), (30, 200)).reshape(30, 200, 2, 2)
    draws = pb.project_to_compatible(pb.Atoms(joint, rng.random((30, 200, 2))))
    moved = pi.shift_draws(draws, old, new)
    assert np.all(pb.is_compatible(moved))
    log_odds = [np.log(a.joint[..., 1, 1] / a.joint[..., 0, 0]) for a in (draws, moved)]
    expected = [np.log(a.joint[..., 1, 1] / a.joint[..., 0, 0]) for a in (old, new)]
    np.testing.assert_allclose(
        log_odds[1] - log_odds[0],
        np.broadcast_to(expected[1] - expected[0], (30, 200)),
        atol=1e-6,
    )
    # A center at the limit of its interval moves draws near it, not onto it.
    limit = pb.Atoms(new.joint, new.joint[..., 1])  # P(X = x, Y = 1) is the least
    pushed = pi.shift_draws(pb.Atoms(old.joint[None], old.mu[None]), old, limit)
    low, high = pushed.joint[..., 1], 1 - pushed.joint[..., 0]
    np.testing.assert_allclose((pushed.mu - low) / (high - low), 0.001, rtol=1e-3)


def test_models_and_folds_must_fit(data):
    with pytest.raises(pb.InputError, match=r"mu of models must have shape \[6, 4000"):
        data.fit(fold=data.fold + 1)
