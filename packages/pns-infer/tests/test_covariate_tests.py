"""Score tests, assignment and models of the source: formulas, size, power, optimizers."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from pns_infer.averages import covariate_tests as _covariate_tests
from pns_infer.averages.covariate_tests import (
    compare_sources,
    fit_logistic,
    source_probability,
    target_ratio,
)
from scipy import optimize, special, stats


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


def test_frequencies_are_copies_of_the_assigned_row():
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


def test_logistic_regression_is_that_of_a_general_optimizer():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((300, 3))
    y = rng.random(300) < 1 / (1 + np.exp(-z[:, 0] + 0.5))
    weights = rng.uniform(0.5, 2, 300)

    def loss(beta):
        logit = beta[0] + z @ beta[1:]
        fit = weights @ (np.logaddexp(0, logit) - y * logit)
        return fit + 2.0 * beta[1:] @ beta[1:] / 2

    want = optimize.minimize(loss, np.zeros(4), method="BFGS", tol=1e-9).x
    predict = fit_logistic(z, y, weights, ridge=2.0)
    points = np.concatenate([np.zeros((1, 3)), np.eye(3)])
    got = special.logit(predict(points))
    np.testing.assert_allclose(got, want @ np.c_[np.ones(4), points].T, atol=1e-4)


def test_separated_classes_stay_finite():
    z = np.linspace(-1, 1, 40)[:, None]
    chance = fit_logistic(z, z[:, 0] > 0, ridge=0.1)(z)
    assert 0 < chance[0] < 0.1 and 0.9 < chance[-1] < 1


@pytest.mark.parametrize("source", ["both", "observational", "experimental"])
def test_ratios_turn_each_source_into_the_target(source):
    rng = np.random.default_rng(1)
    z = np.concatenate([rng.normal(0, 1, (30_000, 2)), rng.normal(0.5, 1, (20_000, 2))])
    is_experimental = np.repeat([False, True], [30_000, 20_000])
    fold = np.arange(50_000) % 5
    chance = source_probability(z, is_experimental, fold)
    ratio = target_ratio(chance, is_experimental, source)
    target = {"both": 0.2, "observational": 0.0, "experimental": 0.5}[source]
    for inside in (is_experimental, ~is_experimental):
        mean = np.average(z[inside], axis=0, weights=ratio[inside])
        np.testing.assert_allclose(mean, target, atol=0.03)  # 4 standard errors
    if source != "both":
        own = is_experimental == (source == "experimental")
        np.testing.assert_allclose(ratio[own], 1)


def test_a_prediction_does_not_see_its_own_row():
    rng = np.random.default_rng(2)
    z = rng.standard_normal((60, 2))
    is_experimental = rng.random(60) < 0.5
    fold = np.arange(60) % 3
    before = source_probability(z, is_experimental, fold)
    changed = is_experimental.copy()
    changed[fold == 1] = ~changed[fold == 1]
    after = source_probability(z, changed, fold)
    np.testing.assert_array_equal(before[fold == 1], after[fold == 1])
    assert not np.array_equal(before[fold == 0], after[fold == 0])


def test_laws_that_agree_are_not_told_apart_and_others_are():
    """200 replicates at 10%: Monte Carlo error 2.1%. The variances alone differ last."""
    rng = np.random.default_rng(3)
    is_experimental = np.repeat([False, True], [300, 200])
    fold = np.arange(500) % 5
    found = [
        compare_sources(rng.standard_normal((500, 3)), is_experimental, fold)
        for _ in range(200)
    ]
    assert abs(np.mean([each.laws.p_value < 0.1 for each in found]) - 0.1) < 3 * 0.021
    assert all((each.chance is None) == (each.laws.p_value >= 0.05) for each in found)
    z = rng.standard_normal((500, 3)) * np.where(is_experimental, 1.4, 1)[:, None]
    assert compare_sources(z, is_experimental, fold).laws.p_value < 1e-3


def test_an_extreme_row_does_not_get_all_the_weight():
    """Small values are the experiment's; without a limit this ratio exceeds a million."""
    rng = np.random.default_rng(4)
    z = np.concatenate([rng.normal(0, 1, (5000, 1)), rng.normal(-0.5, 1, (5000, 1))])
    z[0] = -20.0
    is_experimental = np.repeat([False, True], 5000)
    chance = source_probability(z, is_experimental, np.arange(10_000) % 5)
    assert target_ratio(chance, is_experimental, "both")[0] < 10


def test_a_fold_with_all_rows_of_a_source_is_told():
    is_experimental = np.repeat([False, True], 5)
    with pytest.raises(pb.InputError, match="rows of both sources outside"):
        source_probability(np.ones((10, 1)), is_experimental, is_experimental * 1)
    with pytest.raises(pb.InputError, match="source must be one of"):
        target_ratio(np.full(10, 0.5), is_experimental, "trial")


def test_blocks_of_rows_give_what_all_rows_at_once_do(monkeypatch):
    rng = np.random.default_rng(5)
    z = np.concatenate([rng.standard_normal((900, 2)), rng.random((900, 1)) < 0.3], 1)
    is_experimental = rng.random(900) < special.expit(z[:, 0])
    options = (np.arange(900) % 3, rng.uniform(0.5, 2, 900), np.arange(900) // 2)
    whole = compare_sources(z, is_experimental, *options)
    monkeypatch.setattr(_covariate_tests, "_BLOCK", 70)
    parts = compare_sources(z, is_experimental, *options)
    np.testing.assert_allclose(parts.laws, whole.laws, rtol=1e-9)
    np.testing.assert_allclose(parts.chance, whole.chance, rtol=1e-6)


def test_the_density_ratio_is_that_of_the_laws():
    """With three times as many experimental rows and equal laws the ratio is 1."""
    is_experimental = np.arange(8) >= 2
    for chance, ratio in ((0.75, 1.0), (0.9, 3.0)):
        found = pi.SourceComparison(None, np.full(8, chance)).log_density_ratio(
            is_experimental, np.ones(8)
        )
        np.testing.assert_allclose(np.exp(found), ratio)
