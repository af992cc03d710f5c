"""Shapes that follow from the numbers of treatments and levels."""

import numpy as np
import pns_bounds as pb


def test_the_binary_layout_has_the_lengths_of_the_paper():
    atoms = pb.atoms_from_counts(np.ones((2, 2)), np.ones((2, 2)))
    assert pb.BINARY.joint_shape == atoms.joint.shape
    assert pb.BINARY.num_cells == atoms.joint.size
    assert pb.BINARY.num_free == atoms.mu.size
    assert pb.BINARY.num_raw == pb.pack_atoms(atoms).size
    assert pb.BINARY.num_counts == 8


def test_three_arms_and_four_levels_are_counted_by_enumeration():
    layout = pb.Layout(num_treatments=3, num_levels=4)
    cells = [(x, y) for x in range(3) for y in range(4)]
    # A law over four levels has three free numbers.
    free = [(x, y) for x, y in cells if y > 0]
    assert layout.num_cells == len(cells)
    assert layout.num_raw == len(cells) + len(free)
    assert layout.num_counts == 2 * len(cells)
