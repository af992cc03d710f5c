"""Frequencies from counts, and atoms as one vector."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pytest
from response_program import atoms_of


def test_frequencies_are_shares_of_the_right_totals():
    observational = [[[1, 2], [3, 4]], [[0, 0], [0, 5]]]
    experimental = [[[6, 2], [1, 3]], [[1, 0], [0, 1]]]
    atoms = pb.atoms_from_counts(observational, experimental)
    np.testing.assert_array_equal(
        atoms.joint, [[[0.1, 0.2], [0.3, 0.4]], [[0, 0], [0, 1]]]
    )
    np.testing.assert_array_equal(atoms.mu, [[0.25, 0.75], [0, 1]])
    assert atoms.joint.dtype == np.float64


@pytest.mark.parametrize(
    ("observational", "experimental", "message"),
    [
        ([[1, 2, 3]] * 2, [[1, 1], [1, 1]], r"observational .*\[..., 2, 2\]"),
        ([[1, 2], [3, 4]], [[1, 1]], "experimental must have shape"),
        ([[1, -2], [3, 4]], [[1, 1], [1, 1]], "observational must be finite"),
        ([[1, 2], [3, 4]], [[1, np.nan], [1, 1]], "experimental must be finite"),
        ([[1, np.inf], [3, 4]], [[1, 1], [1, 1]], "observational must be finite"),
        (np.full((2, 2), 3e4, "f2"), np.ones((2, 2), "f2"), "observational needs"),
        (np.ones((2, 2), "f2"), np.full((2, 2), 4e4, "f2"), "totals that its format"),
        ([[0, 0], [0, 0]], [[1, 1], [1, 1]], "observational needs a unit in every"),
        ([[1, 2], [3, 4]], [[0, 0], [1, 1]], "experimental needs a unit in each arm"),
        ([[1, 2], [3, 4]], [[[1, 1], [1, 1]]], "share their leading dimensions"),
    ],
)
def test_counts_that_make_no_frequencies(observational, experimental, message):
    with np.errstate(over="ignore"), pytest.raises(pb.InputError, match=message):
        pb.atoms_from_counts(observational, experimental)


def test_packing_names_each_entry_and_unpacking_undoes_it(cells):
    joint = np.array([[0.1, 0.2], [0.3, 0.4]])  # p00, p01; p10, p11
    eta = pb.pack_atoms(pb.Atoms(joint, [0.25, 0.65]))
    np.testing.assert_array_equal(eta, [0.65, 0.25, 0.4, 0.3, 0.2, 0.1])
    atoms = atoms_of(cells)
    for one in (atoms, jax.tree.map(jnp.asarray, atoms)):
        there_and_back = pb.unpack_atoms(pb.pack_atoms(one))
        chex.assert_trees_all_equal(there_and_back, one)
        chex.assert_trees_all_equal_dtypes(there_and_back, one)
    with pytest.raises(pb.InputError, match=r"eta must have shape \[..., 6\]"):
        pb.unpack_atoms(np.zeros(7))
    with pytest.raises(pb.InputError, match="share their leading dimensions"):
        pb.pack_atoms(pb.Atoms(joint, np.zeros((3, 2))))
