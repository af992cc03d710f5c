"""Intervals for a mean: one point, coverage under ties and separation, subgroups."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from test_intervals import draw_atoms


def test_the_mean_of_a_well_identified_term_is_that_of_its_draws():
    """One lower term far above the floor: the interval is a plain bootstrap interval."""
    rng = np.random.default_rng(0)
    lower = 0.5 + 0.05 * rng.standard_normal((1999, 4, 1))
    upper = 0.8 + 0.01 * rng.standard_normal((1999, 4, 1))
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    interval = pi.average_interval(
        pb.BoundTerms(lower, upper), sample_size=100, weights=weights
    )
    means = lower[..., 0] @ weights / 10
    half = np.median(means)
    np.testing.assert_allclose(interval.bound_lower, half, atol=0.005)
    np.testing.assert_allclose(
        interval.lower,
        means.mean() - np.quantile(means - means.mean(), 0.975),
        atol=0.005,
    )
    only_first = pi.average_interval(
        pb.BoundTerms(lower, upper), sample_size=100, weights=[1, 0, 0, 0]
    )
    alone = pi.average_interval(
        pb.BoundTerms(lower[:, :1], upper[:, :1]), sample_size=100
    )
    np.testing.assert_allclose(only_first, alone)
    groups = pi.average_interval(
        pb.BoundTerms(lower, upper), sample_size=100, weights=[weights, [1, 0, 0, 0]]
    )
    for field, one, two in zip(groups, interval, only_first, strict=True):
        np.testing.assert_allclose(field, [one, two])


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.02, 0.5])
def test_the_mean_is_covered_whether_terms_tie_or_not(gap):
    """30 points with independent noise, the hard case: a plug-in would never cover.

    300 replicates at 90%: Monte Carlo error 0.017.
    """
    rng = np.random.default_rng(1)
    num, error = 30, 0.05
    low = np.tile([0.3, 0.3 - gap], (num, 1))
    high = np.tile([0.7, 0.7 + gap], (num, 1))
    noise = error * rng.standard_normal((2, 400, num, 2))
    covered, plug_in = [], []
    for _ in range(300):
        errors = error * rng.standard_normal((2, num, 2))
        middle = pb.BoundTerms(low + errors[0], high + errors[1])
        draws = pb.BoundTerms(middle.lower + noise[0], middle.upper + noise[1])
        interval = pi.average_interval(draws, 0.1, sample_size=20_000, center=middle)
        covered.append(interval.lower <= 0.3 and interval.upper >= 0.7)
        plug_in.append(np.mean(middle.lower.max(1)) - 0.3)
    assert np.mean(covered) > 0.9 - 3 * 0.017
    if gap == 0:
        assert np.mean(plug_in) > 0.02  # three standard errors of the mean
    if gap == 0.5:
        assert np.mean(covered) < 0.9 + 3 * 0.017


def test_averages_lie_in_their_limits_and_bad_weights_are_told():
    draws = draw_atoms(400, 10, noise=2.0)
    interval = pi.average_interval(draws, sample_size=500)
    assert 0 <= interval.lower <= interval.bound_lower
    assert interval.bound_upper <= interval.upper <= 1 and not interval.is_empty
    chunked = pi.average_interval(draws, sample_size=500, points_per_chunk=3)
    np.testing.assert_allclose(interval, chunked, atol=1e-12)
    for weights, message in (
        (np.ones(9), "one per point, got 9 for 10"),
        (np.ones(11), "one per point, got 11 for 10"),
        (np.zeros(10), "not all 0"),
        (-np.ones(10), "not negative"),
        (np.full(10, np.nan), "not negative"),
    ):
        with pytest.raises(pb.InputError, match=message):
            pi.average_interval(draws, sample_size=500, weights=weights)


def test_weights_follow_their_points_through_chunks_and_limits_add_no_noise():
    draws = draw_atoms(400, 6)
    weights = np.arange(6.0)
    whole = pi.average_interval(draws, sample_size=500, weights=weights)
    chunked = pi.average_interval(
        draws, sample_size=500, weights=weights, points_per_chunk=2
    )
    np.testing.assert_allclose(whole, chunked, atol=1e-12)
    # Three points whose terms lie far below the floor: only the fourth is uncertain.
    rng = np.random.default_rng(0)
    lower = -5 + 0.05 * rng.standard_normal((400, 4, 1))
    lower[:, 0] += 5.5
    upper = np.full((400, 4, 1), 0.9)
    mixed = pi.average_interval(pb.BoundTerms(lower, upper), sample_size=500)
    alone = pi.average_interval(
        pb.BoundTerms(lower[:, :1], upper[:, :1]), sample_size=500
    )
    np.testing.assert_allclose(
        mixed.bound_lower - mixed.lower, (alone.bound_lower - alone.lower) / 4
    )
    for sample_size in (0, 1, 1.05, np.nan):
        with pytest.raises(pb.InputError, match="sample_size must be at least 2"):
            pi.average_interval(draws, sample_size=sample_size)
