"""Identification against enumeration of the response types of every unit."""

import numpy as np
import pns_bounds as pb
import pytest


def enumerate_truth(law: np.ndarray):
    """Adds up the eight kinds of units (x, y0, y1) one by one."""
    joint, mu = np.zeros((2, 2)), np.zeros(2)
    pns = necessary = sufficient = 0.0
    for x, y0, y1 in np.ndindex(2, 2, 2):
        weight = law[x, y0, y1]
        joint[x, (y0, y1)[x]] += weight
        mu += weight * np.array([y0, y1])
        pns += weight * (y1 == 1 and y0 == 0)
        necessary += weight * (x == 1 and y1 == 1 and y0 == 0)
        sufficient += weight * (x == 0 and y0 == 0 and y1 == 1)
    pn = necessary / joint[1, 1] if joint[1, 1] > 0 else np.nan
    ps = sufficient / joint[0, 0] if joint[0, 0] > 0 else np.nan
    return pb.Atoms(joint, mu), (pns, pn, ps)


def test_monotonicity_identifies_all_three(cells):
    for law in cells:
        nobody_harmed = law.copy()
        nobody_harmed[:, 1, 0] = 0
        if nobody_harmed.sum() == 0:
            continue
        atoms, truth = enumerate_truth(nobody_harmed / nobody_harmed.sum())
        points = pb.identify_under_monotonicity(atoms)
        np.testing.assert_allclose(points, truth, rtol=0, atol=1e-9)


def test_monotonicity_is_refuted_by_atoms_that_show_harm():
    # P(Y=1) = 0.6 is less than mu0: some of the treated were harmed.
    atoms = pb.Atoms([[0.1, 0.2], [0.3, 0.4]], [0.7, 0.65])
    with pytest.raises(pb.IncompatibleAtomsError, match="Some units are harmed"):
        pb.identify_under_monotonicity(atoms)
    assert pb.identify_under_monotonicity(atoms, incompatible="allow").pns < 0
    with pytest.raises(pb.InputError, match=r"one of \['raise', 'allow'\]"):
        pb.identify_under_monotonicity(
            atoms,
            incompatible="project",
        )


def test_monotonicity_is_refuted_only_beyond_rounding():
    joint = [[0.1, 0.2], [0.3, 0.4]]  # P(Y=1) = 0.6
    for mu in ([0.6 + 5e-7, 0.65], [0.5, 0.6 - 5e-7]):
        points = pb.identify_under_monotonicity(pb.Atoms(joint, mu))
        assert points.pn >= 0 and points.ps >= 0
    for mu in ([0.6 + 2e-6, 0.65], [0.5, 0.6 - 2e-6], [0.1, 0.65]):
        with pytest.raises(pb.IncompatibleAtomsError):
            pb.identify_under_monotonicity(pb.Atoms(joint, mu))


def test_points_of_monotone_laws_are_probabilities_in_float32():
    rng = np.random.default_rng(6)
    law = rng.gamma(0.05, size=(50_000, 2, 2, 2))  # many tiny cells
    law[:, :, 1, 0] = 0
    law /= law.sum((1, 2, 3), keepdims=True)
    joint = np.stack([law[:, 0].sum(2), law[:, 1].sum(1)], axis=1).astype(np.float32)
    mu = np.stack([law[:, :, 1].sum((1, 2)), law[..., 1].sum((1, 2))], axis=1)
    points = pb.identify_under_monotonicity(pb.Atoms(joint, mu.astype(np.float32)))
    for values in (points.pn, points.ps, pb.identify_under_exogeneity(joint)):
        defined = values[~np.isnan(values)]
        assert defined.size > 10_000
        assert np.all((defined >= 0) & (defined <= 1))


def exogenous_laws(num_laws: int = 200):
    rng = np.random.default_rng(4)
    for _ in range(num_laws):
        types = rng.dirichlet(np.full(4, 0.5)).reshape(2, 2)  # [y0, y1]
        treated = rng.uniform(0.05, 0.95)
        yield np.stack([(1 - treated) * types, treated * types])


def test_exogeneity_identifies_mu_and_gives_the_bounds_of_the_experiment():
    for law in exogenous_laws():
        atoms, _ = enumerate_truth(law)
        mu = pb.identify_under_exogeneity(atoms.joint)
        np.testing.assert_allclose(mu, atoms.mu, rtol=0, atol=1e-12)
        # Choices that tell nothing about the units add nothing to the experiment.
        np.testing.assert_allclose(
            pb.pns_bounds(pb.Atoms(atoms.joint, mu)),
            pb.experimental_only_bounds(atoms.mu),
            rtol=0,
            atol=1e-12,
        )


def test_both_assumptions_identify_from_observational_data_alone():
    for law in exogenous_laws():
        law[:, 1, 0] = 0
        atoms, truth = enumerate_truth(law / law.sum())
        mu = pb.identify_under_exogeneity(atoms.joint)
        points = pb.identify_under_monotonicity(pb.Atoms(atoms.joint, mu))
        np.testing.assert_allclose(points, truth, rtol=0, atol=1e-9)


def test_an_arm_that_nobody_chose_is_not_identified():
    mu = pb.identify_under_exogeneity([[0.0, 0.0], [0.4, 0.6]])
    np.testing.assert_array_equal(mu, [np.nan, 0.6])
