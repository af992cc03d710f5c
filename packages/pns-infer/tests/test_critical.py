"""Critical values by hand; coverage of the Gaussian case by simulation."""

import itertools
import pickle

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from pns_infer.core import critical as _critical

DRAWS = 1000


def side(draws, center=None):
    return _critical.make_side(np.asarray(draws, float), center)


def select(terms, limit=np.inf):
    return _critical.select_terms(terms, _critical.sorted_maxima(terms), 1000, limit)


def test_draws_are_standardized_by_their_own_mean_and_deviation():
    terms = side([[1.0, 2.0, 6.0], [4.0, 4.0, 4.0]])
    np.testing.assert_allclose(terms.center, [3, 4])
    np.testing.assert_allclose(terms.standard_error, [np.sqrt(7), 0])
    # A tail is positive where the draw lies below the mean.
    np.testing.assert_allclose(terms.tails[0] * np.sqrt(7), [2, 1, -3])
    np.testing.assert_array_equal(terms.tails[1], 0)


@pytest.mark.parametrize(
    ("num_draws", "probability", "place"),
    [(99, 0.95, 94), (199, 0.975, 194), (3, 0.5, 1), (4, 0.5, 2), (39, 0.975, 38)],
)
def test_the_quantile_is_an_order_statistic(num_draws, probability, place):
    assert _critical.order_statistic(num_draws, probability) == place


def test_a_further_draw_lies_below_the_quantile_as_often_as_asked():
    """Exact for any number of draws: (place + 1) / (num_draws + 1) >= probability."""
    for num_draws, probability in itertools.product((20, 99, 1000), (0.5, 0.8, 0.95)):
        place = _critical.order_statistic(num_draws, probability)
        assert (place + 1) / (num_draws + 1) >= probability - 1e-12
        assert place / (num_draws + 1) < probability


def test_too_few_draws_are_an_error_that_says_how_many():
    with pytest.raises(
        pi.TooFewDrawsError, match="num_draws must be at least 39 .* got 20"
    ) as raised:
        _critical.order_statistic(20, 0.975)
    assert (raised.value.num_draws, raised.value.needed) == (20, 39)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    draws = np.random.default_rng(0).normal(size=(38, 5, 3))
    terms = pb.BoundTerms(draws, draws)
    with pytest.raises(pb.InputError, match="at least 39"):
        pi.intervals_from_draws(terms, selection="none")
    with pytest.raises(pb.InputError, match=r"at least \d+ for the 0\.99"):
        pi.intervals_from_draws(
            pb.BoundTerms(*[np.tile(part, (2, 1, 1)) for part in terms]),
            sample_size=100_000,
        )


def test_kappa_by_hand():
    """Two terms, three draws: the maxima of tails are found on paper."""
    terms = side([[0.0, 1.0, 2.0], [5.0, 3.0, 4.0]])
    maxima = _critical.sorted_maxima(terms)
    # Tails: (1, 0, -1) and (-1, 1, 0); maxima by draw: 1, 1, 0.
    np.testing.assert_allclose(maxima.values, [0, 1, 1])
    assert _critical.critical_value(maxima, 0.5) == 1
    assert _critical.critical_value(maxima, 0.25) == 0
    alone = _critical.sorted_maxima(terms, np.array([True, False]))
    np.testing.assert_allclose(alone.values, [-1, 0, 1])
    corrected = _critical.corrected_minimum(terms, maxima, 0.5)
    np.testing.assert_allclose(corrected.value, 1 + 1 * 1)
    assert corrected.term == 0


@pytest.mark.parametrize("probability", [0.01, 0.5, 0.9, 0.975])
def test_a_quantile_needs_no_sorting(probability):
    rng = np.random.default_rng(0)
    terms = side(rng.normal(size=(7, 3, DRAWS)))
    active = rng.random((7, 3)) < 0.5
    found, wanted = (
        _critical.critical_value(maxima(terms, active), probability)
        for maxima in (_critical.find_maxima, _critical.sorted_maxima)
    )
    np.testing.assert_array_equal(found, wanted)
    assert np.any(found != 0)


