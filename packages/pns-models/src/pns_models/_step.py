"""A run as data, and the compiled part of training: a chunk of steps, an evaluation.

Everything is a pure function of a program, a state and data. Programs compare by value,
optimizers included, so a second run of the same network, settings and shapes compiles
nothing.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int, PRNGKeyArray

from pns_models._batches import (
    Batch,
    Batches,
    make_noise_table,
    noisy_weights,
    row_directions,
)
from pns_models._data import Counts, flat_weights
from pns_models._links import loss_by_index
from pns_models._network import Kernel, Network
from pns_models._recipe import TrainConfig

_EVAL_ROWS = 32_768


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Settings of Adam with decoupled weight decay."""

    learning_rate: float  # at the first step
    weight_decay: float  # of the variables of type `Kernel`; 0 is plain Adam.
    # Steps of a cosine decay of the learning rate to zero; None keeps it.
    decay_steps: int | None

    def transformation(self) -> optax.GradientTransformation:
        """Makes optax's transformation."""
        rate: Any = self.learning_rate
        if self.decay_steps is not None:
            rate = optax.cosine_decay_schedule(rate, self.decay_steps)
        if self.weight_decay == 0:
            return optax.adam(rate)
        return optax.adamw(rate, weight_decay=self.weight_decay, mask=decays)


def make_optimizer(config: TrainConfig, num_steps: int) -> Optimizer:
    """Takes an optimizer's settings from those of a training."""
    return Optimizer(
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        decay_steps=num_steps if config.schedule == "cosine" else None,
    )


def decays(params: Any) -> Any:
    """Says of each parameter in a tree of variables whether it decays: by its type."""
    return jax.tree.map(
        lambda variable: jax.tree.map(lambda _: isinstance(variable, Kernel), variable),
        params,
        is_leaf=lambda node: isinstance(node, nnx.Variable),
    )


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


class RunKeys(NamedTuple):
    """Randomness of a run, by purpose; folded with the step, or with the row for noise."""

    network: PRNGKeyArray
    split: PRNGKeyArray
    batches: PRNGKeyArray
    indices: PRNGKeyArray
    noise: PRNGKeyArray


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


def train_step(
    program: Program,
    state: RunState,
    fixed: Any,
    data: TrainingData,
    keys: RunKeys,
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
    keys: RunKeys,
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


class Run(NamedTuple):
    """What does not change during a run."""

    config: TrainConfig
    program: Program
    fixed: Any  # variables of the network that do not learn
    data: TrainingData
    keys: RunKeys
    batches: Batches | None  # None: every step sees all rows
    # Rows that training does not see, in blocks of one shape, and units of each source.
    held_out: list[tuple[Float[Array, "n d"], Float[Array, "n counts"]]]
    held_out_totals: Float[Array, "2"]
    num_steps: int


def make_run(
    network: Network,
    config: TrainConfig,
    train: Counts,
    held_out: Counts,
    keys: RunKeys,
) -> tuple[Run, RunState]:
    """Prepares a run and its first state; covariates are standardized already."""
    structure, params, fixed = nnx.split(network, nnx.Param, ...)
    num_rows = len(train.z)
    size = min(config.batch_size or num_rows, num_rows)
    visits = (config.epochs or 0) * num_rows
    num_steps = config.max_steps or -(-visits // size)
    weights = flat_weights(train)
    # A batch stands for all rows, so totals are compared with its share of them.
    data = TrainingData(
        z=jnp.asarray(train.z),
        weights=jnp.asarray(weights),
        totals=_totals(train) * (size / num_rows),
    )
    if config.data_noise != "none" and network.is_epistemic:
        table, directions = make_noise_table(weights), None
        if size == num_rows:
            directions = row_directions(network, keys.noise, jnp.arange(num_rows))
        data = data._replace(**jax.tree.map(jnp.asarray, table._asdict()))
        data = data._replace(directions=directions)
    batches = None  # a batch of all rows needs no shuffling
    if size < num_rows:
        may_merge = data.quantiles is None
        batches = Batches(keys.batches, train.z, weights, size, may_merge)
    optimizer = make_optimizer(config, num_steps)
    run = Run(
        config=config,
        program=Program(structure, optimizer, config.num_indices),
        fixed=fixed,
        data=data,
        keys=keys,
        batches=batches,
        held_out=_make_blocks(held_out),
        held_out_totals=_totals(held_out),
        num_steps=num_steps,
    )
    return run, RunState(
        params=params,
        optimizer=optimizer.transformation().init(params),
        best_params=params,
        # With their types, so that a restored state is the same input to the program.
        best_loss=jnp.asarray(jnp.inf, jnp.float32),
        waited=jnp.asarray(0, jnp.int32),
        step=jnp.asarray(0, jnp.int32),
    )


def _make_blocks(
    counts: Counts,
) -> list[tuple[Float[Array, "n d"], Float[Array, "n counts"]]]:
    """Cuts rows into blocks of one shape; the last is filled with empty rows."""
    if not len(counts.z):
        return []
    z, weights = counts.z, flat_weights(counts)
    size = min(_EVAL_ROWS, len(z))
    missing = ((0, -len(z) % size), (0, 0))
    z, weights = np.pad(z, missing), np.pad(weights, missing)
    return [
        (jnp.asarray(z[i : i + size]), jnp.asarray(weights[i : i + size]))
        for i in range(0, len(z), size)
    ]


def _totals(counts: Counts) -> Float[Array, "2"]:
    return jnp.array([np.asarray(part, np.float64).sum() for part in counts[1:]])
