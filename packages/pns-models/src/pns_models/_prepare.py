"""A run as data: what is compiled, what it reads, and the state it starts from."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from pns_models._batches import Batches
from pns_models._data import Counts, flat_weights
from pns_models._network import Network
from pns_models._noise import make_noise_table, row_directions
from pns_models._optimizer import make_optimizer
from pns_models._recipe import TrainConfig
from pns_models._step import Program, RunState, StepKeys, TrainingData

_EVAL_ROWS = 32_768


class RunKeys(NamedTuple):
    """Randomness of a run, by purpose."""

    network: PRNGKeyArray
    split: PRNGKeyArray
    batches: PRNGKeyArray
    indices: PRNGKeyArray
    noise: PRNGKeyArray


class HeldOut(NamedTuple):
    """Rows that training does not see, in blocks of one shape."""

    blocks: list[tuple[Float[Array, "n d"], Float[Array, "n counts"]]]
    totals: Float[Array, "2"]


class Run(NamedTuple):
    """What does not change during a run."""

    config: TrainConfig
    program: Program
    fixed: Any  # variables of the network that do not learn
    data: TrainingData
    keys: StepKeys
    batches: Batches | None  # None: every step sees all rows
    held_out: HeldOut
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
        data = _with_noise(data, network, weights, keys.noise, size)
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
        keys=StepKeys(indices=keys.indices, noise=keys.noise),
        batches=batches,
        held_out=HeldOut(_make_blocks(held_out), _totals(held_out)),
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


def _with_noise(
    data: TrainingData,
    network: Network,
    weights: Float[np.ndarray, "n counts"],
    key: PRNGKeyArray,
    batch_size: int,
) -> TrainingData:
    table = make_noise_table(weights)
    directions = None
    if batch_size == len(weights):
        directions = row_directions(network, key, jnp.arange(len(weights)))
    return data._replace(
        quantiles=jnp.asarray(table.quantiles),
        which=jnp.asarray(table.which),
        directions=directions,
    )


def _make_blocks(
    counts: Counts,
) -> list[tuple[Float[Array, "n d"], Float[Array, "n counts"]]]:
    """Cuts rows into blocks of one shape; the last is filled with empty rows."""
    if not len(counts.z):
        return []
    z, weights = counts.z, flat_weights(counts)
    size = min(_EVAL_ROWS, len(z))
    missing = -len(z) % size
    z = np.concatenate([z, np.zeros((missing, z.shape[1]), z.dtype)])
    weights = np.concatenate(
        [weights, np.zeros((missing, weights.shape[1]), weights.dtype)]
    )
    return [
        (jnp.asarray(z[i : i + size]), jnp.asarray(weights[i : i + size]))
        for i in range(0, len(z), size)
    ]


def _totals(counts: Counts) -> Float[Array, "2"]:
    return jnp.array([np.asarray(part, np.float64).sum() for part in counts[1:]])