def test_selection_by_hand():
    """Keep v if center <= min(center + k s) + 2 k s."""
    rng = np.random.default_rng(0)
    draws = np.array([[0.0], [0.5], [30.0], [0.0]]) + np.array(
        [[1.0], [0.1], [1.0], [0.0]]
    ) * rng.standard_normal((4, DRAWS))
    draws[3] = 2.0  # known
    terms = side(draws)
    gamma = 1 - 0.1 / np.log(1000)
    kappa = np.sort(np.max(terms.tails[:3], axis=0))[
        int(np.ceil((DRAWS + 1) * gamma)) - 1
    ]
    least = np.min(terms.center + kappa * terms.standard_error)
    expected = terms.center <= least + 2 * kappa * terms.standard_error
    np.testing.assert_array_equal(select(terms), expected)
    assert expected.tolist() == [True, True, False, False]


# Term values, standard errors and correlation; the bound is the least of them.
CONFIGURATIONS = {
    "well separated": ([0.0, 0.6, 0.9], [0.05, 0.05, 0.05], 0.3),
    "ties": ([0.4, 0.4, 0.4], [0.05, 0.05, 0.05], 0.0),
    "ties, unequal noise": ([0.4, 0.4, 0.4], [0.02, 0.05, 0.1], -0.3),
    "near ties": ([0.4, 0.42, 0.45], [0.03, 0.04, 0.03], 0.5),
    "perfect correlation": ([0.4, 0.42, 0.45], [0.03, 0.03, 0.03], 1.0),
    "a known term": ([0.4, 0.42, 0.45], [0.03, 0.0, 0.04], 0.2),
}


def covariance_of(errors, correlation):
    matrix = np.full((3, 3), correlation) + (1 - correlation) * np.eye(3)
    return matrix * np.outer(errors, errors)


def simulate_estimates(rng, values, covariance, num):
    values_, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values_, 0))
    noise = rng.standard_normal((num, 3)) @ root.T
    noise[:, np.diag(covariance) == 0] = 0
    return np.asarray(values) + noise


WIDE = pb.Estimand(
    name="any",
    sentence="A number without limits, whose terms are given.",
    lower_labels=(),
    upper_labels=(),
    floor=-np.inf,
    ceiling=np.inf,
)


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["none", "adaptive"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_gaussian_coverage_is_nominal(name, selection):
    """4,000 estimates each: Monte Carlo error 0.0035 at 95%, 0.008 at 50%.

    The end misses if it falls on the wrong side of the least term. Where terms tie, or
    only one matters, the procedure is exact; elsewhere it may cover more.
    """
    values, errors, correlation = CONFIGURATIONS[name]
    covariance = covariance_of(np.array(errors), correlation)
    rng = np.random.default_rng(1)
    estimates = simulate_estimates(rng, values, covariance, 4000)
    normals = simulate_estimates(rng, np.zeros(3), covariance, DRAWS)
    truth = min(values)
    coverage = {}
    for which in ("upper", "lower"):
        sign = 1 if which == "upper" else -1
        terms = [np.zeros((len(estimates), 0)), sign * estimates]
        drawn = [np.zeros((DRAWS, len(estimates), 0)), None]
        drawn[1] = sign * (estimates[None] + normals[:, None])
        if which == "lower":
            terms.reverse(), drawn.reverse()
        intervals = pi.intervals_from_draws(
            pb.BoundTerms(*drawn),
            alpha=0.1,  # half of it for each end
            sample_size=5000,
            estimand=WIDE,
            selection=selection,
            center=pb.BoundTerms(*terms),
        )
        end, estimate = (
            (intervals.upper, intervals.bound_upper)
            if which == "upper"
            else (-intervals.lower, -intervals.bound_lower)
        )
        coverage[which] = np.mean(end >= truth), np.mean(estimate >= truth)
    # The same numbers negated give the same answer.
    assert coverage["upper"] == coverage["lower"]
    covered, above = coverage["upper"]
    # 1,000 draws give kappa itself an error that moves coverage by 0.007 and 0.016.
    assert covered > 0.95 - 3 * np.hypot(0.0035, 0.007)
    assert above > 0.5 - 3 * np.hypot(0.008, 0.016)
    exact = name in ("ties", "ties, unequal noise", "perfect correlation") or (
        name == "well separated" and selection == "adaptive"
    )
    if exact:
        assert covered < 0.95 + 3 * np.hypot(0.0035, 0.007)
        assert above < 0.5 + 3 * np.hypot(0.008, 0.016)
    if name == "well separated" and selection == "none":
        assert above > 0.65  # one term matters, and it pays for all three


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.02, 2.0])
@pytest.mark.parametrize("target", ["set", "parameter"])
def test_two_sided_coverage_of_set_and_parameter(gap, target):
    """[l, u] of width `gap`, errors 0.05 each: 4,000 estimates, error 0.0035."""
    rng = np.random.default_rng(2)
    low, high = 0.4, 0.4 + gap
    estimates = np.array([low, high]) + 0.05 * rng.standard_normal((4000, 2))
    noise = 0.05 * rng.standard_normal((DRAWS, 1, 2))
    drawn = estimates[None] + noise
    intervals = pi.intervals_from_draws(
        pb.BoundTerms(drawn[..., :1], drawn[..., 1:]),
        sample_size=5000,
        estimand=WIDE,
        target=target,
        center=pb.BoundTerms(estimates[:, :1], estimates[:, 1:]),
    )
    covers_set = np.mean((intervals.lower <= low) & (intervals.upper >= high))
    worst_point = min(
        np.mean((intervals.lower <= value) & (intervals.upper >= value))
        for value in (low, high)
    )
    tolerance = 3 * np.hypot(0.0035, 0.007)
    if target == "set":
        assert abs(covers_set - 0.95) < tolerance  # independent errors: 0.975^2
    else:
        assert worst_point > 0.95 - tolerance
        if gap == 2.0:
            assert abs(worst_point - 0.95) < tolerance  # exact where the set is wide
            assert covers_set < 0.93


