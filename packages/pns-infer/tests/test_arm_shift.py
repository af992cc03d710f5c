"""Intercepts of the arms: found again, fitted on other folds, flagged."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from held_out_examples import make_world, rough_units
from pns_infer.averages.arm_shift import shift_arms
from scipy import special


def shifted_units(seed, shift, size=20_000):
    world = make_world()
    cell, units = rough_units(np.random.default_rng(seed), world, 100, size)
    truth = world.atoms()
    mu = special.expit(special.logit(truth.mu) + shift)
    return units._replace(atoms=pb.Atoms(truth.joint[cell], mu[cell]))


def test_a_shift_is_found_and_taken_back():
    units = shifted_units(0, np.array([0.3, -0.4]))
    fold = np.arange(units.num_rows) % 4
    shifted, report = shift_arms(units, fold)
    np.testing.assert_allclose(report.shift, np.tile([-0.3, 0.4], (4, 1)), atol=0.12)
    assert report.p_value < 1e-6
    _, again = shift_arms(shifted, fold)
    assert np.all(np.abs(again.gap) < 3 * again.standard_error)
    np.testing.assert_array_equal(shifted.atoms.joint, units.atoms.joint)


def test_atoms_that_agree_are_not_flagged():
    """200 replicates at 10%: Monte Carlo error 2.1%."""
    flagged = []
    for seed in range(200):
        units = shifted_units(seed, 0.0, size=500)
        _, report = shift_arms(units, np.arange(600) % 2)
        flagged.append(report.p_value < 0.1)
    assert abs(np.mean(flagged) - 0.1) < 3 * 0.021


def test_a_shift_does_not_see_its_own_fold():
    units = shifted_units(1, 0.0, size=400)
    fold = np.arange(500) % 2
    before, _ = shift_arms(units, fold)
    flipped = units._replace(y=np.where(fold == 0, 1 - units.y, units.y))
    after, _ = shift_arms(flipped, fold)
    np.testing.assert_array_equal(before.atoms.mu[fold == 0], after.atoms.mu[fold == 0])
    assert not np.array_equal(before.atoms.mu, after.atoms.mu)


def test_outcomes_of_one_kind_keep_the_shift_finite():
    units = shifted_units(2, 0.0, size=200)
    shifted, report = shift_arms(
        units._replace(y=np.zeros(300, int)), np.arange(300) % 2
    )
    assert np.all(np.abs(report.shift) < 12)
    assert np.all((shifted.atoms.mu >= 0) & (shifted.atoms.mu < 0.1))


def test_a_fold_with_a_whole_arm_is_told():
    units = shifted_units(3, 0.0, size=50)
    with pytest.raises(pi.TooFewUnitsError, match="fold 0 holds all units of arm 0"):
        shift_arms(units, units.x)
