"""Means and bands: containment, coverage, subgroups, thresholds, heterogeneity."""

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


def test_a_band_contains_the_pointwise_intervals():
    draws = draw_atoms(2000, 40)
    for statistic in ("absolute", "one_sided"):
        band = pi.uniform_band(draws, statistic=statistic)
        points = pi.intervals_from_draws(draws, selection="none")
        assert np.all(band.lower <= points.lower)
        assert np.all(band.upper >= points.upper)
        assert band.kappa_lower > points.kappa_lower.max()
    assert band.kappa_lower != band.kappa_upper
    absolute = pi.uniform_band(draws)
    assert absolute.kappa_lower == absolute.kappa_upper
    assert np.all(absolute.lower <= band.lower)


def test_kappa_is_the_quantile_of_the_supremum():
    draws = draw_atoms(999, 6)
    terms = pb.PNS.terms(draws)
    standard = [(v - v.mean(0)) / v.std(0, ddof=1) for v in terms]
    greatest = np.sort(np.abs(np.concatenate(standard, axis=2)).max(axis=(1, 2)))
    band = pi.uniform_band(draws, 0.1)
    np.testing.assert_allclose(band.kappa_lower, greatest[899])
    lower = np.sort(standard[0].max(axis=(1, 2)))
    upper = np.sort(-standard[1].min(axis=(1, 2)))
    band = pi.uniform_band(draws, 0.1, statistic="one_sided", points_per_chunk=4)
    np.testing.assert_allclose(band.kappa_lower, lower[949])
    np.testing.assert_allclose(band.kappa_upper, upper[949])
    one = pi.uniform_band(draws, 0.1, statistic="one_sided", side="lower")
    np.testing.assert_allclose(one.kappa_lower, lower[899])
    assert np.all(one.upper == 1)


def simulated_bands(num_replicates, alpha, options):
    """Ten points with correlated errors; returns how often all sets are covered."""
    rng = np.random.default_rng(0)
    num = 10
    low = np.linspace(0.1, 0.3, num)[:, None] + np.array([0.0, -0.01])
    high = np.linspace(0.5, 0.8, num)[:, None] + np.array([0.0, 0.02])
    shared = rng.standard_normal((1000, 1, 1)) * 0.02
    noise = [shared + 0.02 * rng.standard_normal((1000, num, 2)) for _ in range(2)]
    covered = []
    for _ in range(num_replicates):
        common = 0.02 * rng.standard_normal()
        errors = [common + 0.02 * rng.standard_normal((num, 2)) for _ in range(2)]
        middle = pb.BoundTerms(low + errors[0], high + errors[1])
        draws = pb.BoundTerms(middle.lower + noise[0], middle.upper + noise[1])
        band = pi.uniform_band(draws, alpha, center=middle, **options)
        covered.append(
            np.all(band.lower <= low.max(1)) and np.all(band.upper >= high.min(1))
        )
    return np.mean(covered)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"statistic": "one_sided"}, {"statistic": "one_sided", "side": "lower"}],
)
def test_a_band_covers_the_whole_function_as_often_as_asked(options):
    """400 replicates at 80%: Monte Carlo error 0.02. One-sided bands are near exact."""
    coverage = simulated_bands(400, 0.2, options)
    assert coverage > 0.8 - 3 * 0.02
    if options:
        assert coverage < 0.8 + 0.1  # one term in two matters little


def test_threshold_sets_follow_the_band():
    lower, upper = np.array([0.6, 0.1, 0.2, 0.7]), np.array([0.9, 0.3, 0.8, 0.6])
    band = pi.Band(lower, upper, 2.0, 2.0, lower > upper)
    found = band.threshold(0.5)
    assert found.above.tolist() == [True, False, False, False]
    assert found.below.tolist() == [False, True, False, False]
    assert found.undecided.tolist() == [False, False, True, True]
    with pytest.raises(pb.InputError, match="threshold must be finite"):
        band.threshold(np.nan)


def heterogeneity_draws(rng, center, noise):
    errors = 0.05 * rng.standard_normal((2, len(center), 1))
    middle = pb.BoundTerms(center[:, None] + errors[0], center[:, None] + errors[1])
    return pb.BoundTerms(middle.lower + noise[0], middle.upper + noise[1])


@pytest.mark.slow
def test_heterogeneity_is_found_where_it_is_and_seldom_elsewhere():
    """Point-identified at 20 points; 300 replicates at the 10% level: error 0.017."""
    rng = np.random.default_rng(1)
    noise = 0.05 * rng.standard_normal((2, 500, 20, 1))
    flat = [
        pi.heterogeneity_test(heterogeneity_draws(rng, np.full(20, 0.5), noise)).p_value
        for _ in range(300)
    ]
    assert np.mean(np.array(flat) <= 0.1) < 0.1 + 3 * 0.017
    steep = pi.heterogeneity_test(
        heterogeneity_draws(rng, np.linspace(0.2, 0.8, 20), noise)
    )
    assert steep.p_value < 0.01 and steep.statistic > 3
    assert steep.highest >= 15 and steep.lowest <= 4
    wide = draw_atoms(300, 5, noise=2.0)
    same = pb.Atoms(*(np.repeat(part[:, :1], 5, axis=1) for part in wide))
    result = pi.heterogeneity_test(same)
    assert result.p_value == 1 and result.statistic == 0


def test_options_that_make_no_sense_are_told():
    draws = draw_atoms(100, 3)
    with pytest.raises(pb.InputError, match="needs statistic='one_sided'"):
        pi.uniform_band(draws, side="lower")
    with pytest.raises(pb.InputError, match="statistic must be one of"):
        pi.uniform_band(draws, statistic="max")
    with pytest.raises(pi.TooFewDrawsError, match="num_draws"):
        pi.uniform_band(draws, 0.001)


def test_known_terms_do_not_hold_the_band_at_zero():
    rng = np.random.default_rng(0)
    lower = np.full((500, 2, 1), 0.2)
    lower[:, 0, 0] += 0.01 * rng.standard_normal(500)
    draws = pb.BoundTerms(lower, np.full((500, 2, 1), 0.9))
    band = pi.uniform_band(draws, 0.8, statistic="one_sided", side="lower")
    assert band.kappa_lower < 0 and band.lower[1] == 0.2
