"""A user's mistake gets one sentence: what, how many rows, the first, what to do."""

import pickle

import numpy as np
import pns_bounds as pb
import pytest

FAIR = [[0.25, 0.25], [0.25, 0.25]]
USES_ATOMS = [
    pb.bound_terms,
    pb.pns_bounds,
    pb.harm_bounds,
    pb.pn_bounds,
    pb.ps_bounds,
    pb.response_type_bounds,
    lambda atoms: pb.unit_selection_bounds(atoms, 1, 0, 0, 0),
    pb.compatibility_slack,
    pb.is_compatible,
    pb.project_to_compatible,
    pb.identify_under_monotonicity,
    pb.anchor_inverse,
]


@pytest.mark.parametrize("function", USES_ATOMS)
@pytest.mark.parametrize(
    ("joint", "mu", "message"),
    [
        ([0.25] * 4, [0.5, 0.5], r"joint must have shape \[..., 2, 2\], got \[4\]"),
        ([[0.2] * 3] * 2, [0.5, 0.5], r"joint must have shape .* got \[2, 3\]"),
        (FAIR, 0.5, r"mu must have shape \[..., 2\], got \[\]"),
        (FAIR, [0.5, 0.5, 0.5], r"mu must have shape \[..., 2\], got \[3\]"),
        ([FAIR] * 3, [0.5, 0.5], r"leading dimensions, got \[3\] and \[\]"),
        (FAIR, [0.5, np.nan], r"mu must hold probabilities .* got \[0.5, nan\]"),
        (FAIR, [0.5, 1.1], r"mu must hold probabilities .* got \[0.5, 1.1\]"),
        ([[0.5, np.nan], [0.5, 0]], [0.5, 0.5], "joint must hold probabilities"),
        ([[-0.1, 0.6], [0.5, 0]], [0.5, 0.5], "joint must hold probabilities"),
        ([[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5], "^joint must sum to one.*overall total"),
    ],
)
def test_bad_atoms_are_named(function, joint, mu, message):
    with pytest.raises(pb.InputError, match=message):
        function(pb.Atoms(joint, mu))


@pytest.mark.parametrize("slip", [2e-6, -2e-6])
def test_probabilities_may_leave_the_unit_by_rounding_only(slip):
    mu = [0.5, 1 + slip] if slip > 0 else [slip, 0.5]
    with pytest.raises(pb.InputError, match="mu must hold probabilities"):
        pb.experimental_only_bounds(mu)


def test_the_first_bad_row_and_their_number_are_named():
    joint = np.full((2, 5, 2, 2), 0.25)
    joint[0, 3] = [[0.2, 0.2], [0.2, 0.2]]
    joint[1, 1] = 0.3
    with pytest.raises(pb.InputError) as caught:
        pb.pns_bounds(pb.Atoms(joint, np.full((2, 5, 2), 0.5)))
    assert "2 of 10 rows are affected, the first at index (0, 3)" in str(caught.value)
    assert "[[0.2, 0.2], [0.2, 0.2]]" in str(caught.value)


def test_a_single_source_is_checked_too():
    with pytest.raises(pb.InputError, match="mu must hold"):
        pb.experimental_only_bounds([0.2, -0.1])
    with pytest.raises(pb.InputError, match="sum to one"):
        pb.observational_only_bounds([[0.2, 0.1], [0.1, 0.1]])
    with pytest.raises(pb.InputError, match="sum to one"):
        pb.identify_under_exogeneity([[0.2, 0.1], [0.1, 0.1]])


def test_rounding_is_forgiven_and_a_wrong_digit_is_not():
    def near_one(error):
        return pb.Atoms([[0.25 + error, 0.25], [0.25, 0.25]], [0.5, 0.5])

    pb.pns_bounds(near_one(9e-7))
    above = pb.pns_bounds(pb.Atoms([[0.0, 0.0], [0.0, 1.0]], [0.5, 1 + 2e-16]))
    assert 0 <= above.lower <= above.upper
    with pytest.raises(pb.InputError, match="sum to one"):
        pb.pns_bounds(near_one(2e-6))


def test_half_precisions_are_forgiven_eight_units_in_the_last_place():
    def near_one(error):
        cells = np.full((2, 2), 0.25, np.float16)
        cells[0, 0] += np.float16(error)
        return pb.Atoms(cells, np.array([0.5, 0.5], np.float16))

    pb.pns_bounds(near_one(0.005))
    with pytest.raises(pb.InputError, match="sum to one"):
        pb.pns_bounds(near_one(0.02))


def test_masked_arrays_do_not_lose_their_mask():
    mu = np.ma.array([0.5, 0.5], mask=[False, True])
    with pytest.raises(pb.InputError, match="^mu must not be masked"):
        pb.pns_bounds(pb.Atoms(FAIR, mu))


def test_text_and_ragged_lists_are_not_probabilities():
    for joint in ([["a", "b"], ["c", "d"]], [[0.5, 0.5], [0.0]]):
        with pytest.raises(pb.InputError, match="^joint must be an array of numbers"):
            pb.pns_bounds(pb.Atoms(joint, [0.5, 0.5]))


def test_an_input_error_names_its_argument_and_survives_a_process():
    with pytest.raises(pb.InputError, match="^incompatible must be one of") as caught:
        pb.pns_bounds(
            pb.atoms_from_counts([[9, 21], [51, 19]], [[79, 21], [51, 49]]),
            incompatible="ignore",
        )
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.argument, str(again)) == ("incompatible", str(caught.value))
