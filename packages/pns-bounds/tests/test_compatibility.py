"""Compatibility against the feasibility of the response-type program."""

import numpy as np
import pns_bounds as pb
import pytest
import scipy.optimize


def some_law_fits(joint: np.ndarray, mu: np.ndarray) -> bool:
    """Asks the solver whether any q[x, y0, y1] has these atoms."""
    rows, values = [], []
    for x, y in np.ndindex(2, 2):
        rows.append([a == x and (b, c)[a] == y for a, b, c in np.ndindex(2, 2, 2)])
        values.append(joint[x, y])
    for arm in (0, 1):
        rows.append([(b, c)[arm] == 1 for _, b, c in np.ndindex(2, 2, 2)])
        values.append(mu[arm])
    solution = scipy.optimize.linprog(
        np.zeros(8), A_eq=np.array(rows, float), b_eq=values, bounds=(0, None)
    )
    assert solution.status in (0, 2)  # solved, or infeasible
    return solution.status == 0


def random_atoms(num_rows: int = 300) -> pb.Atoms:
    rng = np.random.default_rng(1)
    joint = rng.dirichlet(np.ones(4), size=num_rows).reshape(-1, 2, 2)
    return pb.Atoms(joint, rng.random((num_rows, 2)))


def test_atoms_are_compatible_exactly_if_some_law_fits():
    atoms = random_atoms()
    verdict = pb.is_compatible(atoms)
    feasible = [some_law_fits(*row) for row in zip(*atoms, strict=True)]
    np.testing.assert_array_equal(verdict, feasible)
    assert 0.1 < verdict.mean() < 0.9


def test_each_slack_measures_its_own_constraint():
    joint = np.array([[0.1, 0.2], [0.3, 0.4]])
    slack = pb.compatibility_slack(pb.Atoms(joint, [0.5, 0.6]))
    # mu1 - p11, 1 - p10 - mu1, mu0 - p01, 1 - p00 - mu0
    np.testing.assert_allclose(slack, [0.2, 0.1, 0.3, 0.4], atol=1e-15)
    violated = pb.compatibility_slack(pb.Atoms(joint, [0.95, 0.35]))
    np.testing.assert_array_equal(violated < 0, [True, False, False, True])


def test_the_matrix_of_slacks_is_theirs_and_names_them():
    atoms = random_atoms(1000)
    slack = pb.compatibility_slack(atoms)
    by_matrix = pb.pack_atoms(atoms) @ pb.SLACK_MATRIX.T + [0, 1, 0, 1]
    np.testing.assert_allclose(slack, by_matrix, rtol=0, atol=1e-15)
    names = dict(
        zip(
            pb.BINARY.eta_names,
            pb.pack_atoms(atoms).T,
            strict=True,
        )
    )
    for column, constraint in zip(slack.T, pb.CONSTRAINTS, strict=True):
        np.testing.assert_array_equal(eval(constraint, names), column >= 0)


def test_a_tolerance_forgives_what_is_smaller():
    atoms = pb.Atoms(np.full((2, 2), 0.25), [0.5, 0.24])
    assert not pb.is_compatible(atoms)
    assert not pb.is_compatible(atoms, tolerance=0.009)
    assert pb.is_compatible(atoms, tolerance=0.011)


def test_the_projection_is_the_nearest_compatible_point():
    joint, mu = random_atoms(40)
    projected = pb.project_to_compatible(pb.Atoms(joint, mu))
    np.testing.assert_array_equal(projected.joint, joint)
    for row in range(len(mu)):
        p = joint[row]
        nearest = scipy.optimize.lsq_linear(
            np.eye(2), mu[row], bounds=(p[:, 1], 1 - p[:, 0]), tol=1e-14
        )
        np.testing.assert_allclose(projected.mu[row], nearest.x, atol=1e-6)


def test_the_projection_stays_a_probability_where_cells_round_above_one():
    third = np.float32(1 / 3)
    joint = np.array([[third, third + np.float32(6e-8)], [0, third]], np.float32)
    projected = pb.project_to_compatible(
        pb.Atoms(joint, np.array([0.5, 1 + 5e-7], np.float32))
    )
    assert projected.mu[1] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_projection_is_compatible_with_no_tolerance_and_projects_once(dtype):
    joint, mu = random_atoms(100_000)
    atoms = pb.Atoms(joint.astype(dtype), mu.astype(dtype))
    projected = pb.project_to_compatible(atoms)
    assert np.all(pb.is_compatible(projected))
    assert np.all((projected.mu >= 0) & (projected.mu <= 1))
    np.testing.assert_array_equal(pb.project_to_compatible(projected).mu, projected.mu)
