"""Frequencies from counts, and the two renamings."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pytest


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
        ([[1, 2, 3]] * 2, [[1, 1], [1, 1]], r"observational counts .*\[..., 2, 2\]"),
        ([[1, 2], [3, 4]], [[1, 1]], r"experimental counts must have shape"),
        ([[1, -2], [3, 4]], [[1, 1], [1, 1]], "observational counts must be finite"),
        ([[1, 2], [3, 4]], [[1, np.nan], [1, 1]], "experimental counts must be finite"),
        (
            [[1, np.inf], [3, 4]],
            [[1, 1], [1, 1]],
            "observational counts must be finite",
        ),
        (np.full((2, 2), 3e4, "f2"), np.ones((2, 2), "f2"), "a total that its format"),
        (np.ones((2, 2), "f2"), np.full((2, 2), 4e4, "f2"), "totals that their format"),
        ([[0, 0], [0, 0]], [[1, 1], [1, 1]], "at least one observational unit"),
        ([[1, 2], [3, 4]], [[0, 0], [1, 1]], "each arm of the experiment"),
        ([[1, 2], [3, 4]], [[[1, 1], [1, 1]]], "share their leading dimensions"),
    ],
)
def test_counts_that_make_no_frequencies(observational, experimental, message):
    with np.errstate(over="ignore"), pytest.raises(ValueError, match=message):
        pb.atoms_from_counts(observational, experimental)


def renamed(cells: np.ndarray, flip_y0: bool, flip_y1: bool, flip_x: bool):
    """Renames values in a law q[row, x, y0, y1] by hand, then sums it into atoms."""
    joint = np.zeros((len(cells), 2, 2))
    mu = np.zeros((len(cells), 2))
    for x, y0, y1 in np.ndindex(2, 2, 2):
        potential = [1 - y0 if flip_y0 else y0, 1 - y1 if flip_y1 else y1]
        arm = x
        if flip_x:
            arm, potential = 1 - x, potential[::-1]
        joint[:, arm, potential[arm]] += cells[:, x, y0, y1]
        mu += cells[:, x, y0, y1, None] * potential
    return pb.Atoms(joint, mu)


@pytest.mark.parametrize(
    ("rename", "flips"),
    [
        (pb.exchange_arms, (False, False, True)),
        (lambda atoms: pb.flip_outcome(atoms, arm=0), (True, False, False)),
        (lambda atoms: pb.flip_outcome(atoms, arm=1), (False, True, False)),
    ],
)
def test_renaming_atoms_equals_renaming_every_unit(cells, rename, flips):
    plain = renamed(cells, False, False, False)
    expected = renamed(cells, *flips)
    for have, want in zip(rename(plain), expected, strict=True):
        np.testing.assert_allclose(have, want, rtol=0, atol=1e-15)


def test_packing_names_each_entry_and_unpacking_undoes_it(cells):
    joint = np.array([[0.1, 0.2], [0.3, 0.4]])  # p00, p01; p10, p11
    eta = pb.pack_atoms(pb.Atoms(joint, [0.25, 0.65]))
    np.testing.assert_array_equal(eta, [0.65, 0.25, 0.4, 0.3, 0.2, 0.1])
    atoms = renamed(cells.reshape(5, 100, 2, 2, 2)[0], False, False, False)
    for one in (atoms, jax.tree.map(jnp.asarray, atoms)):
        there_and_back = pb.unpack_atoms(pb.pack_atoms(one))
        chex.assert_trees_all_equal(there_and_back, one)
        chex.assert_trees_all_equal_dtypes(there_and_back, one)
    with pytest.raises(ValueError, match=r"eta must have shape \[..., 6\]"):
        pb.unpack_atoms(np.zeros(7))
    with pytest.raises(ValueError, match="share their leading dimensions"):
        pb.pack_atoms(pb.Atoms(joint, np.zeros((3, 2))))


def test_flip_outcome_knows_two_arms():
    with pytest.raises(ValueError, match="arm must be 0"):
        pb.flip_outcome(pb.Atoms(np.full((2, 2), 0.25), [0.5, 0.5]), arm=2)
