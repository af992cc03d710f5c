"""Subgroups and sorted groups: an explicit bootstrap, coverage of all at once, ties."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from held_out_examples import NUM_CELLS, World, make_world, rough_units
from pns_infer.averages.debiased import bound_means, effect_means
from pns_infer.averages.groups import rank_limits, share_between


def test_the_critical_value_is_that_of_multipliers_over_people():
    """2,000 bootstraps: the 90% quantile is known within 0.05."""
    rng = np.random.default_rng(0)
    cell, units = rough_units(rng, make_world(), 600, 400)
    members = np.eye(NUM_CELLS)[:, cell]
    found = pi.group_averages(units, members, 0.1)
    greatest = np.full(2000, -np.inf)
    multipliers = rng.standard_normal((2000, 1000))
    for member in members:
        means = bound_means(units, pb.PNS, member)
        for k, sign in ((0, 1), (1, -1)):
            error = np.sqrt(np.sum(means.influence[:, k] ** 2))
            tail = sign * multipliers @ means.influence[:, k] / max(error, 1e-12)
            greatest = np.maximum(greatest, tail)
    np.testing.assert_allclose(found.kappa, np.quantile(greatest, 0.9), atol=0.15)


def test_a_group_is_averaged_as_if_alone():
    rng = np.random.default_rng(1)
    cell, units = rough_units(rng, make_world(), 600, 400)
    found = pi.group_averages(units, np.stack([cell == 2, cell != 2]))
    alone = pi.debiased_average(units, member=cell == 2, with_frequencies=False)
    assert found.bound_lower[0] == pytest.approx(max(alone.mean_lower, 0))
    assert found.standard_error_upper[0] == pytest.approx(alone.standard_error_upper)
    # Skewness adds a little to ends.
    end = np.minimum(found.bound_upper + found.kappa * found.standard_error_upper, 1)
    assert np.all(found.upper >= end) and np.all(found.upper < end + 0.03)


def test_all_groups_are_covered_at_once():
    """60 replicates at 90%: Monte Carlo error 4%."""
    rng = np.random.default_rng(2)
    world = make_world()
    bounds = pb.PNS.bounds(world.atoms())
    covered = []
    for _ in range(60):
        cell, units = rough_units(rng, world, 800, 600, noise=0.02)
        found = pi.group_averages(units, np.eye(NUM_CELLS)[:, cell], 0.1)
        covered.append(
            np.all(found.lower <= bounds.lower) and np.all(found.upper >= bounds.upper)
        )
    assert np.mean(covered) > 0.9 - 3 * 0.04


def test_sorted_groups_find_differences_that_are_there():
    world = make_world(3)
    _, units = rough_units(np.random.default_rng(3), world, 3000, 2000)
    found = pi.sorted_groups(units, np.arange(5000) % 5)
    np.testing.assert_allclose(found.member.sum(axis=0), 1)
    assert found.p_value < 1e-3 and found.gap_lower > 0
    assert found.effect_p_value < 1e-3
    assert np.all(found.benefit.lower <= found.benefit.bound_lower)
    assert np.all(found.harm.upper <= 1)
    first, last = found.benefit.bound_upper[0], found.benefit.bound_lower[-1]
    assert found.gap_upper > last - first > found.gap_lower
    bounds = pb.PNS.bounds(world.atoms())
    np.testing.assert_allclose(
        np.mean(found.effect), np.mean(world.atoms().mu @ [-1, 1]), atol=0.1
    )
    assert found.benefit.upper[-1] >= np.max(bounds.lower)


def test_sorted_groups_find_no_difference_where_there_is_none():
    """All cells alike, sorted by noise: 25 replicates at 10%, error 6%."""
    rng = np.random.default_rng(4)
    types = np.tile([0.4, 0.3, 0.1, 0.2], (NUM_CELLS, 1))
    law = np.full((2, NUM_CELLS), 1 / NUM_CELLS)
    world = World(types, np.full((NUM_CELLS, 4), 0.5), law)
    found = []
    for _ in range(25):
        _, units = rough_units(rng, world, 400, 400)
        groups = pi.sorted_groups(units)
        found.append((groups.p_value < 0.1, groups.effect_p_value < 0.1))
    benefit, effect = np.mean(found, axis=0)
    assert benefit < 0.1 and effect < 0.1 + 3 * 0.06


def test_a_small_group_does_not_widen_the_others():
    cell, units = rough_units(np.random.default_rng(6), make_world(), 600, 400)
    tiny = (cell == 0) & (np.arange(1000) % 5 == 0)
    both = pi.group_averages(units, np.stack([tiny, cell == 2]))
    alone = pi.group_averages(units, (cell == 2)[None])
    np.testing.assert_allclose(
        both.standard_error_upper[1], alone.standard_error_upper[0]
    )


def test_fifths_are_those_of_the_target():
    """The trial has other people, but each fifth holds a fifth of them."""
    law = np.array([[0.4, 0.3, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.3, 0.4]])
    _, units = rough_units(np.random.default_rng(7), make_world(7, law), 2000, 2000)
    found = pi.sorted_groups(units, source="experimental")
    trial = found.member[:, units.is_experimental]
    np.testing.assert_allclose(trial.mean(axis=1), 0.2)
    np.testing.assert_allclose(found.member.sum(axis=0), 1)


def test_bad_groups_end_in_one_sentence():
    _, units = rough_units(np.random.default_rng(5), make_world(), 50, 50)
    with pytest.raises(pb.InputError, match="subgroup is empty"):
        pi.group_averages(units, np.zeros((1, 100)))
    with pytest.raises(pb.InputError, match="there are no subgroups"):
        pi.group_averages(units, np.zeros((0, 100)))
    with pytest.raises(pb.InputError, match="num_groups must be at least 2"):
        pi.sorted_groups(units, num_groups=1)


def test_a_share_is_the_chance_under_random_breaking_of_ties():
    """4,000 orders of 10 people: a chance is known within 0.01."""
    rng = np.random.default_rng(0)
    score = np.array([1, 1, 1, 2, 2, 3, 3, 3, 3, 0.0])
    hits = np.zeros(10)
    for _ in range(4000):
        order = np.lexsort((rng.random(10), score))
        hits[order[4:7]] += 1  # ranks from 40% to 70%
    limits = rank_limits(score, np.ones(10))
    np.testing.assert_allclose(share_between(limits, 0.4, 0.7), hits / 4000, atol=0.035)


def test_parts_have_equal_weight_and_add_up_within_each_fold():
    rng = np.random.default_rng(1)
    score, weights = rng.integers(0, 7, 200).astype(float), rng.uniform(1, 3, 200)
    fold = rng.integers(0, 3, 200)
    limits = rank_limits(score, weights, fold)
    parts = np.stack([share_between(limits, i / 5, (i + 1) / 5) for i in range(5)])
    np.testing.assert_allclose(parts.sum(axis=0), 1)
    for each in range(3):
        inside = fold == each
        mass = parts[:, inside] @ weights[inside]
        np.testing.assert_allclose(mass, weights[inside].sum() / 5)


def test_rows_of_weight_zero_are_ranked_among_the_others():
    score = np.array([1.0, 2, 3, 4, 0, 2.5, 3, 9])
    weights = np.array([1.0, 1, 1, 1, 0, 0, 0, 0])
    limits = rank_limits(score, weights)
    parts = np.stack([share_between(limits, i / 4, (i + 1) / 4) for i in range(4)])
    np.testing.assert_array_equal(parts.argmax(axis=0), [0, 1, 2, 3, 0, 2, 2, 3])
    np.testing.assert_allclose(parts.sum(axis=0), 1)


def test_with_very_few_units_no_number_leaves_what_is_possible():
    """Forty tables; a few heavy ratios make estimates that are no shares."""
    gain, outside = pi.net_benefit((1, 0, 0, -1), 0.1), 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        _, units = rough_units(rng, make_world(seed), 40, 40, noise=0.3)
        units = units._replace(ratio=rng.lognormal(0, 2, 80))
        found = pi.sorted_groups(units, num_groups=3)
        raw = [effect_means(units, each, "both") for each in found.member]
        outside += any(abs(means.estimate.item()) > 1 for means in raw)
        ends = (found.effect, found.gap_lower, found.gap_upper)
        assert np.abs(np.hstack(ends)).max() <= 1
        for part in (found.benefit, found.harm):
            values = np.stack(part[:4])
            assert values.min() >= 0 and values.max() <= 1
        difference = pi.trial_difference(units)
        assert -1 <= difference.lower <= difference.upper <= 1
        curve = pi.value_curve(units, gain, shares=(0, 0.2, 1))
        share = curve.share
        for values in curve[1:]:
            assert np.all((values >= -1.1 * share) & (values <= 0.9 * share))
        rule = (rng.random(80) < 0.3).astype(float)
        value = pi.policy_value(units, gain, rule)
        treated = value.share_treated
        assert -1.1 * treated <= min(value[:4]) <= max(value[:4]) <= 0.9 * treated
    assert outside > 0
