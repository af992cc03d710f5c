"""Draws from a stack: moments by loops over members, atoms by their formula, saved and loaded."""

import jax
import numpy as np
import pns_bounds as pb
import pns_estimate as pe
import pns_models as pm
import pytest
from pns_estimate.methods.stack import StackSampler, link
from small_stacks import make_stack
from small_tables import small_networks

KEY, NUM_DRAWS = jax.random.key(0), 4000


def draw_people(n, num_covariates=2):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, num_covariates)).astype(np.float32)


def assert_same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_link_is_softmax_and_logistic_function_between_the_limits():
    raw = 2 * np.random.default_rng(0).normal(size=(500, 6))
    found = link(raw)
    weights = np.exp(raw[:, :4])
    joint = (weights / weights.sum(axis=1, keepdims=True)).reshape(-1, 2, 2)
    free = 1 / (1 + np.exp(-raw[:, 4:]))
    np.testing.assert_allclose(found.joint, joint, rtol=1e-9)
    mu = np.minimum(np.maximum(free, joint[..., 1]), 1 - joint[..., 0])
    np.testing.assert_allclose(found.mu, mu, rtol=1e-9)
    assert 0.1 < np.isclose(mu, free).mean() < 0.9  # some are moved, some are not


def test_atoms_are_those_of_the_mean_weighted_by_source():
    """Raw numbers by a loop over classes; the log decides cells, the trial arms."""
    stack, z = make_stack(), draw_people(50)
    raw = np.zeros((50, 6))
    for members, weight in zip(stack.members, stack.weights, strict=True):
        mean = np.mean([one.raw(z)[0] for one in map(members.take, ([0], [1]))], axis=0)
        raw += np.repeat(weight, [4, 2]) * mean
    found = StackSampler(stack).atoms(z)
    for one, other in zip(found, link(raw), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert np.all(pb.is_compatible(found))


def test_raw_numbers_are_normal_about_the_center_with_the_sum_of_squares():
    """Covariance of each row's raw numbers: the factors' products.

    Of 4,000 draws a standard deviation has a relative error of 1.1%, and a mean one of
    1.6% of a standard deviation: four of those are allowed.
    """
    stack, z = make_stack(), draw_people(30)
    center, factors = stack.answer(z)
    draws = StackSampler(stack).linear_draws(KEY, z, NUM_DRAWS)
    raw = draws.center + np.einsum("nrk,dk->dnr", draws.factors, draws.coefficients)
    error = np.sqrt(np.square(factors).sum(axis=2))
    np.testing.assert_allclose(raw.std(axis=0), error, rtol=0.045)
    gap = (raw.mean(axis=0) - center) / error
    assert np.abs(gap).max() < 4.5 / np.sqrt(NUM_DRAWS)
    for row in range(len(z)):
        products = factors[row] @ factors[row].T
        wanted = products / np.outer(error[row], error[row])
        # A correlation has an error of at most 1.6%.
        np.testing.assert_allclose(np.corrcoef(raw[:, row].T), wanted, atol=0.075)


def test_drawn_atoms_are_linked_one_by_one_and_compatible():
    sampler, z = StackSampler(make_stack()), draw_people(40)
    linear = sampler.linear_draws(KEY, z, 60)
    atoms = sampler.draws(KEY, z, 60)
    assert atoms.mu.dtype == np.float32 and np.all(pb.is_compatible(atoms))
    for number, one in enumerate(linear.coefficients):
        wanted = link(linear.center + linear.factors @ one)
        np.testing.assert_allclose(atoms.mu[number], wanted.mu, rtol=1e-4)
        np.testing.assert_allclose(atoms.joint[number], wanted.joint, rtol=1e-4)


def test_the_first_draws_do_not_depend_on_the_number_of_draws_nor_on_who_is_asked():
    sampler, z = StackSampler(make_stack()), draw_people(40)
    many = sampler.draws(KEY, z, 301)
    few = sampler.draws(KEY, z[10:20], 7)
    for one, other in zip(few, many, strict=True):
        np.testing.assert_allclose(one, other[:7, 10:20], rtol=1e-5)
    coefficients = [sampler.linear_draws(KEY, z, n).coefficients for n in (7, 301)]
    np.testing.assert_array_equal(coefficients[0], coefficients[1][:7])
    other = sampler.draws(jax.random.key(1), z, 7)
    assert np.abs(other.mu - many.mu[:7]).max() > 0.01


def test_a_saved_stack_draws_the_same(tmp_path):
    sampler, z = StackSampler(make_stack()), draw_people(40)
    pe.SAMPLERS.save(sampler, tmp_path / "sampler")
    loaded = pe.SAMPLERS.load(tmp_path / "sampler")
    assert isinstance(loaded, StackSampler) and loaded.stack.names == ("one", "other")
    assert loaded.has_draws and loaded.is_posterior
    assert_same(loaded.atoms(z), sampler.atoms(z))
    assert_same(loaded.draws(KEY, z, 50), sampler.draws(KEY, z, 50))


@pytest.mark.parametrize("name", ["ridge", "splines", "kernel", "trees", "networks"])
def test_members_of_every_class_draw_the_same_once_saved(name, tmp_path):
    rng = np.random.default_rng(0)
    counts = pm.Counts(
        draw_people(400),
        *(rng.integers(0, 3, (400, 2, 2)).astype(float) for _ in range(2)),
    )
    folded = pm.FoldedCounts(counts, np.arange(400) % 2, np.arange(400))
    learner = small_networks() if name == "networks" else pm.LEARNERS[name]
    found = pm.cross_fit(KEY, folded, [learner], members_per_fold=2, progress=False)
    sampler, z = StackSampler(found.stack), draw_people(30)
    pe.SAMPLERS.save(sampler, tmp_path / "sampler")
    loaded = pe.SAMPLERS.load(tmp_path / "sampler")
    wanted = sampler.draws(KEY, z, 50)
    assert_same(loaded.draws(KEY, z, 50), wanted)
    assert wanted.mu.std(axis=0).max() > 0 and np.all(pb.is_compatible(wanted))
