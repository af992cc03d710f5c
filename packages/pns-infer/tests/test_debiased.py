"""Debiased averages: a stratified closed form, coverage, counting, reweighting, ratios."""

import dataclasses

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from held_out_examples import NUM_CELLS, make_world, rough_units, saturated
from pns_infer.averages.covariate_tests import source_probability, target_ratio
from pns_infer.averages.debiased import normal_tails
from pns_infer.averages.held_out import linear_means


def saturated_units(rng, sizes, estimand_weights=None, **options):
    cell, *rows = make_world().sample(rng, *sizes)
    atoms, cells = saturated(cell, *rows, estimand_weights)
    share = np.average(
        rows[1][rows[0]],
        weights=None if estimand_weights is None else estimand_weights[rows[0]],
    )
    units = pi.make_held_out_units(
        atoms, *rows, assignment=share, weights=estimand_weights, **options
    )
    return cell, units, cells


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["pns", "harm", "always", "never"])
def test_with_saturated_cells_the_average_is_the_stratified_one(name, weighted):
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2, 900) if weighted else None
    cell, units, cells = saturated_units(rng, (500, 400), weights)
    law = np.bincount(cell, units.weights) / units.weights.sum()
    bounds = pb.ESTIMANDS[name].bounds(cells, incompatible="allow")
    average = pi.debiased_average(units, estimand=pb.ESTIMANDS[name])
    np.testing.assert_allclose(average.mean_lower, law @ bounds.lower, atol=1e-12)
    np.testing.assert_allclose(average.mean_upper, law @ bounds.upper, atol=1e-12)


def test_its_variance_is_the_sum_of_those_of_cells_and_of_the_target():
    """Frequencies are unbiased in each cell, so the three samples do not mix."""
    cell, units, cells = saturated_units(np.random.default_rng(1), (500, 400))
    upper = np.array(pb.PNS.upper_matrix)
    eta = pb.pack_atoms(cells)
    terms = eta @ upper.T + pb.PNS.upper_offset
    row = upper[terms.argmin(axis=1)]  # [cell, 6]
    law = np.bincount(cell) / 900
    variance = law @ (terms.min(axis=1) - law @ terms.min(axis=1)) ** 2 / 900
    logs = np.bincount(cell[~units.is_experimental])
    mean = (row[:, 2:] * eta[:, 2:]).sum(axis=1)
    spread = (row[:, 2:] ** 2 * eta[:, 2:]).sum(axis=1) - mean**2
    variance += logs @ spread / 500**2
    for place, arm in ((0, 1), (1, 0)):
        inside = units.is_experimental & (units.x == arm)
        sizes = np.bincount(cell[inside], minlength=NUM_CELLS)
        binomial = eta[:, place] * (1 - eta[:, place])
        variance += sizes @ (row[:, place] ** 2 * binomial) / inside.sum() ** 2
    arms = np.bincount(units.x[units.is_experimental])
    sizes = np.array([arms[1], arms[0], 500, 500, 500, 500])
    caution = np.sum((law @ row) ** 2 * 2 / sizes**2)  # two units in each frequency
    average = pi.debiased_average(units)
    np.testing.assert_allclose(
        average.standard_error_upper**2, variance * 900 / 899 + caution, rtol=1e-10
    )
    assert caution < 0.05 * variance


@pytest.mark.parametrize("assignment", [0.5, (0.2, 0.3, 0.5, 0.7, 0.8)])
def test_intervals_cover_the_average_though_the_atoms_are_wrong(assignment):
    """100 replicates, at least 95%: Monte Carlo error 2.2%."""
    rng = np.random.default_rng(2)
    world = make_world()
    lower, upper = world.average(pb.PNS, (600, 400))
    covered = []
    for _ in range(100):
        _, units = rough_units(rng, world, 600, 400, assignment=assignment)
        average = pi.debiased_average(units)
        covered.append(average.lower <= lower and average.upper >= upper)
    assert np.mean(covered) > 0.95 - 3 * 0.022


def test_with_true_atoms_the_interval_is_not_too_wide():
    """Each end misses with 10% of 150 replicates: Monte Carlo error 2.4%."""
    rng = np.random.default_rng(3)
    world = make_world()
    truth = world.atoms()
    lower, upper = world.average(pb.PNS, (600, 400))
    ends = []
    for _ in range(150):
        cell, units = rough_units(rng, world, 600, 400)
        exact = pb.Atoms(truth.joint[cell], truth.mu[cell])
        average = pi.debiased_average(
            units._replace(atoms=exact), 0.2, with_frequencies=False
        )
        ends.append((average.lower <= lower, average.upper >= upper))
    np.testing.assert_allclose(np.mean(ends, axis=0), 0.9, atol=4 * 0.024)


def test_where_the_laws_differ_reweighting_removes_the_bias():
    law = np.array([[0.4, 0.3, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.3, 0.4]])
    world = make_world(7, law)
    rng = np.random.default_rng(4)
    lower, upper = world.average(pb.PNS, (1, 1))
    cell, units = rough_units(rng, world, 30_000, 30_000, noise=0.3)
    dummies = np.eye(NUM_CELLS)[cell]
    fold = np.arange(60_000) % 2
    chance = source_probability(dummies, units.is_experimental, fold)
    ratio = target_ratio(chance, units.is_experimental, "both")
    # The choice of terms by wrong atoms is the same, so its own bounds are the truth.
    chosen = _chosen_bounds(world, units, cell)
    fair = pi.debiased_average(units._replace(ratio=ratio), with_frequencies=False)
    naive = pi.debiased_average(units, with_frequencies=False)
    error = fair.standard_error_lower
    assert abs(fair.mean_lower - chosen[0]) < 4 * error
    assert abs(naive.mean_lower - chosen[0]) > 8 * error
    assert fair.lower <= lower and fair.upper >= upper


