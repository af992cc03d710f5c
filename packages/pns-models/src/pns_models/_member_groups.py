"""Groups of members: as many for each fold, trained by one recipe and one program.

Training runs in chunks, with an evaluation after each. Weights, folds and keys of the
members follow from the group's key, so a checkpoint keeps only what training changes.
"""

import functools
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray

from pns_models._batches import numpy_rng
from pns_models._checkpoints import Row, RunCheckpoints
from pns_models._data import Counts, flat_weights
from pns_models._errors import DivergedError
from pns_models._folds import FoldedCounts
from pns_models._links import log_probabilities
from pns_models._members import (
    MemberProgram,
    Members,
    draw_weights,
    make_cells,
    member_raw,
)
from pns_models._network import NetworkConfig
from pns_models._optimizer import Optimizer, make_optimizer
from pns_models._placement import State, changing, place_members
from pns_models._recipe import Recipe

_ROWS = 8192  # rows whose raw numbers are made at a time
_CHUNKS = 10  # of training, with an evaluation after each
_EVAL_ROWS = 4096  # of an evaluation while training, at most
_log_probabilities = jax.jit(log_probabilities, static_argnums=1)


class MemberGroup(NamedTuple):
    """Members of one recipe after training.

    Attributes:
      recipe: of every member.
      structure: of a member's network.
      params: of all members, stacked.
      fold: the one that each member did not see.
      history: step, training and held-out loss after each chunk.
    """

    recipe: Recipe
    structure: nnx.GraphDef
    params: Any
    fold: Int[Array | np.ndarray, " m"]
    history: list[Row]


