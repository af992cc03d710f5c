"""What networks agree on: known subspaces, a few that are lost, any covariance."""

import numpy as np
import pytest
from pns_models._subspaces import common_subspace, weighed_directions


def angles(one, other, covariance):
    """Cosines of the angles between two spaces of combinations, as they vary."""
    root = np.linalg.cholesky(covariance).T
    bases = [np.linalg.qr(root @ part)[0] for part in (one, other)]
    return np.linalg.svd(bases[0].T @ bases[1])[1]


@pytest.fixture
def covariance():
    factor = np.random.default_rng(0).normal(size=(8, 6))
    return factor.T @ factor


def test_most_networks_win_over_those_that_are_lost(covariance):
    """Six of ten are near the true plane, each in coordinates of its own."""
    rng = np.random.default_rng(1)
    true = rng.normal(size=(6, 2))
    near = [
        (true + 0.01 * rng.normal(size=(6, 2))) @ rng.normal(size=(2, 2))
        for _ in range(6)
    ]
    lost = [rng.normal(size=(6, 2)) for _ in range(4)]
    found = common_subspace(np.stack(near + lost), covariance)
    assert angles(found, true, covariance).min() > 0.999
    np.testing.assert_allclose(found.T @ covariance @ found, np.eye(2), atol=1e-8)


def test_columns_that_do_not_vary_are_left_out(covariance):
    """The last two are constant, and equal combinations of others."""
    wide = np.zeros((8, 8))
    wide[:6, :6] = covariance
    kernels = np.random.default_rng(2).normal(size=(3, 8, 1))
    kernels[:, :6] = kernels[:1, :6]
    found = common_subspace(kernels, wide)
    np.testing.assert_allclose(found[6:], 0, atol=1e-12)
    assert angles(found[:6], kernels[0, :6], covariance)[0] > 1 - 1e-9


def test_weighed_directions_are_the_principal_ones_of_all_kernels():
    """The singular vectors of all first layers side by side."""
    rng = np.random.default_rng(0)
    kernels = rng.normal(size=(6, 5, 4)) * np.array([3, 2, 1, 0.01, 1])[:, None]
    found = weighed_directions(kernels)
    side_by_side = np.concatenate(list(kernels), axis=1) / np.sqrt(6)
    vectors, lengths, _ = np.linalg.svd(side_by_side, full_matrices=False)
    assert found.shape == (5, 4)  # the fourth covariate hardly counts
    order = np.argsort(-np.linalg.norm(found, axis=0))
    np.testing.assert_allclose(
        np.abs(found[:, order]), np.abs(vectors * lengths)[:, :4], atol=1e-10
    )


def test_one_direction_is_kept_if_many_covariates_are_weighed_alike():
    kernels = np.random.default_rng(0).normal(size=(40, 200, 60))
    assert weighed_directions(kernels).shape == (200, 1)
