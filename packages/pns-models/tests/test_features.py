"""Features: splines by their span, kernels by the Gaussian process that they stand for."""

import numpy as np
from pns_models._features import make_basis, rotate
from scipy import interpolate


def test_features_are_b_splines_up_to_a_constant():
    """All but the last of a basis that adds up to 1: with it, any cubic is in the span."""
    z = np.linspace(0, 1, 400, dtype=np.float32)[:, None]
    basis = make_basis(z, num_knots=8)
    features = basis(z)
    assert features.shape == (400, 9)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-5)
    inner = np.clip(z[:, 0], *np.quantile(z, (0.001, 0.999))).astype(float)
    cubic = 1 + inner - 3 * inner**2 + 2 * inner**3
    design = np.c_[np.ones(400), features]
    found = design @ np.linalg.lstsq(design, cubic, rcond=None)[0]
    np.testing.assert_allclose(found, cubic, atol=1e-5)
    knots = basis.knots[0]
    lines = interpolate.BSpline(knots, np.arange(10.0), 3)(inner)
    own = features @ (np.arange(9.0) - 9)
    np.testing.assert_allclose(own - own[0], lines - lines[0], atol=1e-4)


def test_kernel_features_have_the_products_of_the_kernel():
    """Exactly so at landmarks, and nearly where there are many near by."""
    rng = np.random.default_rng(0)
    z = rng.uniform(-1, 1, (300, 2)).astype(np.float32)
    basis = make_basis(z, num_landmarks=300)
    features = basis(z)[:, 2:] + basis.mean[2:]
    standard = (np.clip(z, *basis.limits) - basis.center) / basis.scale
    gaps = standard[:, None] - standard[None]
    kernel = np.exp(-np.square(gaps).sum(axis=-1) / 4)
    np.testing.assert_allclose(features @ features.T, kernel, atol=2e-3)
    few = make_basis(z, num_landmarks=60)
    rough = few(z)[:, 2:] + few.mean[2:]
    assert few.landmarks.shape == (60, 2) and rough.shape[1] <= 60
    np.testing.assert_allclose(rough @ rough.T, kernel, atol=0.05)


def test_a_ridge_of_kernel_features_is_the_mean_of_a_gaussian_process():
    """Least squares with penalty tau against the dense formula K (K + tau)^-1 y."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(80, 3)).astype(np.float32)
    y = np.sin(2 * z[:, 0]) * z[:, 1]
    basis = make_basis(z, num_landmarks=80)
    features, tau = (basis(z) + basis.mean)[:, 3:].astype(float), 0.3
    kernel = features @ features.T
    standard = (np.clip(z, *basis.limits) - basis.center) / basis.scale
    gaps = standard[:, None] - standard[None]
    dense = np.exp(-np.square(gaps).sum(axis=-1) / 6)
    np.testing.assert_allclose(kernel, dense, atol=2e-3)
    size = features.shape[1]
    slopes = np.linalg.solve(features.T @ features + tau * np.eye(size), features.T @ y)
    expected = dense @ np.linalg.solve(dense + tau * np.eye(80), y)
    np.testing.assert_allclose(features @ slopes, expected, atol=5e-3)


def test_rotation_makes_moments_the_identity_and_the_penalty_diagonal():
    rng = np.random.default_rng(2)
    z = (rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3))).astype(np.float32)
    basis = make_basis(z, num_knots=8)
    bends, rotation = rotate(basis, z)
    rotated = basis(z, rotation).astype(float)
    np.testing.assert_allclose(rotated.T @ rotated / 500, np.eye(len(bends)), atol=0.01)
    penalty = rotation.T @ basis.penalty @ rotation
    np.testing.assert_allclose(penalty, np.diag(bends), atol=1e-6 * bends.max())
