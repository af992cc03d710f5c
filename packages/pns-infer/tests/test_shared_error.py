"""Errors that members share: found in outcomes of neighbors, by pairs one by one."""

import itertools

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from pns_infer.calibration import shared_error as _shared_error


def make_problem(seed, size, bias, spread, num_members=8):
    """Units on a line; members are the truth, a shared error, and errors of their own.

    The shared error is bias times sin(8 z), in every atom of mu and in p11 against p00.
    """
    rng = np.random.default_rng(seed)
    z = rng.uniform(0, 3, size)
    shared = bias * np.sin(8 * z)[:, None]
    own = rng.normal(0, spread, (num_members, 2))
    wave = np.stack([np.sin(z), np.cos(z)], axis=1)
    deviation = (wave[None] * own[:, None]).sum(axis=2, keepdims=True) * np.ones(2)
    mu = 0.5 + 0.2 * np.sin(z)[:, None] * np.ones(2)
    joint = np.full((size, 2, 2), 0.25)
    tilt = np.array([[-1, 0], [0, 1]])
    truth = pb.Atoms(joint, mu)
    shift = shared + deviation  # [m, n, 2]
    members = pb.Atoms(joint + shift[..., :1, None] * tilt, mu + shift)
    # Outcomes follow the truth; a third of the rows are of the log.
    outcomes = np.zeros((2, size, 2, 2))
    is_log = rng.uniform(size=size) < 1 / 3
    cell = rng.integers(0, 4, size)
    arm = rng.integers(0, 2, size)
    y = rng.uniform(size=size) < truth.mu[np.arange(size), arm]
    for i in range(size):
        if is_log[i]:
            outcomes[0, i, cell[i] // 2, cell[i] % 2] = 1
        else:
            outcomes[1, i, arm[i], int(y[i])] = 1
    return z, members, outcomes, rng.integers(0, 5, size)


def ask(z, members, outcomes, fold):
    held_out = pb.Atoms(*(part.mean(axis=0) for part in members))
    return pi.shared_error(
        lambda rows: pb.Atoms(*(part[:, rows] for part in members)),
        held_out,
        *outcomes,
        fold,
        z[:, None],
    )


def test_pairs_one_by_one_give_the_same_number(monkeypatch):
    """A loop over all pairs of the trial's treated arm, in groups as they were cut."""
    monkeypatch.setattr(_shared_error, "_GROUP_SIZE", 3)
    monkeypatch.setattr(_shared_error, "_BLOCK", 17)
    z, members, (log, trial), fold = make_problem(0, 90, 0.1, 0.05)
    log = 0 * log
    trial[:, 0] = 0
    found = ask(z, members, (log, trial), fold)
    mine = trial[:, 1].sum(axis=1) > 0
    values, mean = members.mu[..., 1], members.mu[..., 1].mean(axis=0)
    products, covariances = [], []
    for each in range(5):
        rows = np.flatnonzero(mine & (fold == each))
        label = pi.neighborhoods(z[rows, None], 3)
        for i, j in itertools.permutations(range(len(rows)), 2):
            if label[i] == label[j]:
                a, b = rows[i], rows[j]
                products.append((trial[a, 1, 1] - mean[a]) * (trial[b, 1, 1] - mean[b]))
                covariances.append(np.cov(values[:, a], values[:, b])[0, 1])
    variance = values[:, mine].var(axis=0, ddof=1).mean()
    want = (np.mean(products) - np.mean(covariances)) / variance
    np.testing.assert_allclose(found.excess, want)


@pytest.mark.parametrize("bias", [0.0, 0.1])
def test_what_members_share_is_found_and_nothing_else(monkeypatch, bias):
    """Sixty pairs of tables: the mean is right, and so is the standard error.

    Four neighbors of 400 are so near that they share nearly all of the error.
    """
    monkeypatch.setattr(_shared_error, "_GROUP_SIZE", 4)
    found, wanted = [], []
    for seed in range(60):
        z, members, outcomes, fold = make_problem(seed, 6000, bias, 0.05)
        found.append(ask(z, members, outcomes, fold))
        deviation = members.mu - members.mu.mean(axis=0)
        variance = np.sum(deviation**2, axis=0).mean() / 7
        error = members.mu.mean(axis=0) - (0.5 + 0.2 * np.sin(z))[:, None]
        wanted.append((error**2).mean() / variance - 1)
    excess, error = np.array(found).T
    gap = excess - wanted
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(60)
    # Estimates vary as they say, up to the noise of sixty.
    np.testing.assert_allclose(np.mean(error**2), gap.var(), rtol=0.8)
    if bias:
        assert np.mean(wanted) > 0.3 and np.mean(excess) > 0.3


def test_the_order_of_rows_does_not_matter(monkeypatch):
    """Also if a block of rows has none of an arm, as where the log comes first."""
    monkeypatch.setattr(_shared_error, "_BLOCK", 50)
    z, members, outcomes, fold = make_problem(1, 600, 0.1, 0.05)
    order = np.argsort(outcomes[1].sum(axis=(1, 2)), kind="stable")
    sorted_members = pb.Atoms(*(part[:, order] for part in members))
    found = ask(z[order], sorted_members, outcomes[:, order], fold[order])
    np.testing.assert_allclose(found, ask(z, members, outcomes, fold))


def test_the_least_is_a_standard_error_less_and_not_negative():
    assert pi.SharedError(1.5, 0.5).least == 1.0
    assert pi.SharedError(0.2, 0.5).least == 0.0
    assert pi.SharedError(-1.0, 0.5).least == 0.0


def test_members_that_agree_tell_nothing():
    z, members, outcomes, fold = make_problem(0, 200, 0.1, 0.0)
    same = pb.Atoms(*(part[:1].repeat(8, axis=0) for part in members))
    assert ask(z, same, outcomes, fold) == (0, 0)
