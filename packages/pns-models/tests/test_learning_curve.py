"""Learning curves: power laws are extrapolated, and noise is met with caution."""

import numpy as np
import pytest
from pns_models import _learning_curve
from pns_models._learning_curve import learning_curve


def make_losses(excess, power, limit=0.5, num_rows=50, noise=0.0):
    """Makes rows with one unit of each source, whose losses follow a power law."""
    rng = np.random.default_rng(0)
    levels = [limit + excess * share**-power for share in (1.0, 0.25, 1 / 16)]
    shift = [0.0, *noise * rng.standard_normal((2, num_rows, 2))]
    return [
        np.full((num_rows, 2), level) * [0.75, 0.25] + own
        for level, own in zip(levels, shift, strict=True)
    ]


@pytest.mark.parametrize("power", [0.3, 0.5, 1.0])
def test_the_rate_of_a_power_law_is_found(power):
    curve = learning_curve(make_losses(4.0, power), np.array([50.0, 50.0]))
    np.testing.assert_allclose(curve.rate, 4**power)
    drop = 4.0 * (4**power - 1)
    np.testing.assert_allclose(curve.drop, [0.75 * drop, 0.25 * drop])
    np.testing.assert_allclose(curve.excess, curve.drop / 4 ** (0.75 * power))
    np.testing.assert_allclose(curve.error, 0, atol=1e-9)


@pytest.mark.parametrize("power", [0.6, 0.8, 1.0])
def test_the_excess_of_a_power_law_is_met_roughly(power):
    """Exactly for a rate of 3.6, and by a third less for 2.3; see the docstring."""
    excess = learning_curve(make_losses(4.0, power), np.array([50.0, 50.0])).excess
    assert np.all(np.abs(np.log(excess / [3, 1])) < np.log(1.5))


@pytest.mark.parametrize(("power", "rate"), [(-0.6, 0.5), (1.5, 4.0)])
def test_the_rate_stays_between_its_limits(power, rate):
    sign = np.sign(power)  # a loss that falls faster and faster
    curve = learning_curve(make_losses(4.0 * sign, power), np.array([50.0, 50.0]))
    assert curve.rate == rate
    np.testing.assert_allclose(curve.excess, curve.drop / rate**0.75)


def test_the_standard_error_is_that_of_the_bootstrap_and_is_added_twice():
    """Of 2,000 resamples, a standard deviation has a relative error of 1.6%."""
    losses = make_losses(4.0, 0.5, num_rows=400, noise=0.3)
    curve = learning_curve(losses, np.array([400.0, 400.0]))
    change, rng = losses[1] - losses[0], np.random.default_rng(1)
    drops = [change[rng.integers(0, 400, 400)].mean(axis=0) for _ in range(2000)]
    np.testing.assert_allclose(curve.error, np.std(drops, axis=0), rtol=0.07)
    upper = np.maximum(curve.drop, 0) + 2 * curve.error
    np.testing.assert_allclose(curve.excess, upper / curve.rate**0.75)


def test_no_learning_at_all_leaves_the_error_of_the_drop():
    losses = make_losses(0.0, 0.5, noise=0.1)
    curve = learning_curve([losses[0], losses[1], losses[1]], np.array([50.0, 50.0]))
    assert curve.rate == _learning_curve._RATES[0]
    assert np.all(curve.excess >= 2 * curve.error / 0.5**0.75 * (1 - 1e-9))


def test_the_excess_is_at_least_that_of_frequencies():
    """The mean excess of the frequencies of one law over many samples, by simulation.

    It is (4 - 1) / 2n to first order. A single excess has a standard deviation of about
    sqrt(6) / 2n, so that of the mean of 4,000 is 1.3% of the mean.
    """
    flat = learning_curve([np.ones((50, 2))] * 3, np.array([2000.0, 2000.0]))
    rng, law = np.random.default_rng(0), np.array([0.3, 0.2, 0.4, 0.1])
    found = rng.multinomial(2000, law, 4000) / 2000
    excess = (law * (np.log(law) - np.log(found))).sum(axis=1)
    np.testing.assert_allclose(flat.excess[0], excess.mean(), rtol=0.06)
    cases = rng.binomial(1000, [0.3, 0.6], (4000, 2)) / 1000
    arms = [
        p * np.log(p / cases[:, i]) + (1 - p) * np.log((1 - p) / (1 - cases[:, i]))
        for i, p in enumerate((0.3, 0.6))
    ]
    np.testing.assert_allclose(flat.excess[1], np.mean(arms), rtol=0.06)
