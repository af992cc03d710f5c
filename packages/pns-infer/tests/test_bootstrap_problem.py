"""Descriptions of a bootstrap: equal by value, wrong ones refused."""

import dataclasses

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
    logistic_nll,
    logistic_outputs,
)


def test_problems_of_the_same_functions_are_equal_and_hash_alike():
    again = pi.BootstrapProblem(
        pi.TwoStage(anchored_features, anchored_head), frozen_nll=anchored_frozen_nll
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
    with pytest.raises(pb.InputError, match="outputs must be a TwoStage"):
        pi.BootstrapProblem(logistic_outputs, nll=logistic_nll, scope="last_layer")
    with pytest.raises(pb.InputError, match="scope must be one of"):
        pi.BootstrapProblem(NETWORK, nll=logistic_nll, scope="head")
    with pytest.raises(pb.InputError, match="columns need a trial"):
        columns = pi.CountColumns(trial=(0, 0), source=(0,))
        pi.BootstrapProblem(logistic_outputs, nll=logistic_nll, columns=columns)


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
