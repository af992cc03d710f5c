"""Models of the source: an independent optimizer, ratios, and the test's size."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from pns_infer.averages import score_test as _score_test
from pns_infer.averages.source_model import (
    compare_sources,
    fit_logistic,
    source_probability,
    target_ratio,
)
from scipy import optimize, special


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
    with pytest.raises(pi.TooFewUnitsError, match="rows of both sources outside"):
        source_probability(np.ones((10, 1)), is_experimental, is_experimental * 1)
    with pytest.raises(pb.InputError, match="source must be one of"):
        target_ratio(np.full(10, 0.5), is_experimental, "trial")


def test_blocks_of_rows_give_what_all_rows_at_once_do(monkeypatch):
    rng = np.random.default_rng(5)
    z = np.concatenate([rng.standard_normal((900, 2)), rng.random((900, 1)) < 0.3], 1)
    is_experimental = rng.random(900) < special.expit(z[:, 0])
    options = (np.arange(900) % 3, rng.uniform(0.5, 2, 900), np.arange(900) // 2)
    whole = compare_sources(z, is_experimental, *options)
    monkeypatch.setattr(_score_test, "_BLOCK", 70)
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