def _chosen_bounds(world, units, cell):
    """Averages, over both laws, the true terms that the units' atoms choose."""
    eta = pb.pack_atoms(world.atoms())[cell]
    model = pb.pack_atoms(units.atoms)
    ends = []
    for side, pick in (("lower", np.argmax), ("upper", np.argmin)):
        matrix = np.array(getattr(pb.PNS, f"{side}_matrix"))
        offset = np.array(getattr(pb.PNS, f"{side}_offset"))
        limit = np.full((len(cell), 1), float(side == "upper"))
        terms = [np.hstack([each @ matrix.T + offset, limit]) for each in (model, eta)]
        chosen = pick(terms[0], axis=1)
        ends.append(terms[1][np.arange(len(cell)), chosen].mean())
    return ends


@pytest.mark.parametrize("name", ["pn", "ps"])
def test_a_ratio_is_averaged_over_its_own_population(name):
    cell, units, cells = saturated_units(np.random.default_rng(5), (900, 700))
    estimand = pb.ESTIMANDS[name]
    law = np.bincount(cell) / len(cell)
    bounds = estimand.bounds(cells, incompatible="allow")
    below = law * (pb.pack_atoms(cells) @ estimand.denominator)
    average = pi.debiased_average(units, estimand=estimand)
    want = below @ np.stack(bounds, axis=1) / below.sum()
    np.testing.assert_allclose(
        (average.mean_lower, average.mean_upper), want, atol=1e-12
    )
    assert average.lower < average.bound_lower and not average.is_empty


@pytest.mark.parametrize("seed", [3, 5, 9, 11])
def test_a_useless_choice_costs_little_beside_counting(seed):
    """One term more: 0.3 standard errors, of at most 0.02, beside the critical value."""
    rng = np.random.default_rng(6)
    _, units = rough_units(rng, make_world(seed), 4000, 3000)
    useless = pb.Atoms(units.atoms.joint[:, ::-1, ::-1], units.atoms.mu[:, ::-1])
    average = pi.debiased_average(units._replace(atoms=useless))
    counted = pi.frequency_interval(units)
    assert average.mean_lower < counted.bound_lower - 0.02
    for sign, end in ((1, "lower"), (-1, "upper")):
        for name in (end, f"bound_{end}"):
            gain = sign * (getattr(average, name) - getattr(counted, name))
            assert gain > -0.3 * 0.02, name


def test_a_good_choice_has_nearly_the_normal_interval():
    """With five terms kappa lies between 1.96 and 2.57."""
    cell, units = rough_units(np.random.default_rng(9), make_world(3), 8000, 6000)
    truth = make_world(3).atoms()
    exact = units._replace(atoms=pb.Atoms(truth.joint[cell], truth.mu[cell]))
    found = pi.debiased_average(exact)
    assert found.mean_lower > pi.frequency_interval(exact).bound_lower + 0.05
    kappa = (found.mean_lower - found.lower) / found.standard_error_lower
    assert 1.955 < kappa < 2.57
    alone = pi.debiased_average(exact, with_frequencies=False)
    end = alone.mean_lower - 1.959964 * alone.standard_error_lower
    np.testing.assert_allclose(alone.lower, end, atol=2e-4)  # less, by skewness
    np.testing.assert_allclose(alone.bound_lower, alone.mean_lower, atol=1e-5)


def test_clusters_of_copies_count_once():
    rng = np.random.default_rng(7)
    _, units = rough_units(rng, make_world(), 300, 200)
    twice = [np.concatenate([part, part]) for part in units[1:6]]
    atoms = pb.Atoms(*(np.concatenate([part, part]) for part in units.atoms))
    copied = units._replace(
        atoms=atoms,
        **dict(zip(units._fields[1:6], twice, strict=True)),
        cluster=np.tile(units.cluster, 2),
        copies=np.tile(units.copies, 2),
    )
    one, two = (
        pi.debiased_average(each, with_frequencies=False) for each in (units, copied)
    )
    np.testing.assert_allclose(two.mean_lower, one.mean_lower)
    np.testing.assert_allclose(
        two.standard_error_lower, one.standard_error_lower, rtol=0.03
    )


def test_what_cannot_be_averaged_is_told():
    _, units = rough_units(np.random.default_rng(8), make_world(), 40, 40)
    odd = dataclasses.replace(
        pb.PNS,
        function=lambda atoms: pb.PNS.terms(atoms),
        **{f"{side}_{part}": () for side in ("lower", "upper") for part in _PARTS},
    )
    with pytest.raises(pb.InputError, match="neither linear"):
        pi.debiased_average(units, estimand=odd)
    with pytest.raises(pb.InputError, match="alpha must lie in"):
        pi.debiased_average(units, 1.5)
    rare = units._replace(y=np.zeros(80, int))
    with pytest.raises(pb.InputError, match="denominator of the average"):
        pi.debiased_average(rare, estimand=pb.PN)


_PARTS = ("matrix", "offset")


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
    covariance = pi.frequency_covariance(*tables)
    want = pi.intervals_from_estimates(
        jax.random.key(0),
        atoms,
        covariance,
        0.1,
        sample_size=5000,
        num_draws=20_000,
        estimand=estimand,
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
