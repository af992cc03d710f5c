"""What is bootstrapped: equal by value, checked at the door, scores by definition."""

import dataclasses

import chex
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from bootstrap_examples import (
    ANCHORED,
    NETWORK,
    anchored_data,
    anchored_features,
    anchored_frozen_nll,
    anchored_head,
    column_sizes,
    dense_scores,
    logistic_nll,
    logistic_outputs,
    solve_anchored,
)
from pns_infer.bootstrap import problem as _problem


def test_problems_of_the_same_functions_are_equal_and_hash_alike():
    again = pi.BootstrapProblem(
        (anchored_features, anchored_head), frozen_nll=anchored_frozen_nll
    )
    assert again == ANCHORED["full"] and hash(again) == hash(ANCHORED["full"])
    assert again is not ANCHORED["full"]
    assert again != ANCHORED["last_layer"]
    assert hash(pi.SolveConfig()) == hash(pi.SolveConfig())
    assert pi.SolveConfig() != pi.SolveConfig(damping=1.0)


def test_two_stages_are_a_function_of_the_pair_of_parameters():
    (body, head), z, _ = anchored_data()
    expected = np.tanh(z @ np.asarray(body)) @ np.asarray(head[0]) + head[1]
    found = NETWORK((body, head), jnp.asarray(z))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert ANCHORED["full"].function == NETWORK
    assert ANCHORED["last_layer"].function is anchored_head


def test_problems_that_cannot_be_solved_are_refused():
    with pytest.raises(pb.InputError, match="nll or frozen_nll must be given"):
        pi.BootstrapProblem(NETWORK)
    with pytest.raises(pb.InputError, match="nll or frozen_nll must be given"):
        dataclasses.replace(ANCHORED["full"], nll=logistic_nll)
    with pytest.raises(pb.InputError, match="outputs must be a pair"):
        pi.BootstrapProblem(logistic_outputs, nll=logistic_nll, scope="last_layer")
    with pytest.raises(pb.InputError, match="scope must be one of"):
        pi.BootstrapProblem(NETWORK, nll=logistic_nll, scope="head")
    with pytest.raises(pb.InputError, match="trial and source must have"):
        pi.BootstrapProblem(
            logistic_outputs, nll=logistic_nll, trial=(0, 0), source=(0,)
        )


@pytest.mark.parametrize(
    "option, expected",
    [
        ({"curvature": "newton"}, "curvature must be one of"),
        ({"damping": -1.0}, "damping must be at least 0"),
        ({"direct_up_to": -1}, "direct_up_to must be at least 0"),
        ({"preconditioner_rank": -1}, "preconditioner_rank must be at least 0"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"max_iterations": 0}, "max_iterations must be at least 1"),
        ({"rows_per_batch": 0}, "rows_per_batch must be at least 1"),
        ({"draws_per_batch": 0}, "draws_per_batch must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(option, expected):
    with pytest.raises(pb.InputError, match=expected):
        pi.SolveConfig(**option)


def test_cells_that_cannot_be_used_are_refused():
    _, z, counts = anchored_data()

    def check(z, counts):
        _problem.check_cells(jnp.asarray(z), jnp.asarray(counts), ANCHORED["full"])

    check(z, counts)
    with pytest.raises(pb.InputError, match=r"counts must have shape \[\d+, 8\]"):
        check(z, counts[:, :4])
    with pytest.raises(pb.InputError, match="not negative"):
        check(z, -counts)
    with pytest.raises(pb.InputError, match="z must be finite"):
        check(z * np.nan, counts)
    with pytest.raises(pb.InputError, match="of source 1 are all 0"):
        check(z, np.where(np.arange(8) < 4, counts, 0))


def test_batches_hold_every_cell_once_and_then_empty_ones():
    params, z, counts = anchored_data()
    batches = _problem.make_equation(
        ANCHORED["full"], params, jnp.asarray(z), jnp.asarray(counts), batch=64
    )
    chex.assert_shape([batches.inputs, batches.counts], [(3, 64, 3), (3, 64, 8)])
    np.testing.assert_array_equal(batches.inputs.reshape(-1, 3)[: len(z)], z)
    np.testing.assert_array_equal(batches.counts.reshape(-1, 8)[: len(z)], counts)
    assert not np.any(batches.counts.reshape(-1, 8)[len(z) :])
    chex.assert_tree_all_finite((batches.inputs, batches.counts, batches.sizes))
    totals = counts.sum(axis=0)
    np.testing.assert_allclose(batches.sizes[:4], totals[:4].sum())
    np.testing.assert_allclose(batches.sizes[4:], totals[4:].sum())


def test_the_sum_of_multiplied_scores_is_that_over_cells_and_columns():
    result = solve_anchored()
    _, z, counts = anchored_data()
    scores = _problem.multiplied_scores(result.equation, result.key, jnp.arange(4))
    for draw in range(4):
        normals = _problem.multipliers(result.key, result.equation, draw)[: len(z)]
        weights = np.sqrt(counts) * normals / column_sizes()
        expected = np.einsum("nc,ncp->p", weights, dense_scores())
        np.testing.assert_allclose(scores[draw], expected, rtol=1e-4, atol=1e-6)


def test_influences_are_scores_along_a_direction():
    result = solve_anchored()
    _, z, counts = anchored_data()
    direction = np.random.default_rng(0).standard_normal(dense_scores().shape[2])
    direction32 = jnp.asarray(direction, jnp.float32)
    found = _problem.influence(result.equation, direction32)
    expected = dense_scores() @ direction * np.sqrt(counts) / column_sizes()
    found = found.reshape(-1, 8)
    np.testing.assert_allclose(found[: len(z)], expected, rtol=1e-3, atol=1e-5)
    assert not np.any(found[len(z) :])
