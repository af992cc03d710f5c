"""Estimands by name, and the terms of PNS as the paper writes them."""

import dataclasses

import numpy as np
import pns_bounds as pb
import pytest


@pytest.fixture
def toy():
    """The average effect, known here under a name that no other test takes."""
    return pb.Estimand(
        name="toy effect",
        sentence="The average effect.",
        lower_labels=["mu1 - mu0"],
        lower_matrix=[[1, -1, 0, 0, 0, 0]],
        lower_offset=[0],
        upper_labels=["mu1 - mu0"],
        upper_matrix=[[1, -1, 0, 0, 0, 0]],
        upper_offset=[0],
        floor=-1.0,
    )


def test_every_estimand_is_known_by_its_name():
    for name in ("pns", "harm", "pn", "ps", "always", "never"):
        assert pb.ESTIMANDS[name].name == name


def test_one_of_your_own_is_found_and_its_name_is_taken(toy):
    assert pb.register_estimand(toy) is toy
    assert pb.ESTIMANDS["toy effect"] == toy
    pb.register_estimand(toy)  # again, as when a module is imported twice
    other = dataclasses.replace(toy, floor=0.0)
    with pytest.raises(pb.InputError, match="'toy effect' is taken"):
        pb.register_estimand(other)


def test_the_registry_is_changed_by_registering_alone():
    with pytest.raises(TypeError):
        pb.ESTIMANDS["pns"] = pb.HARM


def random_atoms(num_rows: int = 1000) -> pb.Atoms:
    """Atoms with no regard for compatibility: the terms are plain algebra."""
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.ones(4), size=num_rows).reshape(-1, 2, 2)
    return pb.Atoms(joint, rng.random((num_rows, 2)))


def test_the_matrix_reproduces_the_terms():
    atoms = random_atoms()
    terms = pb.bound_terms(atoms)
    assert pb.TERM_MATRIX.shape == (7, 6) and pb.TERM_OFFSET.shape == (7,)
    np.testing.assert_array_equal(terms.lower[:, 0], 0)
    np.testing.assert_allclose(
        np.concatenate([terms.lower[:, 1:], terms.upper], axis=-1),
        pb.pack_atoms(atoms) @ pb.TERM_MATRIX.T + pb.TERM_OFFSET,
        rtol=0,
        atol=1e-15,
    )


def test_the_matrix_cannot_be_changed_by_accident():
    for constant in (pb.TERM_MATRIX, pb.TERM_OFFSET, pb.SLACK_MATRIX):
        with pytest.raises(ValueError, match="read-only"):
            constant[0] = 2


def test_the_first_free_lower_term_is_the_sum_of_the_other_two():
    """So the paper's illustration (0.05, 0.40, 0.28, 0.30) stands for no atoms."""
    lower = pb.bound_terms(random_atoms()).lower
    np.testing.assert_allclose(lower[:, 1], lower[:, 2] + lower[:, 3], atol=1e-15)


def test_no_upper_term_of_anchored_atoms_rounds_below_zero():
    rng = np.random.default_rng(1)
    logits = rng.uniform(-20, 20, size=(500_000, 6)).astype(np.float32)
    weights = np.exp(logits[:, :4])
    joint = (weights / weights.sum(1, keepdims=True)).reshape(-1, 2, 2)
    atoms = pb.Atoms(joint, pb.anchor(joint, logits[:, 4:]))
    assert np.all(pb.is_compatible(atoms))
    for estimand in (pb.PNS, pb.HARM):
        assert np.all(estimand.terms(atoms).upper >= 0)


def test_terms_by_hand():
    terms = pb.bound_terms(pb.Atoms([[0.1, 0.2], [0.3, 0.4]], [0.25, 0.65]))
    np.testing.assert_allclose(terms.lower, [0, 0.4, 0.35, 0.05], atol=1e-15)
    np.testing.assert_allclose(terms.upper, [0.65, 0.75, 0.5, 0.9], atol=1e-15)
