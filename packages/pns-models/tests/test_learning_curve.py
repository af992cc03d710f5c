"""Learning curves: power laws are extrapolated exactly, and noise is met with caution."""

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
def test_the_excess_of_a_power_law_is_found(power):
    curve = learning_curve(make_losses(0.04, power), np.array([50.0, 50.0]))
    np.testing.assert_allclose(curve.rate, 4**power)
    np.testing.assert_allclose(curve.excess, [0.03, 0.01])
    np.testing.assert_allclose(curve.error, 0, atol=1e-9)


@pytest.mark.parametrize(("power", "rate"), [(0.1, 1.4), (1.5, 4.0)])
def test_the_rate_stays_between_its_limits(power, rate):
    curve = learning_curve(make_losses(0.04, power), np.array([50.0, 50.0]))
    assert curve.rate == rate
    np.testing.assert_allclose(curve.excess, curve.drop / (rate - 1))


def test_the_standard_error_is_that_of_the_bootstrap_and_is_added_twice():
    """Of 2,000 resamples, a standard deviation has a relative error of 1.6%."""
    losses = make_losses(0.04, 0.5, num_rows=400, noise=0.3)
    curve = learning_curve(losses, np.array([400.0, 400.0]))
    change, rng = losses[1] - losses[0], np.random.default_rng(1)
    drops = [change[rng.integers(0, 400, 400)].mean(axis=0) for _ in range(2000)]
    np.testing.assert_allclose(curve.error, np.std(drops, axis=0), rtol=0.07)
    upper = np.maximum(curve.drop, 0) + 2 * curve.error
    np.testing.assert_allclose(curve.excess, upper / (curve.rate - 1))


def test_no_learning_at_all_leaves_the_error_of_the_drop():
    losses = make_losses(0.0, 0.5, noise=0.1)
    curve = learning_curve([losses[0], losses[1], losses[1]], np.array([50.0, 50.0]))
    assert curve.rate == _learning_curve._RATES[0]
    assert np.all(curve.excess >= 2 * curve.error / 0.4 * (1 - 1e-9))
    flat = learning_curve([losses[0]] * 3, np.array([50.0, 50.0]))
    assert flat.excess.tolist() == [0, 0]
