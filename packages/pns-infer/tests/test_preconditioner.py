"""The preconditioner against the dense matrix, and what it saves."""

import dataclasses

import jax
import numpy as np
from bootstrap_examples import anchored_config, dense_curvature, solve_anchored
from pns_infer.bootstrap import preconditioner as _preconditioner
from pns_infer.bootstrap import solve as _solve

DAMPING = 1e-3


def preconditioner(rank, **options):
    result = solve_anchored()
    config = anchored_config(damping=DAMPING, preconditioner_rank=rank, **options)
    return _preconditioner.make_preconditioner(result.equation, config)


def preconditioned(rank):
    """What is left to conjugate gradients: eigenvalues of M (J + damping), ascending."""
    matrix = dense_curvature("ggn").astype(float)
    matrix = matrix + DAMPING * np.eye(len(matrix))
    inverse = np.asarray(jax.vmap(preconditioner(rank))(np.eye(len(matrix))), float)
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-5)
    return np.sort(np.linalg.eigvals(inverse @ matrix).real)


def test_a_sketch_of_full_rank_gives_the_inverse():
    """Up to a factor, and but for directions without curvature, five of a softmax.

    Those are left as they are, the others as the flattest one that is not among them.
    """
    values = preconditioned(42) / DAMPING
    flattest = np.linalg.eigvalsh(dense_curvature("ggn").astype(float))[5]
    np.testing.assert_allclose(values[:5], 1, atol=0.01)
    np.testing.assert_allclose(values[5:], 1 + flattest / DAMPING, atol=0.01)


def test_a_sketch_of_some_rank_leaves_less_to_do():
    """The condition number falls as the rank grows."""
    conditions = [values[-1] / values[0] for values in map(preconditioned, (0, 20, 35))]
    assert conditions[0] > 5 * conditions[1] > 25 * conditions[2]


def test_directions_are_orthonormal_and_batches_change_nothing():
    basis = np.asarray(preconditioner(20).basis)
    np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-5)
    other = preconditioner(20, draws_per_batch=7)
    vector = np.linspace(-1, 1, 42, dtype=np.float32)
    np.testing.assert_allclose(
        other(vector), preconditioner(20)(vector), rtol=1e-3, atol=1e-4
    )


def test_a_curvature_of_zero_leaves_vectors_as_they_are():
    result = solve_anchored()
    empty = dataclasses.replace(result.equation, counts=0 * result.equation.counts)
    found = _preconditioner.make_preconditioner(empty, anchored_config())
    vector = np.linspace(-1, 1, 42, dtype=np.float32)
    np.testing.assert_array_equal(found(vector), vector)


def test_few_steps_suffice_with_the_preconditioner_alone():
    result = solve_anchored()
    config = anchored_config(
        damping=0.01, direct_up_to=0, max_iterations=10, tolerance=1e-4
    )
    right = np.random.default_rng(0).standard_normal((4, 42)).astype(np.float32)
    residuals = [
        _solve.make_solver(
            result.equation, dataclasses.replace(config, preconditioner_rank=rank)
        )(right)[1].max()
        for rank in (0, 35)
    ]
    assert residuals[1] < 1e-3 and residuals[0] > 1e-2


def test_other_curvatures_have_none():
    """They may be far from the matrix that is never negative."""
    result = solve_anchored()
    config = anchored_config(curvature="hessian", preconditioner_rank=20)
    found = _preconditioner.make_preconditioner(result.equation, config)
    assert found.basis.shape == (0, 42)
