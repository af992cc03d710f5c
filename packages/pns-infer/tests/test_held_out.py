"""What makes held-out units, and what is refused."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest


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