def train_group(
    key: PRNGKeyArray,
    folded: FoldedCounts,
    z: Float[Array, "n d"],
    recipe: Recipe,
    members_per_fold: int,
    checkpoints: RunCheckpoints,
    checkpoint_seconds: float,
    progress: bool,
    mesh: Mesh | None = None,
) -> MemberGroup:
    """Trains some members for each fold.

    Args:
      key: decides initialization, bootstrap weights and batches.
      folded: the data.
      z: its covariates, standardized.
      recipe: of every member.
      members_per_fold: at least 1.
      checkpoints: of this group alone.
      checkpoint_seconds: least time between two of them.
      progress: show a bar; never shown off a terminal.
      mesh: of the devices, from `make_mesh`; None takes what there is.

    Raises:
      DivergedError: if a loss is not finite.
    """
    config = recipe.training
    assert config.max_steps is not None and config.batch_size is not None
    program, members = _make_members(key, folded, z.shape[1], recipe, members_per_fold)
    cells = make_cells(folded, z, config.batch_size)
    some, some_z = some_rows(folded, z, _EVAL_ROWS)
    state, rows = checkpoints.restore(changing(members))
    state = jax.tree.map(np.asarray, state)  # whose parts are cut without compilation
    group = MemberGroup(recipe, program.structure, state[0], members.fold, rows)
    placed = place_members(mesh, program, _changed(members, state), cells)
    step, saved = int(state[2][0]), time.monotonic()
    show = progress and sys.stderr.isatty()
    bar = tqdm.tqdm(total=config.max_steps, initial=step, disable=not show, unit="step")
    with bar:
        while step < config.max_steps:
            size = min(-(-config.max_steps // _CHUNKS), config.max_steps - step)
            losses = placed.train(size)
            step += size
            state = placed.state()
            _check_finite(step, losses, state[0])
            group = group._replace(params=state[0])
            loss = float(losses.mean(dtype=np.float64))
            held_out = held_out_loss(group, some, some_z)
            rows.append((step, loss, held_out))
            bar.update(size)
            bar.set_postfix(loss=f"{loss:.4f}", held_out=f"{held_out:.4f}")
            if time.monotonic() - saved >= checkpoint_seconds:
                checkpoints.save(step, state, rows)
                saved = time.monotonic()
    checkpoints.save(step, state, rows)
    checkpoints.close()
    return group


def _make_members(
    key: PRNGKeyArray,
    folded: FoldedCounts,
    num_covariates: int,
    recipe: Recipe,
    members_per_fold: int,
) -> tuple[MemberProgram, Members]:
    """Draws initial members and their weights."""
    keys = jax.random.split(key, 3)
    num_members = folded.num_folds * members_per_fold
    config = recipe.training
    assert config.max_steps is not None
    shapes = nnx.eval_shape(lambda: recipe.network.make(keys[0], num_covariates))
    structure = nnx.split(shapes)[0]
    optimizer = make_optimizer(config, config.max_steps)
    states = [
        _first_state(recipe.network, optimizer, num_covariates, key)
        for key in jax.random.split(keys[0], num_members)
    ]
    params, moments = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
    fold = np.tile(np.arange(folded.num_folds), members_per_fold)
    members = Members(
        params=params,
        optimizer=moments,
        step=np.zeros(num_members, np.int32),
        fold=np.asarray(fold, np.int32),
        key=jax.random.split(keys[1], num_members),
        weights=draw_weights(numpy_rng(keys[2]), folded, fold),
    )
    return MemberProgram(structure, optimizer), members


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _first_state(
    network: NetworkConfig, optimizer: Optimizer, num_covariates: int, key: PRNGKeyArray
) -> tuple[Any, Any]:
    """Draws the parameters of one member, and starts its optimizer."""
    params = nnx.split(network.make(key, num_covariates))[1]
    return params, optimizer.transformation().init(params)


def _changed(members: Members, state: State) -> Members:
    """Puts back what `changing` picked."""
    params, optimizer, step = state
    return members._replace(params=params, optimizer=optimizer, step=step)


def _check_finite(step: int, losses: Float[np.ndarray, "m size"], params: Any) -> None:
    """Raises if training diverged; the last step shows in the parameters alone."""
    leaves = [losses, *jax.tree.leaves(params)]
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise DivergedError(
            f"the loss is not finite after {step} steps; try a smaller learning_rate."
        )


def some_rows(
    folded: FoldedCounts, z: Float[Array, "n d"], size: int
) -> tuple[FoldedCounts, Float[Array, "some d"]]:
    """Picks at most `size` rows of all folds."""
    some = slice(None, None, -(-len(folded.fold) // size))
    counts = Counts(*(np.asarray(part)[some] for part in folded.counts))
    return FoldedCounts(counts, folded.fold[some], folded.cell[some]), z[some]


def held_out_raw(
    group: MemberGroup, folded: FoldedCounts, z: Float[Array, "n d"]
) -> Float[np.ndarray, "members_per_fold n 6"]:
    """Collects each row's raw numbers from the members that did not see it."""
    by_fold = members_by_fold(group)
    parts, start = [], 0
    for raw in raw_blocks(group, z):
        count = raw.shape[1]
        mine = by_fold[folded.fold[start : start + count]]  # [count, members_per_fold]
        parts.append(raw[mine.T, np.arange(count)])
        start += count
    return np.concatenate(parts, axis=1)


def fold_means(
    group: MemberGroup, z: Float[Array, "n d"]
) -> Float[np.ndarray, "num_folds n 6"]:
    """Averages the raw numbers of the members that did not see a fold, for every row."""
    by_fold = members_by_fold(group)
    parts = [raw[by_fold].mean(axis=1) for raw in raw_blocks(group, z)]
    return np.concatenate(parts, axis=1)


def members_by_fold(group: MemberGroup) -> Int[np.ndarray, "num_folds size"]:
    """Lists the members that did not see each fold."""
    fold = np.asarray(group.fold)
    return np.stack([np.flatnonzero(fold == j) for j in range(fold.max() + 1)])


def raw_blocks(
    group: MemberGroup, z: Float[Array, "n d"]
) -> Iterator[Float[np.ndarray, "m count 6"]]:
    """Yields the raw numbers of all members, some rows at a time."""
    for start in range(0, len(z), _ROWS):
        block = z[start : start + _ROWS]
        count = len(block)
        filled = jnp.pad(block, ((0, min(_ROWS, len(z)) - count), (0, 0)))
        yield np.asarray(member_raw(group.structure, group.params, filled))[:, :count]


def held_out_loss(
    group: MemberGroup, folded: FoldedCounts, z: Float[Array, "n d"]
) -> float:
    """Computes the loss of all units by the mean of the members that did not see them."""
    raw = held_out_raw(group, folded, z).mean(axis=0)
    logs = _log_probabilities(raw, "anchored")
    weights = flat_weights(folded.counts).astype(np.float64)
    total = 0.0
    for part, values in zip((weights[:, :4], weights[:, 4:]), logs, strict=True):
        values = np.asarray(values, np.float64).reshape(-1, 4)
        units = float(part.sum()) or 1.0  # some rows may hold none of a source
        total -= float((part * values).sum()) / units
    return total


def join_groups(first: MemberGroup, second: MemberGroup) -> MemberGroup:
    """Puts two groups of the same recipe into one, with the history of the second."""
    params, fold = jax.tree.map(
        lambda *leaves: np.concatenate(leaves),
        (first.params, first.fold),
        (second.params, second.fold),
    )
    return second._replace(params=params, fold=fold)
