"""Members of a cross-fitted ensemble, trained side by side.

Each member has a fold that it does not see, and a random weight for every unit that it
does: Exp(1), which is a bootstrap. A step visits a few hundred units of each source,
drawn from the member's own data, so its cost does not depend on the number of rows.
An entry is a count that is not 0; a count of c is visited as c units are, each visit with
the mean of their weights.

All randomness is a function of the member's key and the step.
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

from pns_models._data import flat_weights
from pns_models._flat_network import map_networks
from pns_models._folds import FoldedCounts
from pns_models._links import log_probabilities
from pns_models._optimizer import Optimizer

# Of a source, unless it has more entries: float32 tells so many places apart.
_MOST_VISITS = 2**22


class Entries(NamedTuple):
    """The counts of one source that are not 0.

    Attributes:
      row: of the table of covariates.
      outcome: which of the source's four.
      ends: running number of visits outside each fold.
    """

    row: Int[Array, " e"]
    outcome: Int[Array, " e"]
    ends: Int[Array, "num_folds e"]


class Members(NamedTuple):
    """Everything of the members, each with a leading axis over them.

    Attributes:
      params: of the networks.
      optimizer: of the optimizer.
      step: taken so far.
      fold: the one a member does not see.
      key: of its batches.
      weights: for each source, of a visit to each entry.
    """

    params: Any
    optimizer: Any
    step: Int[Array, " m"]
    fold: Int[Array, " m"]
    key: PRNGKeyArray
    weights: tuple[Float[Array, "m e"], Float[Array, "m e"]]


@dataclasses.dataclass(frozen=True)
class MemberProgram:
    """What is compiled: equal programs are compiled once.

    Attributes:
      structure: of a member's network.
      optimizer: its settings.
      batch_size: visits per step, half of them to each source.
    """

    structure: nnx.GraphDef
    optimizer: Optimizer
    batch_size: int


def make_entries(folded: FoldedCounts) -> tuple[Entries, Entries]:
    """Lists the counts of both sources with their places."""
    weights = flat_weights(folded.counts)
    return (
        _entries_of(weights[:, :4], folded.fold, folded.num_folds),
        _entries_of(weights[:, 4:], folded.fold, folded.num_folds),
    )


def _entries_of(
    weights: Float[np.ndarray, "n 4"], fold: Int[np.ndarray, " n"], num_folds: int
) -> Entries:
    row, outcome = np.nonzero(weights)
    seen = fold[row][None] != np.arange(num_folds)[:, None]
    ends = np.cumsum(_num_visits(weights[row, outcome]) * seen, axis=1)
    return Entries(*(jnp.asarray(part, jnp.int32) for part in (row, outcome, ends)))


def _num_visits(counts: Float[np.ndarray, " e"]) -> Int[np.ndarray, " e"]:
    """How often entries are visited, relative to each other: their units, as integers.

    Very large counts are scaled down; the weights make up for it and for rounding.
    """
    scale = max(counts.sum(dtype=np.float64) / _MOST_VISITS, 1.0)
    return np.maximum(np.rint(counts / scale), 1).astype(np.int64)


def draw_weights(
    rng: np.random.Generator, folded: FoldedCounts, num_members: int
) -> tuple[Float[Array, "m e"], Float[Array, "m e"]]:
    """Draws the weight of a visit to each entry: the mean of its units' Exp(1) weights.

    A count of c units has Gamma(c, 1) in all. Over all visits to a source the expected
    weight is 1, also where counts are fractional.
    """
    weights = flat_weights(folded.counts)
    drawn = [
        _weights_of(rng, part[np.nonzero(part)], num_members)
        for part in (weights[:, :4], weights[:, 4:])
    ]
    return drawn[0], drawn[1]


def _weights_of(
    rng: np.random.Generator, counts: Float[np.ndarray, " e"], num_members: int
) -> Float[Array, "m e"]:
    visits = _num_visits(counts)
    per_visit = visits * (counts.sum(dtype=np.float64) / visits.sum())
    drawn = np.empty((num_members, len(counts)), np.float32)
    for weights in drawn:  # one after the other: draws are float64, and many
        weights[:] = rng.standard_gamma(counts) / per_visit
    return jnp.asarray(drawn)


def member_loss(
    network: Any,
    z: Float[Array, "n d"],
    entries: tuple[Entries, Entries],
    places: tuple[Int[Array, " b"], Int[Array, " b"]],
    weights: tuple[Float[Array, " e"], Float[Array, " e"]],
) -> Float[Array, ""]:
    """Computes L_obs + L_exp of some visits to each source.

    Args:
      network: anchored.
      z: table of covariates.
      entries: of each source.
      places: which entries are visited, as many of each source.
      weights: of a visit to each entry.
    """
    rows = jnp.concatenate(
        [part.row[place] for part, place in zip(entries, places, strict=True)]
    )
    logs = log_probabilities(network.encode(z[rows]), network.link, training=True)
    half = len(places[0])
    sides = (logs.joint[:half], logs.outcome[half:])
    total = jnp.zeros(())
    for side, part, place, weight in zip(sides, entries, places, weights, strict=True):
        chosen = side.reshape(-1, 4)[jnp.arange(half), part.outcome[place]]
        total -= jnp.mean(weight[place] * chosen)
    return total


def _draw_places(
    key: PRNGKeyArray, ends: Int[Array, " e"], size: int
) -> Int[Array, " size"]:
    """Draws entries in proportion to their visits, one from each of `size` equal parts."""
    position = (jnp.arange(size) + jax.random.uniform(key, (size,))) / size
    # Rounding may give `ends[-1]` itself, behind which lie entries of the held-out fold.
    visit = jnp.minimum((position * ends[-1]).astype(jnp.int32), ends[-1] - 1)
    return jnp.searchsorted(ends, visit, side="right")


@functools.partial(jax.jit, static_argnums=(0, 1))
def train_members(
    program: MemberProgram,
    num_steps: int,
    members: Members,
    z: Float[Array, "n d"],
    entries: tuple[Entries, Entries],
) -> tuple[Members, Float[Array, "m num_steps"]]:
    """Takes steps of every member; returns their losses, too."""
    transformation = program.optimizer.transformation()
    half = program.batch_size // 2

    def one(member: Members) -> tuple[Members, Float[Array, " num_steps"]]:
        def step(carry: tuple, _: None) -> tuple[tuple, Float[Array, ""]]:
            params, optimizer, number = carry
            keys = jax.random.split(jax.random.fold_in(member.key, number))
            places = (
                _draw_places(keys[0], entries[0].ends[member.fold], half),
                _draw_places(keys[1], entries[1].ends[member.fold], half),
            )

            def loss(params: Any) -> Float[Array, ""]:
                network = nnx.merge(program.structure, params)
                return member_loss(network, z, entries, places, member.weights)

            value, gradient = jax.value_and_grad(loss)(params)
            updates, optimizer = transformation.update(gradient, optimizer, params)
            params = optax.apply_updates(params, updates)
            return (params, optimizer, number + 1), value

        start = (member.params, member.optimizer, member.step)
        (params, optimizer, number), losses = jax.lax.scan(
            step, start, None, length=num_steps
        )
        member = member._replace(params=params, optimizer=optimizer, step=number)
        return member, losses

    return map_networks(one, members)


@functools.partial(jax.jit, static_argnums=0)
def member_raw(
    structure: nnx.GraphDef, params: Any, z: Float[Array, "n d"]
) -> Float[Array, "m n 6"]:
    """Computes the raw numbers of every member."""
    return map_networks(lambda member: nnx.merge(structure, member).encode(z), params)
