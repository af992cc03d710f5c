"""Linear draws against draws that are linked first, then scaled and shifted."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest

NUM_POINTS, NUM_DRAWS, RANK = 70, 40, 5  # three blocks of points


def make_draws(dtype=np.float64):
    rng = np.random.default_rng(0)
    parts = (
        rng.normal(size=(NUM_POINTS, 6)),
        0.4 * rng.normal(size=(NUM_POINTS, 6, RANK)),
        0.3 + rng.normal(size=(NUM_DRAWS, RANK)),
    )
    return pi.LinearDraws(*(part.astype(dtype) for part in parts))


def link(free):
    """Softmax and anchoring map, point by point and draw by draw."""
    weights = np.exp(free[..., :4])
    joint = (weights / weights.sum(axis=-1, keepdims=True)).reshape(
        *free.shape[:-1], 2, 2
    )
    return pb.Atoms(joint, pb.anchor(joint, free[..., 4:]))


def assert_close(found, wanted, rtol=1e-9):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol)


def test_atoms_are_those_of_one_product_per_draw():
    draws = make_draws()
    free = [draws.center + draws.factors @ one for one in draws.coefficients]
    atoms = draws.atoms()
    assert_close(atoms, link(np.array(free)))
    assert atoms.mu.shape == (NUM_DRAWS, NUM_POINTS, 2)
    assert np.all(pb.is_compatible(atoms))


def test_float32_stays_float32_and_every_law_compatible():
    atoms = make_draws(np.float32).atoms()
    assert atoms.joint.dtype == atoms.mu.dtype == np.float32
    assert np.all(pb.is_compatible(atoms))
    assert_close(atoms, make_draws().atoms(), rtol=1e-4)


@pytest.mark.parametrize("scale", [0.0, 0.3, np.linspace(0, 2, NUM_DRAWS)])
def test_scaled_coefficients_are_scaled_draws(scale):
    draws = make_draws()
    assert_close(draws.scale(scale).atoms(), pi.scale_draws(draws.atoms(), scale))


def test_a_shifted_center_shifts_draws_also_at_a_limit():
    draws, rng = make_draws(), np.random.default_rng(1)
    old = link(draws.center)
    new = link(draws.center + rng.normal(size=(NUM_POINTS, 6)))
    new.mu[:9] = new.joint[:9, :, 1]  # the least that is allowed
    wanted = pi.shift_draws(draws.atoms(), old, new)
    assert_close(draws.shift(old, new).atoms(), wanted)


def test_a_chain_of_steps_is_the_same_chain_on_linked_draws():
    draws, scale = make_draws(), np.linspace(0.5, 1.5, NUM_DRAWS)
    old, new = link(draws.center), link(0.5 * draws.center)
    found = draws.scale(0.7).shift(old, new).scale(scale).atoms()
    wanted = pi.scale_draws(draws.atoms(), 0.7)
    assert_close(found, pi.scale_draws(pi.shift_draws(wanted, old, new), scale))


def test_a_scale_of_the_wrong_length_is_told():
    with pytest.raises(ValueError, match="one for each of the 40 draws"):
        make_draws().scale(np.ones(3))


def test_no_points_have_no_atoms():
    draws = make_draws()
    nobody = draws._replace(center=draws.center[:0], factors=draws.factors[:0])
    assert nobody.atoms().mu.shape == (NUM_DRAWS, 0, 2)