def test_the_parameter_interval_lies_within_that_of_the_set():
    rng = np.random.default_rng(3)
    lower = 0.3 + 0.1 * rng.standard_normal((500, 40, 2))
    upper = 0.5 + 0.1 * rng.standard_normal((500, 40, 2))
    intervals = {
        target: pi.intervals_from_draws(
            pb.BoundTerms(lower, upper), sample_size=2000, target=target
        )
        for target in ("set", "parameter")
    }
    assert np.all(intervals["set"].lower <= intervals["parameter"].lower)
    assert np.all(intervals["set"].upper >= intervals["parameter"].upper)
    assert np.any(intervals["set"].upper > intervals["parameter"].upper)


def even_side(center, error=(1.0, 1.0)):
    """Two terms whose tails are the same 99 evenly spaced numbers."""
    tails = np.tile(np.linspace(-1, 1, 99), (1, 2, 1)) * (np.array(error) > 0)[:, None]
    return _critical.Side(np.array([center]), np.array([error]), tails)


def test_selection_allows_twice_the_critical_value_and_knows_the_limit():
    kept = select(even_side([0.0, 2.5]))
    assert kept.all()  # kappa is nearly 1: 2.5 lies within 1 + 2
    assert not select(even_side([0.0, 3.2]))[0, 1]
    assert not select(even_side([0.0, 2.5]), limit=-3.0).any()


def test_quantiles_by_array_are_those_by_number():
    maxima = _critical.Maxima(np.arange(9.0)[None], np.array([False]))
    for probability in (0.25, 0.5, 0.75, 0.9):
        by_array = _critical.critical_value(maxima, np.array([probability]))
        assert by_array[0] == _critical.critical_value(maxima, probability)[0]


def test_a_known_term_does_not_hold_the_greatest_tail_at_zero():
    terms = even_side([0.0, 0.0], error=(1.0, 0.0))
    assert _critical.critical_value(_critical.sorted_maxima(terms), 0.25)[0] < 0


def test_the_noisier_end_decides_how_much_the_parameter_may_save():
    """A sharp lower end must not make the set look wide beside a noisy upper one.

    Phi(tau D) with 1 / tau = log n * max of the quartile ranges: 0.60 here, so kappa is
    the 0.970 quantile of a normal, 1.88; with the lesser range it would be 1.64.
    """
    rng = np.random.default_rng(7)
    lower = 0.3 + 0.001 * rng.standard_normal((20_000, 1, 1))
    upper = 0.6 + 0.1 * rng.standard_normal((20_000, 1, 1))
    intervals = pi.intervals_from_draws(
        pb.BoundTerms(lower, upper), sample_size=5000, estimand=WIDE, target="parameter"
    )
    np.testing.assert_allclose(intervals.kappa_upper, 1.88, atol=0.06)
