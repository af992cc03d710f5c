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


def test_the_order_of_eta_names_treatments_and_levels():
    assert pb.BINARY.eta_names == ("mu1", "mu0", "p11", "p10", "p01", "p00")
    layout = pb.Layout(num_treatments=2, num_levels=3)
    names = layout.eta_names
    assert names[:4] == ("mu12", "mu11", "mu02", "mu01")
    assert len(names) == layout.num_raw == len(set(names))
    for place, cell in enumerate(layout.anchor_places):
        assert names[cell] == names[place].replace("mu", "p")


def test_terms_of_three_levels_are_affine_in_their_own_eta():
    layout = pb.Layout(num_treatments=2, num_levels=3)
    rng = np.random.default_rng(0)
    row, joint = (
        rng.normal(size=layout.num_raw),
        rng.dirichlet(np.ones(6)).reshape(2, 3),
    )
    mu = rng.dirichlet(np.ones(3), size=2)[:, 1:]
    estimand = pb.Estimand(
        name="sum",
        sentence="",
        layout=layout,
        **{f"{side}_labels": ["sum"] for side in ("lower", "upper")},
        **{f"{side}_matrix": [row] for side in ("lower", "upper")},
        **{f"{side}_offset": [0.5] for side in ("lower", "upper")},
    )
    eta = [*mu.ravel()[::-1], *joint.ravel()[::-1]]
    terms = estimand.terms(pb.Atoms(joint, mu))
    np.testing.assert_allclose(terms.lower, [0.5 + row @ eta], atol=1e-14)
