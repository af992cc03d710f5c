"""Counting: against the estimator of cells, and a textbook difference of means."""

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from held_out_examples import make_world, rough_units
from pns_infer.averages.frequencies import normal_tails
from pns_infer.averages.linear_means import linear_means


def counts_of(units):
    counts = np.zeros((2, 2, 2))
    np.add.at(counts, (units.is_experimental.astype(int), units.x, units.y), 1)
    return counts[0][None], counts[1][None]


@pytest.mark.parametrize("estimand", [pb.PNS, pb.HARM, pb.PN], ids=lambda e: e.name)
def test_the_interval_is_the_corrected_one_of_one_stratum(estimand):
    """The second route has 20,000 draws of its own; their quantiles differ by 1%."""
    rng = np.random.default_rng(0)
    _, units = rough_units(rng, make_world(), 3000, 2000)
    share = units.x[units.is_experimental].mean()
    units = units._replace(assignment=np.full(5000, share))
    tables = counts_of(units)
    atoms = pb.atoms_from_counts(*tables)
    terms, covariance = pi.term_covariance(
        atoms, pi.frequency_covariance(*tables), estimand
    )
    want = pi.intervals_from_estimates(
        jax.random.key(0), terms, covariance, 0.1, sample_size=5000, num_draws=20_000
    )
    got = pi.frequency_interval(units, 0.1, estimand=estimand)
    for name in ("lower", "upper", "bound_lower", "bound_upper"):
        one, two = getattr(got, name), getattr(want, name)[0]
        np.testing.assert_allclose(one, two, atol=0.002, err_msg=name)


def test_the_trial_alone_knows_two_terms_on_each_side():
    rng = np.random.default_rng(1)
    _, units = rough_units(rng, make_world(), 30, 200_000)
    mu = [units.y[30:][units.x[30:] == arm].mean() for arm in (0, 1)]
    alone = pi.frequency_interval(units, trial_alone=True)
    want = pb.experimental_only_bounds(np.array(mu))
    np.testing.assert_allclose((alone.bound_lower, alone.bound_upper), want, atol=0.003)
    assert alone.lower <= want.lower and alone.upper > want.upper
    nothing = pi.frequency_interval(units, estimand=pb.PN, trial_alone=True)
    assert (nothing.lower, nothing.upper) == (0, 1)


def test_the_difference_of_means_is_the_textbook_one():
    rng = np.random.default_rng(2)
    _, units = rough_units(rng, make_world(), 300, 4000, assignment=0.3)
    arms = [units.y[300:][units.x[300:] == arm] for arm in (0, 1)]
    found = pi.trial_difference(units, 0.1)
    np.testing.assert_allclose(found.estimate, arms[1].mean() - arms[0].mean())
    error = np.sqrt(sum(arm.var() / len(arm) for arm in arms))
    np.testing.assert_allclose(found.standard_error, error, rtol=0.005)
    width = 2 * 1.6448536 * found.standard_error
    np.testing.assert_allclose(found.upper - found.lower, width, rtol=1e-6)


def test_a_stratified_trial_is_weighted_by_inverse_probability():
    """Arms depend on the cell, so the plain difference is confounded."""
    world = make_world()
    rng = np.random.default_rng(3)
    chance = (0.1, 0.3, 0.5, 0.7, 0.9)
    _, units = rough_units(rng, world, 10, 400_000, assignment=chance)
    mu = world.atoms().mu.mean(axis=0)
    found = pi.trial_difference(units)
    assert abs(found.estimate - (mu[1] - mu[0])) < 4 * found.standard_error
    y, x = units.y[10:], units.x[10:]
    plain = y[x == 1].mean() - y[x == 0].mean()
    assert abs(plain - (mu[1] - mu[0])) > 8 * found.standard_error


def test_an_outcome_that_never_happened_still_has_an_error():
    rng = np.random.default_rng(4)
    _, units = rough_units(rng, make_world(), 300, 200)
    never = units._replace(y=np.zeros(500, int))
    upper = pi.frequency_interval(never).upper
    assert 0.01 < upper < 0.1  # the rule of three: 3 / 100 in the treated arm


def test_normal_errors_have_the_law_of_a_multiplier_bootstrap():
    """2,000 bootstraps: the correlation of two means is known within 0.02."""
    rng = np.random.default_rng(5)
    _, units = rough_units(rng, make_world(), 100, 100)
    means = linear_means(units, rng.standard_normal((200, 2, 6)), np.zeros((200, 2)))
    tails = normal_tails(means)
    errors = rng.standard_normal((2000, 200)) @ means.influence
    np.testing.assert_allclose(
        np.corrcoef(tails)[0, 1], np.corrcoef(errors.T)[0, 1], atol=0.08
    )
    np.testing.assert_allclose(tails.std(axis=1), 1, atol=0.02)
