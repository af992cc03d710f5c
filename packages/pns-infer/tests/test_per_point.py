"""Shared solves against the paper's algorithm, which solves for every point."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from bootstrap_examples import NETWORK, anchored_head, anchored_logs, solve_anchored
from pns_infer.bootstrap.per_point import per_point_draws


def mu_of_network(params, z):
    raw = NETWORK(params, z)
    return jnp.exp(anchored_logs(raw, raw)[:, 4:])


def mu_of_head(params, features):
    raw = anchored_head(params, features)
    return jnp.exp(anchored_logs(raw, raw)[:, 4:])


@pytest.mark.parametrize(
    "scope, curvature, direct_up_to, function",
    [
        ("full", "ggn", 8000, mu_of_network),
        ("full", "ggn", 0, mu_of_network),
        ("full", "estimating_equation", 0, mu_of_network),
        ("last_layer", "estimating_equation", 8000, mu_of_head),
        ("last_layer", "ggn", 8000, None),
    ],
)
def test_shared_solves_equal_the_per_point_algorithm(
    scope, curvature, direct_up_to, function
):
    result = solve_anchored(scope, curvature, damping=0.2, direct_up_to=direct_up_to)
    points = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    shared = result.draws(points, function)
    single = per_point_draws(result, points, function)
    chex.assert_equal_shape([shared, single])
    # Conjugate gradients reach 1e-6 in float32, GMRES does not.
    loose = (scope, curvature) == ("full", "estimating_equation")
    tolerance = (1e-3 if loose else 2e-4) * np.abs(shared).max()
    np.testing.assert_allclose(shared, single, atol=tolerance)
    assert np.std(shared, axis=0).min() > 1e-4
