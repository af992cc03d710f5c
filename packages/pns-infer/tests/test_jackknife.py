"""The jackknife scale gives the standard error of a mean of weighted means."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest

NUM_FOLDS, PER_FOLD, UNITS, POINTS = 4, 5, 200, 400
FOLD = np.repeat(np.arange(NUM_FOLDS), PER_FOLD)
SIGMA = 0.1  # of a unit


def make_atoms(means):
    """Four independent estimates of 0 per point, as atoms [..., num_points]."""
    joint = 0.25 + np.stack(
        [means[..., 0], -means[..., 0], means[..., 1], -means[..., 1]], axis=-1
    )
    return pb.Atoms(joint.reshape(*joint.shape[:-1], 2, 2), 0.5 + means[..., 2:])


def simulate(seed_noise=0.0, folds=FOLD):
    """Members that are means with random weights over the units of the other folds."""
    rng = np.random.default_rng(0)
    data = SIGMA * rng.standard_normal((UNITS, POINTS, 4))
    unit_fold = np.arange(UNITS) % NUM_FOLDS
    members = []
    for fold in folds:
        kept = data[unit_fold != fold]
        weights = rng.exponential(size=kept.shape)
        mean = (weights * kept).sum(axis=0) / weights.sum(axis=0)
        members.append(mean + seed_noise * rng.standard_normal(mean.shape))
    return np.stack(members)


@pytest.mark.parametrize("seed_noise", [0.0, 0.5, 2.0])
def test_scaled_members_have_the_standard_error_of_their_mean(seed_noise):
    """Averaged over 1600 estimates the truth is known to 1.8 percent: 1 / sqrt(3200).

    Without seed noise the scale is at its limit, which costs a percent or so.
    """
    error = SIGMA / np.sqrt(UNITS)
    means = simulate(seed_noise * error)
    scale = pi.jackknife_scale(make_atoms(means), FOLD)
    scaled = scale * np.sqrt(means.var(axis=0, ddof=1).mean())
    within = error**2 * NUM_FOLDS / (NUM_FOLDS - 1) + (seed_noise * error) ** 2
    truth = np.sqrt(error**2 + within / len(FOLD))
    np.testing.assert_allclose(scaled, truth, rtol=0.06)
    np.testing.assert_allclose(
        scaled, np.sqrt(np.mean(means.mean(axis=0) ** 2)), rtol=0.08
    )
    plain = np.sqrt(means.var(axis=0, ddof=1).mean())
    if seed_noise == 2.0:  # wrong code that returns 1 is far off
        assert plain > 1.8 * truth


def test_labels_and_order_of_folds_do_not_matter_and_bias_is_not_seen():
    means = simulate()
    scale = pi.jackknife_scale(make_atoms(means), FOLD)
    order = np.random.default_rng(1).permutation(len(FOLD))
    other = pi.jackknife_scale(make_atoms(means[order]), 7 * FOLD[order] + 3)
    np.testing.assert_allclose(other, scale, rtol=1e-12)
    biased = pi.jackknife_scale(make_atoms(means + 0.02), FOLD)
    np.testing.assert_allclose(biased, scale, rtol=1e-9)


def test_the_scale_is_the_formula_of_the_module():
    """Members (fold means 0, 3; deviations 1) in loops; one number varies per point."""
    values = np.array([-1.0, 1.0, 2.0, 4.0]) / 100
    fold = np.array([0, 0, 1, 1])
    means = np.zeros((4, 1, 4))
    means[:, 0, 3] = values
    within = np.mean([np.var(values[:2], ddof=1), np.var(values[2:], ddof=1)])
    between = np.var([0.0, 0.03], ddof=1)
    sampling = min(max((between - within / 2) / 2, 0), within / 2)
    expected = np.sqrt((sampling + within / 4) / np.var(values, ddof=1))
    scale = pi.jackknife_scale(make_atoms(means), fold)
    np.testing.assert_allclose(scale, expected, rtol=1e-12)


def test_members_that_do_not_differ_have_scale_0():
    assert pi.jackknife_scale(make_atoms(np.zeros((4, 3, 4))), [0, 0, 1, 1]) == 0


def test_folds_that_do_not_fit_are_told():
    atoms = make_atoms(np.zeros((4, 3, 4)))
    with pytest.raises(ValueError, match=r"fold must have shape \[4\]"):
        pi.jackknife_scale(atoms, [0, 0, 1])
    for fold, sizes in (
        ([0, 0, 0, 1], r"\[3, 1\]"),
        ([0, 0, 0, 0], r"\[4\]"),
        ([0, 1, 2, 3], r"\[1, 1, 1, 1\]"),
    ):
        with pytest.raises(ValueError, match=f"same number of members.*{sizes}"):
            pi.jackknife_scale(atoms, fold)
    with pytest.raises(ValueError, match=r"shape \[num_members, num_points\]"):
        pi.jackknife_scale(make_atoms(np.zeros((4, 4))), [0, 0, 1, 1])
