"""Intercepts of the arms, and units reweighted exactly where the sources' laws differ."""

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from held_out_examples import NUM_CELLS, make_world, rough_units
from pns_infer.averages.prepare_units import shift_arms
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
    with pytest.raises(pb.InputError, match="fold 0 holds all units of arm 0"):
        shift_arms(units, units.x)


def prepare(law, source="both"):
    rng = np.random.default_rng(0)
    cell, units = rough_units(rng, make_world(7, law), 4000, 3000)
    fold = np.arange(7000) % 5
    comparison = pi.compare_sources(
        np.eye(NUM_CELLS)[cell], units.is_experimental, fold
    )
    return pi.prepare_units(units, fold, comparison).toward(source), units


def test_where_the_laws_agree_nothing_is_reweighted():
    found, units = prepare(np.full((2, NUM_CELLS), 0.2))
    assert found.effective_sizes is None and found.units.ratio is None
    assert found.comparison.laws.p_value > 0.05
    want, _ = shift_arms(units, np.arange(7000) % 5)
    np.testing.assert_array_equal(found.units.atoms.mu, want.atoms.mu)


def test_where_they_differ_the_target_source_keeps_its_rows_as_they_are():
    law = np.array([[0.3, 0.3, 0.2, 0.1, 0.1], [0.1, 0.1, 0.2, 0.3, 0.3]])
    found, units = prepare(law, "experimental")
    assert found.comparison.laws.p_value < 1e-6
    np.testing.assert_allclose(found.units.ratio[units.is_experimental], 1)
    assert found.effective_sizes[0] < 3500
    np.testing.assert_allclose(found.effective_sizes[1], 3000)


def test_another_target_needs_no_other_fit():
    law = np.array([[0.3, 0.3, 0.2, 0.1, 0.1], [0.1, 0.1, 0.2, 0.3, 0.3]])
    (found, _), (want, _) = (prepare(law, each) for each in ("both", "experimental"))
    np.testing.assert_array_equal(
        found.toward("experimental").units.ratio, want.units.ratio
    )


def merged(units, cell, fold):
    """Puts rows that agree in everything into one, with their number as its weight."""
    parts = (cell, fold, units.is_experimental, units.x, units.y)
    _, first, kind, size = np.unique(
        np.stack(parts),
        axis=1,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    small = pi.make_held_out_units(
        pb.Atoms(*(part[first] for part in units.atoms)),
        units.is_experimental[first],
        units.x[first],
        units.y[first],
        assignment=units.assignment[first],
        weights=size,
        weights_are="frequency",
    )
    return small, first, kind.ravel()


@pytest.mark.parametrize("shift", [0.0, 0.1], ids=["one law", "two laws"])
def test_rows_that_agree_may_be_one_row_of_some_frequency(shift):
    law = np.full((2, NUM_CELLS), 0.2)
    law[0, :2] += shift
    law[0, 2:] -= 2 * shift / 3
    rng = np.random.default_rng(3)
    cell, units = rough_units(rng, make_world(7, law), 4000, 3000)
    fold, z = np.arange(7000) % 5, cell[:, None] ** 1.5
    small, first, kind = merged(units, cell, fold)
    assert len(first) < 500
    rows, few = (
        pi.prepare_units(
            each,
            fold[some],
            pi.compare_sources(
                z[some],
                each.is_experimental,
                fold[some],
                each.weights,
                copies=each.copies,
            ),
        )
        for each, some in ((units, slice(None)), (small, first))
    )
    np.testing.assert_allclose(few.arms.shift, rows.arms.shift)
    np.testing.assert_allclose(few.comparison.laws, rows.comparison.laws, rtol=1e-6)
    assert (few.effective_sizes is None) == (shift == 0)
    if few.effective_sizes is not None:
        np.testing.assert_allclose(few.units.ratio[kind], rows.units.ratio)
        np.testing.assert_allclose(few.effective_sizes, rows.effective_sizes)

    def answers(units, cell, fold):
        gain = pi.net_benefit((1, 0, 0, -1), 0.1)
        return (
            pi.debiased_average(units),
            pi.frequency_interval(units),
            pi.trial_difference(units),
            pi.group_averages(units, np.stack([cell == 1, cell == 3])),
            pi.sorted_groups(units, fold)._replace(member=np.zeros(0)),
            pi.value_curve(units, gain, fold=fold),
        )

    want = answers(rows.units, cell, fold)
    found = answers(few.units, cell[first], fold[first])
    jax.tree.map(np.testing.assert_allclose, found, want)
