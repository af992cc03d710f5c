"""Shapes and lengths against those of atoms."""

import numpy as np
import pns_bounds as pb


def test_the_binary_layout_has_the_lengths_of_the_paper():
    atoms = pb.atoms_from_counts(np.ones((2, 2)), np.ones((2, 2)))
    assert pb.BINARY.joint_shape == atoms.joint.shape
    assert pb.BINARY.num_cells == atoms.joint.size
    assert pb.BINARY.num_free == atoms.mu.size
    assert pb.BINARY.num_raw == pb.pack_atoms(atoms).size
    assert pb.BINARY.mu_shape == atoms.mu.shape
    assert pb.BINARY.num_counts == 2 * atoms.joint.size
    cells = [f"p{x}{y}" for x, y in np.ndindex(pb.BINARY.joint_shape)]
    assert pb.BINARY.eta_names == ("mu1", "mu0", *reversed(cells))
