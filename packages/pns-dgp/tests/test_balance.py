"""The balance check: what it computes, and a selection that it must notice."""

import numpy as np
import pandas as pd
from pns_dgp._balance import compare_kept_with_dropped


def test_a_selection_that_depends_on_a_covariate_is_noticed():
    rng = np.random.default_rng(0)
    c = rng.integers(0, 4, 60_000)
    z = rng.normal(size=len(c)) + 0.5 * c
    covariates = pd.DataFrame({"c": c, "z": z, "kind": np.where(z > 0, "high", "low")})
    propensity, alone = 0.1 + 0.2 * c, np.arange(len(c))
    fair = rng.random(len(c)) < 0.4
    unfair = rng.random(len(c)) < 0.3 + 0.05 * c
    sound = compare_kept_with_dropped(covariates, fair, propensity, alone)["z"]
    assert sound.abs().max() < 4
    broken = compare_kept_with_dropped(covariates, unfair, propensity, alone)["z"]
    assert broken["c"] > 10 and broken["kind=high"] > 5


def test_a_comparison_by_hand():
    covariates = pd.DataFrame({"v": [1.0, 2, 3, 4, 8]})
    kept = np.array([True, True, False, False, False])
    balance = compare_kept_with_dropped(covariates, kept, np.full(5, 0.5), np.arange(5))
    assert list(balance.index) == ["v", "propensity", "v x propensity"]
    before, after, z = balance.loc["v"]
    assert (before, after) == (3.6, 1.5)
    # Kept: mean 1.5, residuals 0.5; dropped: mean 5, residuals -2, -1, 3.
    error = np.sqrt(2 * (0.5 / 2) ** 2 + (4 + 1 + 9) / 9)
    np.testing.assert_allclose(z, (1.5 - 5) / error)


def test_rare_levels_are_compared_together():
    levels = np.array(["a"] * 300 + ["b"] * 200 + ["c"] * 10)
    kept = np.arange(510) % 2 == 0
    balance = compare_kept_with_dropped(
        pd.DataFrame({"k": levels}), kept, np.full(510, 0.5), np.arange(510)
    )
    assert list(balance.index[:3]) == ["k=a", "k=b", "k=other"]
    np.testing.assert_allclose(balance.loc["k=other", "before"], 10 / 510)
