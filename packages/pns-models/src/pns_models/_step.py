"""The compiled part of training: a step, a chunk of steps, an evaluation.

Everything is a pure function of a program, a state and data. Programs compare by value, so
a second run of the same network, settings and shapes compiles nothing.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import optax
from flax import nnx
from jaxtyping import Array, Float, Int, PRNGKeyArray

from pns_models._batches import Batch
from pns_models._loss import loss_by_index
from pns_models._network import Network
from pns_models._noise import noisy_weights, row_directions
from pns_models._optimizer import Optimizer


@dataclasses.dataclass(frozen=True)
class Program:
    """What is compiled."""

    structure: nnx.GraphDef  # of the network
    optimizer: Optimizer  # its settings
    num_indices: int  # per step and per evaluation

    def network(self, params: Any, fixed: Any) -> Network:
        """Puts parameters into the network."""
        return nnx.merge(self.structure, params, fixed)


class RunState(NamedTuple):
    """What a run changes, and a checkpoint keeps."""

    params: Any
    optimizer: Any
    best_params: Any
    best_loss: Float[Array, ""]
    waited: Int[Array, ""]  # evaluations since the best one
    step: Int[Array, ""]


class TrainingData(NamedTuple):
    """What a step reads; everything but `totals` and `quantiles` by row."""

    z: Float[Array, "n d"]  # standardized covariates
    # Of the eight log-probabilities of a row in the loss.
    weights: Float[Array, "n counts"]
    totals: Float[Array, "2"]  # units of each source that a batch stands for
    # Of the data noise, if there is any; `which` and `directions` with it.
    quantiles: Float[Array, "num_counts num_scores"] | None = None
    # The row of `quantiles` for each weight.
    which: Int[Array, "n counts"] | None = None
    # Of the noise; None if they are drawn for each batch.
    directions: Float[Array, "n counts i"] | None = None


class StepKeys(NamedTuple):
    """Randomness of the steps; folded with the step, or with the row for noise."""

    indices: PRNGKeyArray
    noise: PRNGKeyArray


def train_step(
    program: Program,
    state: RunState,
    fixed: Any,
    data: TrainingData,
    keys: StepKeys,
    batch: Batch | None,
) -> tuple[RunState, Float[Array, ""]]:
    """Takes one step; a batch of None is all rows."""
    network = program.network(state.params, fixed)
    key = jax.random.fold_in(keys.indices, state.step)
    indices = network.training_indices(key, program.num_indices)
    z, weights = batch_rows(network, data, keys.noise, indices, batch)

    def loss(params: Any) -> Float[Array, ""]:
        raw = program.network(params, fixed).raw(z, indices)
        losses = loss_by_index(raw, weights, data.totals, network.link, training=True)
        return losses.mean()

    value, gradient = jax.value_and_grad(loss)(state.params)
    updates, optimizer = program.optimizer.transformation().update(
        gradient, state.optimizer, state.params
    )
    params = optax.apply_updates(state.params, updates)
    state = state._replace(params=params, optimizer=optimizer, step=state.step + 1)
    return state, value


def batch_rows(
    network: Network,
    data: TrainingData,
    noise_key: PRNGKeyArray,
    indices: Float[Array, "s i"],
    batch: Batch | None,
) -> tuple[Float[Array, "b d"], Float[Array, "*s b counts"]]:
    """Returns covariates and weights of a batch; with data noise weights by index."""
    z, weights, which, directions = data.z, data.weights, data.which, data.directions
    if batch is not None:
        z = z[batch.rows]
        weights = weights[batch.rows] if batch.weights is None else batch.weights
    if data.quantiles is None:
        return z, weights
    assert which is not None
    if batch is not None:
        which = which[batch.rows]
        directions = row_directions(network, noise_key, batch.rows)
    assert directions is not None
    return z, noisy_weights(data.quantiles, which, directions, indices)


@functools.partial(jax.jit, static_argnums=(0, 1))
def train_chunk(
    program: Program,
    num_steps: int,
    state: RunState,
    fixed: Any,
    data: TrainingData,
    keys: StepKeys,
    batches: Batch | None,
) -> tuple[RunState, Float[Array, " num_steps"]]:
    """Takes steps one after the other; batches are stacked, or None for all rows."""

    def step(carry: RunState, batch: Batch | None) -> tuple[RunState, Float[Array, ""]]:
        return train_step(program, carry, fixed, data, keys, batch)

    return jax.lax.scan(step, state, batches, length=num_steps)


@functools.partial(jax.jit, static_argnums=0)
def evaluate_block(
    program: Program,
    params: Any,
    fixed: Any,
    z: Float[Array, "n d"],
    weights: Float[Array, "n counts"],
    totals: Float[Array, "2"],
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """Computes what some held-out rows add to the held-out loss."""
    network = program.network(params, fixed)
    indices = network.training_indices(key, program.num_indices)
    raw = network.raw(z, indices)
    return loss_by_index(raw, weights, totals, network.link).mean()
