"""Networks of a cross-fitted ensemble, trained side by side.

A step visits a few hundred cells, drawn in proportion to the units that the member sees in
them, and takes all the units of a cell at once: its cost does not depend on the number of
rows, and where many share their covariates their outcomes add no noise to it. Covariates
are standardized as they are visited, so no second copy of them is kept. All randomness is
a function of the member's key and the step; see `_resamples` for weights and entries.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray
from pns_bounds import BINARY

from pns_models._links import log_probabilities
from pns_models._network import map_networks
from pns_models._resamples import Resamples
from pns_models._standardizer import Standardizer
from pns_models._step import Optimizer

DATA = "data"  # axis of a mesh whose devices share the visits of a step
NO_DECAY = 2**31 - 1  # steps of a decay that no training reaches
_NUM_TICKETS = 2**30  # about; their running number must fit into int32


class Cells(NamedTuple):
    """What members visit."""

    z: Float[Array, "c d"]  # covariates of each cell
    # Of each of its counts, its number among the entries; those that are 0 share the
    # number behind the last.
    entry: Int[Array, "c counts"]
    # Running number, for each fold, of the tickets of cells in a draw among the units
    # outside it.
    tickets: Int[Array, "num_folds c"]
    # For each fold, the first ticket of each visit of a step, and the end.
    starts: Int[Array, "num_folds starts"]
    standardizer: Standardizer  # of the covariates, which are on the scale of the data


class MemberStates(NamedTuple):
    """Everything of the members, each with a leading axis over them."""

    params: Any  # of the networks
    optimizer: Any  # of the optimizer
    step: Int[Array | np.ndarray, " m"]  # taken so far
    # Those of a cosine decay of the learning rate to zero, see `NO_DECAY`.
    decay_steps: Int[Array | np.ndarray, " m"]
    fold: Int[Array | np.ndarray, " m"]  # the one a member does not see
    key: PRNGKeyArray  # of its batches
    # Of the entries at a visit; the last is 0.
    weights: Float[Array | np.ndarray, "m weights"]


@dataclasses.dataclass(frozen=True)
class MemberProgram:
    """What is compiled: equal programs are compiled once."""

    structure: nnx.GraphDef  # of a member's network
    optimizer: Optimizer  # its settings


def make_cells(
    resamples: Resamples, standardizer: Standardizer, batch_size: int
) -> Cells:
    """Lists the cells, and how to draw them."""
    folded = resamples.folded
    is_entry = resamples.total.reshape(-1, BINARY.num_counts) > 0
    entry = np.full(is_entry.shape, is_entry.sum(), np.int32)
    entry[is_entry] = np.arange(is_entry.sum())
    by_fold = range(folded.num_folds)
    tickets = np.stack([np.cumsum(_num_tickets(resamples.seen(j))) for j in by_fold])
    parts = np.arange(batch_size + 1)
    starts = np.stack([parts * int(last) // batch_size for last in tickets[:, -1]])
    return Cells(
        z=jax.device_put(resamples.z, may_alias=True),  # no copy if memory is aligned
        entry=jnp.asarray(entry),
        tickets=jnp.asarray(tickets, jnp.int32),
        starts=jnp.asarray(starts, jnp.int32),
        standardizer=jax.tree.map(jnp.asarray, standardizer),
    )


def _num_tickets(
    seen: Float[np.ndarray, "c sources treatments levels"],
) -> Int[np.ndarray, " c"]:
    """Computes how many tickets cells have: each source's share counts one half."""
    sources = seen.sum(axis=(2, 3))
    share = (sources / sources.sum(axis=0)).mean(axis=1)
    tickets = np.ceil(share * _NUM_TICKETS)  # no cell that was seen is without one
    return tickets.astype(np.int64)


def visit_weights(resamples: Resamples) -> Float[np.ndarray, "m weights"]:
    """Computes the members' weights of all entries at a visit.

    A member's weight is divided by those of its source and by the probability of a
    visit: the mean over visits estimates L_obs + L_exp of the units that it sees.
    """
    member_fold, source = resamples.member_fold, resamples.source
    result = np.zeros((len(member_fold), len(source) + 1), np.float32)
    for fold in range(resamples.folded.num_folds):
        tickets = _num_tickets(resamples.seen(fold))
        chance = (tickets / tickets.sum())[resamples.cell]
        for member in np.flatnonzero(member_fold == fold).tolist():
            weights = resamples.weights(member)
            visits = np.bincount(source, weights)[source] * chance
            result[member, :-1] = weights / np.maximum(visits, 1e-300)
    return result


def member_loss(
    network: Any,
    cells: Cells,
    places: Int[Array, " b"],
    weights: Float[Array | np.ndarray, " weights"],
) -> Float[Array, ""]:
    """Computes L_obs + L_exp of some visits."""
    raw = network.encode(cells.standardizer.compiled(cells.z[places]))
    # Visits lie along the last axis, where a CPU takes several at once.
    logs = jax.vmap(
        lambda one: log_probabilities(one, network.link, True), in_axes=-1, out_axes=-1
    )(raw.T)
    both = jnp.concatenate([part.reshape(BINARY.num_cells, -1) for part in logs])
    return -jnp.sum(weights[cells.entry[places]].T * both) / len(places)


def _draw_places(
    key: PRNGKeyArray, tickets: Int[Array, " c"], starts: Int[Array, " starts"]
) -> Int[Array, " b"]:
    """Draws one ticket from each of several equal parts, and finds its cell."""
    size = len(starts) - 1
    ticket = jax.random.randint(key, (size,), starts[:-1], starts[1:])
    places = jnp.searchsorted(tickets, ticket, side="right")
    if DATA in jax.sharding.get_abstract_mesh().axis_names:
        return jax.lax.with_sharding_constraint(places, PartitionSpec(DATA))
    return places


@functools.partial(jax.jit, static_argnums=0)
def train_members(
    program: MemberProgram,
    num_steps: Int[Array | np.ndarray, ""] | int,
    members: MemberStates,
    cells: Cells,
) -> tuple[MemberStates, Float[Array, " m"]]:
    """Takes steps of every member; returns the means of their losses, too.

    Numbers of steps are not compiled into the program, so that one program trains members
    that see all units and members that see a share, whose training is shorter.
    """
    transformation = program.optimizer.transformation()

    def one(member: MemberStates) -> tuple[MemberStates, Float[Array, ""]]:
        def step(_: Int[Array, ""], carry: tuple) -> tuple:
            params, optimizer, number, total = carry
            key = jax.random.fold_in(member.key, number)
            tickets, starts = cells.tickets[member.fold], cells.starts[member.fold]
            places = _draw_places(key, tickets, starts)

            def loss(params: Any) -> Float[Array, ""]:
                network = nnx.merge(program.structure, params)
                return member_loss(network, cells, places, member.weights)

            value, gradient = jax.value_and_grad(loss)(params)
            updates, optimizer = transformation.update(gradient, optimizer, params)
            decay = (1 + jnp.cos(jnp.pi * number / member.decay_steps)) / 2
            updates = jax.tree.map(lambda update: decay * update, updates)
            params = optax.apply_updates(params, updates)
            return params, optimizer, number + 1, total + value

        start = (member.params, member.optimizer, member.step, jnp.zeros(()))
        *found, total = jax.lax.fori_loop(0, num_steps, step, start)
        params, optimizer, number = found
        member = member._replace(params=params, optimizer=optimizer, step=number)
        return member, total / num_steps

    return map_networks(one, members)
