"""From held-out units to averages: reweighted exactly where the laws differ."""

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from held_out_examples import NUM_CELLS, make_world, rough_units
from pns_infer.averages.arm_shift import shift_arms


def prepare(law, source="both"):
    rng = np.random.default_rng(0)
    cell, units = rough_units(rng, make_world(7, law), 4000, 3000)
    fold = np.arange(7000) % 5
    comparison = pi.compare_sources(
        np.eye(NUM_CELLS)[cell], units.is_experimental, fold
    )
    return pi.prepare_units(units, fold, comparison, source), units


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
