"""The probability of an arm: read, tested, warned about."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest


def draw_trial(seed, chance, count=3000):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((count, 3))
    probability = np.broadcast_to(chance(z) if callable(chance) else chance, count)
    return (rng.random(count) < probability).astype(int), z, probability


def test_without_a_probability_the_shares_are_used():
    x, z, _ = draw_trial(0, 0.3)
    weights = np.random.default_rng(1).uniform(1, 2, 3000)
    found = pi.check_assignment(x, z, weights=weights)
    np.testing.assert_allclose(found.probability, np.average(x, weights=weights))
    assert found.p_value == 1 and found.balance.p_value > 0.01


def test_a_column_of_a_stratified_trial_agrees_with_the_data():
    x, z, probability = draw_trial(2, lambda z: np.where(z[:, 0] > 0, 0.7, 0.4))
    found = pi.check_assignment(x, z, probability)
    assert found.p_value > 0.01 and found.balance.p_value > 0.01
    np.testing.assert_array_equal(found.probability, probability)


def test_covariates_that_predict_the_arm_are_warned_of():
    x, z, _ = draw_trial(3, lambda z: np.where(z[:, 0] > 0, 0.6, 0.4))
    with pytest.warns(pi.AssignmentWarning, match="covariates predict the arm"):
        pi.check_assignment(x, z, 0.5)


def test_whole_clusters_may_be_assigned():
    rng = np.random.default_rng(4)
    cluster = np.repeat(np.arange(300), 10)
    x = np.repeat(rng.integers(0, 2, 300), 10)
    z = np.repeat(rng.standard_normal((300, 2)), 10, axis=0)
    assert pi.check_assignment(x, z, 0.5, cluster=cluster).balance.p_value > 0.001


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (0.4, "assignment contradicts the data: arm 1 holds"),
        (0.0, "strictly between 0 and 1"),
        (np.nan, "strictly between 0 and 1"),
        ([0.5, 0.5], r"shape \[3000\], one for each row"),
        ("half", "must be a number, or one for each row"),
    ],
)
def test_bad_probabilities_end_in_one_sentence(assignment, message):
    x, z, _ = draw_trial(5, 0.5)
    with pytest.raises(pb.InputError, match=message):
        pi.check_assignment(x, z, assignment)


def test_frequencies_are_copies_of_the_row():
    x, z, _ = draw_trial(6, 0.5, 200)
    times = np.random.default_rng(7).integers(1, 4, 200).astype(float)
    place = np.repeat(np.arange(200), times.astype(int))
    short = pi.check_assignment(x, z, 0.5, times, copies=times)
    long = pi.check_assignment(x[place], z[place], 0.5)
    np.testing.assert_allclose(short.p_value, long.p_value)
    np.testing.assert_allclose(short.balance, long.balance)


def test_one_arm_is_told():
    with pytest.raises(pb.InputError, match="one arm only"):
        pi.check_assignment(np.ones(5, int), np.ones((5, 1)))
