"""Held-out units: what is refused; means of linear forms against a loop over units."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from held_out_examples import make_world, rough_units
from pns_infer.averages.held_out import linear_means, stack_means
from scipy import stats


def arguments(count=4, **changes):
    given = {
        "atoms": pb.Atoms(np.full((count, 2, 2), 0.25), np.full((count, 2), 0.5)),
        "is_experimental": np.array([False, False, True, True]),
        "x": [0, 1, 0, 1],
        "y": [0, 1, 1, 0],
        "assignment": 0.5,
    }
    return given | changes


def test_units_have_weights_of_one_and_clusters_of_their_own():
    units = pi.make_held_out_units(**arguments())
    np.testing.assert_array_equal(units.weights, np.ones(4))
    np.testing.assert_array_equal(units.cluster, np.arange(4))
    grouped = pi.make_held_out_units(**arguments(groups=["b", "a", "b", "c"]))
    np.testing.assert_array_equal(grouped.cluster, [1, 0, 1, 2])


def test_assignment_of_observational_rows_is_not_read():
    units = pi.make_held_out_units(**arguments(assignment=[np.nan, 7, 0.4, 0.4]))
    np.testing.assert_array_equal(units.assignment[2:], [0.4, 0.4])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": [0, 1, 2, 1]}, "x must be 0 or 1"),
        ({"y": [0, 1]}, r"y must have shape \[4\]"),
        ({"is_experimental": [0, 0, 1, 1]}, "must be booleans"),
        ({"weights": [1, 1, 0, 1]}, "weights must be positive"),
        ({"ratio": [1, 1, np.inf, 1]}, "ratio must be positive"),
        ({"groups": [1, 2]}, r"groups must have shape \[4\]"),
        ({"weights_are": "people"}, "weights_are must be one of"),
        ({"assignment": 1.0}, "strictly between 0 and 1"),
        ({"assignment": [0.5, 0.5]}, r"assignment must have shape \[4\]"),
        (
            {"atoms": pb.Atoms(np.ones((3, 2, 2)), np.ones((3, 2)))},
            r"mu of atoms must have shape \[4, 2\]",
        ),
        ({"atoms": pb.Atoms(np.full((4, 2, 2), np.nan), np.ones((4, 2)))}, "finite"),
    ],
)
def test_bad_rows_end_in_one_sentence(changes, message):
    with pytest.raises(pb.InputError, match=message):
        pi.make_held_out_units(**arguments(**changes))


def loop(units, matrix, offset, member, source):
    """Computes estimate and variance of one form, person by person."""
    inside = {"both": (0, 1), "observational": (0,), "experimental": (1,)}[source]
    sums = {}  # numerator and denominator of each part

    def contributions(i):
        eta = pb.pack_atoms(pb.Atoms(*(part[i] for part in units.atoms)))
        weight = units.weights[i] * member[i]
        if units.is_experimental[i] in inside:
            yield "target", weight, offset[i] + matrix[i] @ eta
        weight *= units.ratio[i]
        if not units.is_experimental[i]:
            cell = np.zeros((2, 2))
            cell[units.x[i], units.y[i]] = 1
            cell = pb.pack_atoms(pb.Atoms(cell, np.zeros(2)))
            yield "log", weight, matrix[i, 2:] @ (cell - eta)[2:]
        elif units.x[i]:
            error = matrix[i, 0] * (units.y[i] - eta[0])
            yield "arm 1", weight / units.assignment[i], error
        else:
            error = matrix[i, 1] * (units.y[i] - eta[1])
            yield "arm 0", weight / (1 - units.assignment[i]), error

    count = units.num_rows
    for i in range(count):
        for part, weight, value in contributions(i):
            above, below = sums.get(part, (0.0, 0.0))
            sums[part] = above + weight * value, below + weight
    clusters = {}
    for i in range(count):
        for part, weight, value in contributions(i):
            above, below = sums[part]
            error = weight * (value - above / below) / below
            clusters[units.cluster[i]] = clusters.get(units.cluster[i], 0) + error
    squares = sum(error**2 for error in clusters.values())
    estimate = sum(above / below for above, below in sums.values())
    return estimate, squares * len(clusters) / (len(clusters) - 1)


@pytest.mark.parametrize("source", ["both", "observational", "experimental"])
def test_means_and_variances_are_those_of_a_loop_over_people(source):
    rng = np.random.default_rng(0)
    _, units = rough_units(rng, make_world(), 60, 50, assignment=0.3)
    units = units._replace(
        weights=rng.uniform(0.5, 2, 110),
        ratio=rng.uniform(0.5, 2, 110),
        cluster=rng.permutation(np.arange(110) % 40),
    )
    member = rng.uniform(0, 1, 110)
    matrix, offset = rng.standard_normal((110, 2, 6)), rng.standard_normal((110, 2))
    means = linear_means(units, matrix, offset, member, source)
    count = len(means.influence)
    for k in range(2):
        estimate, variance = loop(units, matrix[:, k], offset[:, k], member, source)
        np.testing.assert_allclose(means.estimate[k], estimate, rtol=1e-10)
        found = np.sum(means.influence[:, k] ** 2) * count / (count - 1)
        np.testing.assert_allclose(found, variance, rtol=1e-10)


def test_wrong_atoms_add_variance_but_no_bias():
    """200 replicates: the mean error lies within four of its standard errors."""
    rng = np.random.default_rng(1)
    world = make_world(3)
    truth = world.atoms()
    form = np.array([0.5, -1, 0.2, -0.7, 1, 0.1])
    errors, claimed = [], []
    for _ in range(200):
        _, units = rough_units(rng, world, 300, 200, 0.2, assignment=0.4)
        matrix = np.broadcast_to(form, (500, 1, 6))
        means = linear_means(units, matrix, np.zeros((500, 1)))
        errors.append(means.estimate[0] - np.mean(pb.pack_atoms(truth) @ form))
        claimed.append(means.standard_error[0])
    error = np.std(errors)
    assert abs(np.mean(errors)) < 4 * error / np.sqrt(200)
    # The standard deviation of 200 numbers has a relative error of 5%.
    np.testing.assert_allclose(np.mean(claimed), error, rtol=0.2)


def test_weights_that_are_frequencies_are_copies_of_the_row():
    rng = np.random.default_rng(5)
    _, units = rough_units(rng, make_world(), 200, 150)
    times = rng.integers(1, 5, 350)
    short = pi.make_held_out_units(
        units.atoms,
        *units[1:4],
        assignment=0.5,
        weights=times,
        weights_are="frequency",
    )
    place = np.repeat(np.arange(350), times)
    long = pi.make_held_out_units(
        pb.Atoms(*(part[place] for part in units.atoms)),
        *(part[place] for part in units[1:4]),
        assignment=0.5,
    )
    matrix = rng.standard_normal((350, 2, 6))
    one = linear_means(short, matrix, np.zeros((350, 2)))
    two = linear_means(long, matrix[place], np.zeros((len(place), 2)))
    np.testing.assert_allclose(one.estimate, two.estimate)
    # n / (n - 1) alone tells them apart.
    np.testing.assert_allclose(one.covariance, two.covariance, rtol=0.005)
    np.testing.assert_allclose(one.sample_size, two.sample_size)


def test_combinations_and_quotients_are_those_of_the_numbers():
    rng = np.random.default_rng(2)
    _, units = rough_units(rng, make_world(), 80, 70)
    matrix = rng.standard_normal((150, 3, 6))
    means = linear_means(units, matrix, np.full((150, 3), 2.0))
    mixed = means.combine(np.array([[1, -1, 0.5]]))
    one = matrix[:, 0] - matrix[:, 1] + matrix[:, 2] / 2
    direct = linear_means(units, one[:, None], np.full((150, 1), 1.0))
    np.testing.assert_allclose(mixed.estimate, direct.estimate)
    np.testing.assert_allclose(mixed.covariance, direct.covariance)
    ratio = means.divide(2)
    np.testing.assert_allclose(ratio.estimate[2], 1)
    np.testing.assert_allclose(ratio.standard_error[2], 0, atol=1e-12)
    step = 1e-6 * means.influence[:1]  # the ratio's derivative along one cluster
    moved = (means.estimate + step[0]) / (means.estimate + step[0])[2]
    slope = (moved - ratio.estimate) / 1e-6
    np.testing.assert_allclose(ratio.influence[0], slope, atol=1e-7)
    both = stack_means([means, ratio])
    np.testing.assert_allclose(both.estimate[3:], ratio.estimate)


def test_an_upper_end_above_a_rare_frequency_covers():
    """Exact, by the binomial law: 20 events are expected among 1,000 treated units."""
    size, chance = 1000, 0.02
    counts = np.arange(60)
    law = stats.binom.pmf(counts, size, chance)
    _, units = rough_units(np.random.default_rng(4), make_world(), 1, 2 * size)
    units = units._replace(x=np.arange(2 * size + 1) % 2, y=np.zeros(2 * size + 1, int))
    units = units._replace(atoms=pb.Atoms(units.atoms.joint * 0, units.atoms.mu * 0))
    arm = np.flatnonzero(units.is_experimental & (units.x == 1))
    matrix = np.broadcast_to([1.0, 0, 0, 0, 0, 0], (2 * size + 1, 1, 6))
    plain, corrected = [], []
    for count in counts:
        y = units.y.copy()
        y[arm[:count]] = 1
        means = linear_means(units._replace(y=y), matrix, np.zeros((2 * size + 1, 1)))
        end = means.estimate[0] + 1.96 * means.standard_error[0]
        plain.append(end >= chance)
        corrected.append(end + means.skew_margin(1, 1.96)[0] >= chance)
    assert law @ plain < 0.965 and 0.97 < law @ corrected < 0.99
    y = units.y[arm] + (np.arange(len(arm)) < 20)
    skewness = stats.skew(y) / np.sqrt(len(arm))
    y = units.y.copy()
    y[arm[:20]] = 1
    means = linear_means(units._replace(y=y), matrix, np.zeros((2 * size + 1, 1)))
    margin = skewness * (2 * 1.96**2 + 1) / 6 * means.standard_error[0]
    np.testing.assert_allclose(means.skew_margin(1, 1.96)[0], margin, rtol=1e-6)
    assert means.skew_margin(-1, 1.96)[0] == 0


def test_subgroups_without_a_part_are_told():
    _, units = rough_units(np.random.default_rng(3), make_world(), 30, 30)
    matrix, offset = np.ones((60, 1, 6)), np.zeros((60, 1))
    one_arm = ~units.is_experimental | (units.x == 1)
    for member, message in (
        (np.zeros(60), "subgroup is empty"),
        (np.ones(59), r"subgroup must have shape \[60\]"),
        (-np.ones(60), "none negative"),
        (one_arm, "no units in arm 0; its average needs"),
        (units.is_experimental, "no observational units"),
    ):
        with pytest.raises(pb.InputError, match=message):
            linear_means(units, matrix, offset, member)
    with pytest.raises(pb.InputError, match="source must be one of"):
        linear_means(units, matrix, offset, None, "trial")
