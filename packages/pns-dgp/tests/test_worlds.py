"""Worlds of many kinds: exact truth, one world per seed, families that differ."""

import jax
import numpy as np
import pns_bounds as pb
import pns_dgp
import pytest

FAMILIES = sorted(pns_dgp.FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_agrees_with_what_is_sampled(family):
    """Sums of indicators minus their exact probabilities, within five standard errors."""
    world = pns_dgp.make_world(family, seed=5)
    people = world.sample_population(jax.random.key(0), 20_000)
    truth = world.oracle(np.asarray(people.z))
    pairs = {
        "pns": ((people.y1 == 1) & (people.y0 == 0), truth.pns),
        "harm": ((people.y1 == 0) & (people.y0 == 1), truth.harm),
        "mu1": (people.y1 == 1, truth.atoms.mu[:, 1]),
        "mu0": (people.y0 == 1, truth.atoms.mu[:, 0]),
        "p11": ((people.x == 1) & (people.y1 == 1), truth.atoms.joint[:, 1, 1]),
        "p01": ((people.x == 0) & (people.y0 == 1), truth.atoms.joint[:, 0, 1]),
    }
    # Weights that depend on the covariates see an error that averages out over them.
    weights = np.stack([np.ones(len(truth.pns)), np.sign(truth.atoms.mu[:, 1] - 0.5)])
    for name, (happened, probability) in pairs.items():
        gap = weights @ (np.asarray(happened) - probability)
        error = np.sqrt((probability * (1 - probability)).sum())
        assert np.abs(gap).max() < 5 * error, name


@pytest.mark.parametrize("family", FAMILIES)
def test_pns_lies_in_its_sharp_bounds(family):
    world = pns_dgp.make_world(family, seed=2)
    truth = world.oracle(
        np.asarray(world.sample(jax.random.key(1), 500, "observational").z)
    )
    assert np.all(truth.interval.lower <= truth.pns)
    assert np.all(truth.pns <= truth.interval.upper)
    assert pb.is_compatible(truth.atoms).all()


def test_a_seed_names_a_world():
    z = np.zeros((1, 8))
    one, same, other = (pns_dgp.make_world("radial", seed) for seed in (3, 3, 4))
    assert one.oracle(z).pns == same.oracle(z).pns != other.oracle(z).pns
    assert one.parameters() == same.parameters()


def test_outcomes_of_the_rare_family_are_rare_and_others_are_not():
    for family, least, greatest in (("rare", 0.005, 0.08), ("linear", 0.2, 0.8)):
        for seed in range(5):
            world = pns_dgp.make_world(family, seed)
            outcomes = world.sample(jax.random.key(0), 4000, "experimental").y
            assert least < np.mean(outcomes) < greatest


def test_labels_of_categories_are_whole_numbers():
    world = pns_dgp.make_world("mixed", seed=0)
    z = np.asarray(world.sample(jax.random.key(0), 1000, "observational").z)
    assert world.categories == (0,)
    assert set(z[:, 0]) <= set(range(25)) and len(set(z[:, 0])) > 15


def test_covariates_of_some_families_repeat_and_of_others_do_not():
    def num_distinct(family):
        world = pns_dgp.make_world(family, seed=0)
        z = np.asarray(world.sample(jax.random.key(0), 3000, "observational").z)
        return len(np.unique(z, axis=0))

    assert num_distinct("interactions") < 2000
    assert num_distinct("sines") > 2990


def test_an_unknown_family_is_an_error():
    with pytest.raises(pb.InputError, match="family must be in .*'radial'"):
        pns_dgp.make_world("spherical", seed=0)
