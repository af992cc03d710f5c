"""What decays is said by the type of a variable, and the schedule ends at zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from flax import nnx
from pns_models._optimizer import Optimizer, decays, make_optimizer

pytestmark = pytest.mark.usefixtures("quick_compilation")

KINDS = ["anchored", "s_learner", "t_learner", "hypermodel", "epinet", "ensemble"]


def is_predicting_kernel(path) -> bool:
    """Says by its place what decays: kernels, but not what makes draws differ.

    The hypermodel's generated output is `learner.kernel`, no member of `kernels`.
    """
    return "kernels" in path and "head" not in path


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_that_predict_decay_and_nothing_else(small, kind):
    params = nnx.state(small.network(kind), nnx.Param)
    params = jax.tree.map(jnp.ones_like, params)
    tx = Optimizer(0.1, 0.5, None).transformation()
    still = jax.tree.map(jnp.zeros_like, params)
    updates, _ = tx.update(still, tx.init(params), params)
    moved = set()
    for path, update in nnx.to_flat_state(updates):
        expected = -0.05 if is_predicting_kernel(path) else 0.0
        np.testing.assert_allclose(update[...], expected, atol=1e-7)
        moved.add(expected)
    assert moved == {-0.05, 0.0}


def test_a_type_decides_and_a_name_does_not():
    class Odd(nnx.Module):
        def __init__(self):
            self.kernels = nnx.Param(jnp.ones(2))
            self.head = pm.Kernel(jnp.ones(2))

    mask = decays(nnx.state(Odd()))
    assert nnx.to_pure_dict(mask) == {"kernels": False, "head": True}


def test_settings_are_taken_from_a_training():
    config = pm.TrainConfig(learning_rate=0.3, weight_decay=0.2)
    assert make_optimizer(config, 10) == Optimizer(0.3, 0.2, None)
    # The number of steps is part of the program only if the schedule needs it.
    assert make_optimizer(config, 10) == make_optimizer(config, 20)
    cosine = pm.TrainConfig(schedule="cosine")
    assert make_optimizer(cosine, 10) != make_optimizer(cosine, 20)


def test_the_cosine_schedule_ends_at_zero():
    params = {"w": jnp.ones(2)}
    tx = Optimizer(0.01, 0.0, 10).transformation()
    state = tx.init(params)
    sizes = []
    for _ in range(11):
        updates, state = tx.update(params, state, params)
        sizes.append(float(-updates["w"][0]))
    np.testing.assert_allclose(sizes[0], 0.01, rtol=1e-4)
    np.testing.assert_allclose(sizes[5], 0.005, rtol=1e-3)
    np.testing.assert_allclose(sizes[10], 0, atol=1e-9)
