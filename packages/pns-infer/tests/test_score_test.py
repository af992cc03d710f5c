"""The score test: against its formula, its size, and its power."""

import numpy as np
import pns_infer as pi
from scipy import stats


def test_one_binary_feature_gives_nearly_pearsons_statistic():
    rng = np.random.default_rng(0)
    feature = rng.integers(0, 2, 4000)
    x = (rng.random(4000) < 0.5 + 0.03 * feature).astype(int)
    counts = np.zeros((2, 2))
    np.add.at(counts, (feature, x), 1)
    pearson = stats.chi2_contingency(counts, correction=False).statistic
    test = pi.score_test(x - x.mean(), feature[:, None].astype(float))
    # The empirical variance of the scores contains their mean, so a little less.
    np.testing.assert_allclose(test.statistic, pearson, rtol=0.01)
    assert test.degrees == 1


def test_under_the_hypothesis_p_values_are_uniform_with_clusters():
    """300 replicates: a rejection rate of 10% has a Monte Carlo error of 1.7%."""
    rng = np.random.default_rng(1)
    cluster = np.repeat(np.arange(100), 4)
    rejected, careless = [], []
    for _ in range(300):
        z = np.repeat(rng.standard_normal((100, 2)), 4, axis=0)
        x = np.repeat(rng.integers(0, 2, 100), 4)
        rejected.append(pi.score_test(x - 0.5, z, None, cluster).p_value < 0.1)
        careless.append(pi.score_test(x - 0.5, z).p_value < 0.1)
    assert abs(np.mean(rejected) - 0.1) < 3 * 0.017
    assert np.mean(careless) > 0.3


def test_frequencies_are_copies_of_the_row():
    rng = np.random.default_rng(3)
    z, x = rng.standard_normal((80, 2)), rng.integers(0, 2, 80)
    times = rng.integers(1, 6, 80)
    place = np.repeat(np.arange(80), times)
    short = pi.score_test(x - 0.5, z, times.astype(float), None, times.astype(float))
    long = pi.score_test((x - 0.5)[place], z[place])
    np.testing.assert_allclose(short, long, rtol=1e-9)


def test_constant_and_repeated_features_have_no_degrees_of_freedom():
    rng = np.random.default_rng(2)
    z = rng.standard_normal(50)
    residual = rng.choice([-0.5, 0.5], 50)
    features = np.stack([z, z, np.ones(50)], axis=1)
    assert pi.score_test(residual, features).degrees == 1
    assert pi.score_test(residual, np.ones((50, 2))) == (0.0, 0, 1.0)
