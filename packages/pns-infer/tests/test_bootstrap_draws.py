"""Draws at new points: linear in the shifts, from memory or from disk."""

import chex
import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from bootstrap_examples import ANCHORED, NETWORK, anchored_data, solve_anchored
from pns_infer.bootstrap.draws import shifted_values


def test_draws_are_compiled_once_for_all_calls():
    @chex.assert_max_traces(n=1)
    def line(params, z):
        return z @ params

    shifts, z = np.eye(3, dtype=np.float32), np.ones((5, 3), np.float32)
    ones, fours = (
        shifted_values(line, np.full(3, c, np.float32), shifts, z) for c in (0, 1)
    )
    np.testing.assert_allclose(ones, 1)
    np.testing.assert_allclose(fours, 4)


def test_a_last_block_of_fewer_points_compiles_nothing():
    @chex.assert_max_traces(n=1)
    def line(params, z):
        return z @ params

    shifts, z = np.eye(3, dtype=np.float32), np.ones((64, 3), np.float32)
    for count in (64, 33):
        drawn = shifted_values(line, np.zeros(3, np.float32), shifts, z[:count])
        np.testing.assert_array_equal(drawn, np.ones((3, count)))


def test_draws_are_the_derivative_along_the_shift():
    result = solve_anchored()
    params, z, _ = anchored_data()
    vector, unravel = jax.flatten_util.ravel_pytree(params)
    drawn = result.draws(z[:5])
    chex.assert_shape(drawn, (4, 5, 6))
    for shift, draw in zip(result.shifts, drawn, strict=True):
        step = 1e-2
        ahead, behind = (
            NETWORK(unravel(vector + s * shift), z[:5]) for s in (step, -step)
        )
        slope = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(draw, NETWORK(params, z[:5]) + slope, atol=1e-3)


@pytest.mark.parametrize("scope", ["full", "last_layer"])
def test_shifts_from_disk_give_the_same_draws(scope, tmp_path):
    result = solve_anchored(scope)
    params, z, _ = anchored_data()
    np.save(tmp_path / "shifts.npy", result.shifts)
    shifts = np.load(tmp_path / "shifts.npy")
    drawn = pi.bootstrap_draws(ANCHORED[scope], params, shifts, z[:7])
    np.testing.assert_array_equal(drawn, result.draws(z[:7]))
    inputs = NETWORK.features(params[0], z[:7]) if scope == "last_layer" else z[:7]
    moving = params[1] if scope == "last_layer" else params
    by_hand = shifted_values(ANCHORED[scope].function, moving, shifts, inputs)
    np.testing.assert_allclose(drawn, by_hand, atol=1e-5)


def test_chunks_of_points_change_nothing():
    result = solve_anchored()
    _, z, _ = anchored_data()
    whole = result.draws(z[:7])
    np.testing.assert_allclose(result.draws(z[:7], points_per_chunk=3), whole, 1e-5)


def test_a_function_may_return_a_tree():
    result = solve_anchored()
    _, z, _ = anchored_data()

    def parts(params, z):
        raw = NETWORK(params, z)
        return {"joint": raw[:, :4], "delta": raw[:, 4:]}

    drawn = result.draws(z[:3], parts)
    whole = result.draws(z[:3])
    chex.assert_trees_all_close(
        drawn, {"joint": whole[..., :4], "delta": whole[..., 4:]}, atol=1e-6
    )


def test_shifts_of_other_parameters_are_refused():
    params, z, _ = anchored_data()
    with pytest.raises(pb.InputError, match=r"shape \[num_draws, 42\].* got \[2, 5\]"):
        shifted_values(NETWORK, params, np.zeros((2, 5)), z)
