"""Recommendations by hand, and values against averages and enumeration."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from held_out_examples import NUM_CELLS, make_world, rough_units, saturated


def test_a_recommendation_follows_the_interval_and_the_criterion():
    lower = np.array([0.1, -0.2, -0.1, -0.3])
    upper = np.array([0.3, -0.1, 0.4, 0.2])
    careful = pi.recommend(lower, upper, "maximin")
    assert careful.label.tolist() == ["treat", "do not", "undecided", "undecided"]
    assert careful.treat.tolist() == [True, False, False, False]
    regret = pi.recommend(lower, upper, "minimax_regret")
    assert regret.treat.tolist() == [True, False, True, False]
    # The greatest regret of either choice, written out.
    worst = np.stack([np.maximum(upper, 0), np.maximum(-lower, 0)])
    np.testing.assert_array_equal(regret.treat, worst[1] < worst[0])
    scarce = pi.recommend(lower, upper, "minimax_regret", budget=0.25)
    assert scarce.treat.tolist() == [True, False, False, False]
    assert not pi.recommend(lower, upper, budget=0.0).treat.any()


def test_a_cost_is_paid_by_every_type():
    one, two = pi.net_benefit((10, 1, 2, -3), 1.5), pb.benefit(8.5, -0.5, 0.5, -4.5)
    atoms = make_world().atoms()
    np.testing.assert_allclose(one.bounds(atoms), two.bounds(atoms))


def test_treating_all_is_worth_the_average_benefit():
    _, units = rough_units(np.random.default_rng(0), make_world(), 600, 400)
    gain = pi.net_benefit((3, -1, -1, -2), 0.2)
    average = pi.debiased_average(units, estimand=gain, with_frequencies=False)
    value = pi.policy_value(units, gain, np.ones(1000))
    np.testing.assert_allclose(value[:2], average[:2], atol=1e-4)
    np.testing.assert_allclose(value.bound_lower, average.mean_lower)
    assert value.share_treated == 1
    nobody = pi.policy_value(units, gain, np.zeros(1000))
    assert nobody == (0, 0, 0, 0, 0)


def test_the_value_of_a_rule_is_the_sum_over_the_cells_it_treats():
    """Saturated cells: the value is that of a loop over strata."""
    rng = np.random.default_rng(1)
    cell, *rows = make_world().sample(rng, 900, 800)
    atoms, cells = saturated(cell, *rows)
    share = rows[1][rows[0]].mean()
    units = pi.make_held_out_units(atoms, *rows, assignment=share)
    gain = pi.net_benefit((6, 1, -1, -3), 0.2)
    bounds = gain.bounds(cells, incompatible="allow")
    rule = pi.held_out_rule(units, gain, "minimax_regret")
    low = high = treated = 0.0
    for each in range(NUM_CELLS):
        if bounds.lower[each] + bounds.upper[each] > 0:
            weight = np.mean(cell == each)
            low += weight * bounds.lower[each]
            high += weight * bounds.upper[each]
            treated += weight
    value = pi.policy_value(units, gain, rule)
    np.testing.assert_allclose(value[2:], (low, high, treated), atol=1e-10)
    assert 0 < treated < 1 and value.lower < low and value.upper > high


def test_the_curve_ends_at_nobody_and_at_everybody():
    _, units = rough_units(np.random.default_rng(2), make_world(), 600, 400)
    gain = pi.net_benefit((1, 0, 0, -1), 0.1)
    fold = np.arange(1000) % 5
    curve = pi.value_curve(units, gain, shares=(0, 0.3, 1), fold=fold)
    everybody = pi.policy_value(units, gain, np.ones(1000))
    assert curve.bound_lower[0] == curve.upper[0] == 0
    np.testing.assert_allclose(curve.bound_upper[-1], everybody.bound_upper)
    assert curve.upper[-1] > everybody.upper  # one critical value for all shares
    rule = pi.held_out_rule(units, gain, budget=0.3, fold=fold)
    part = pi.policy_value(units, gain, rule)
    np.testing.assert_allclose(curve.bound_lower[1], part.bound_lower)
    np.testing.assert_allclose(part.share_treated, 0.3)


def test_values_of_rules_are_covered():
    """200 replicates at 90%: Monte Carlo error 2.1%."""
    rng = np.random.default_rng(3)
    world = make_world()
    gain = pi.net_benefit((2, -1, 0, -2))
    bounds = gain.bounds(world.atoms())
    treated = np.array([1, 0, 1, 0.5, 0])
    low, high = (np.mean(treated * end) for end in bounds)
    covered = []
    for _ in range(200):
        cell, units = rough_units(rng, world, 600, 400, noise=0.02)
        value = pi.policy_value(units, gain, treated[cell], 0.1)
        covered.append(value.lower <= low and value.upper >= high)
    assert np.mean(covered) > 0.9 - 3 * 0.021


def test_bad_decisions_end_in_one_sentence():
    _, units = rough_units(np.random.default_rng(4), make_world(), 50, 50)
    gain = pi.net_benefit((1, 0, 0, -1))
    for gains, cost in (((1, 2, 3), 0), ((1, 2, 3, "a"), 0), ((1, 2, 3, 4), np.nan)):
        with pytest.raises(pb.InputError, match="gains must be four numbers"):
            pi.net_benefit(gains, cost)
    with pytest.raises(pb.InputError, match=r"budget must be a share of units"):
        pi.recommend(np.zeros(2), np.ones(2), budget=1.5)
    with pytest.raises(pb.InputError, match="criterion must be one of"):
        pi.recommend(np.zeros(2), np.ones(2), "hope")
    with pytest.raises(pb.InputError, match="rule must be shares in"):
        pi.policy_value(units, gain, np.full(100, 2.0))
    with pytest.raises(pb.InputError, match="shares must be numbers"):
        pi.value_curve(units, gain, shares=(0.5, 2))
