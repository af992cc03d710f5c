"""Cross-fitting: every unit is held out by some members of one ensemble.

Members of fold j see the other folds, each with its own bootstrap weights. The predictor
is the mean over all members; what the members of fold j say of the units of fold j are
held-out answers, for everybody.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from flax import nnx
from jaxtyping import Float, Int, PRNGKeyArray

from pns_models._anchored import AnchoredConfig
from pns_models._batches import numpy_rng
from pns_models._data import Counts, flat_weights
from pns_models._ensemble import EnsembleConfig
from pns_models._errors import DivergedError
from pns_models._folds import FoldedCounts
from pns_models._links import log_probabilities
from pns_models._loop import History
from pns_models._members import (
    MemberProgram,
    Members,
    draw_weights,
    make_entries,
    member_raw,
    train_members,
)
from pns_models._model import FittedModel
from pns_models._optimizer import make_optimizer
from pns_models._recipe import Recipe
from pns_models._standardizer import Standardizer, make_standardizer

_ROWS = 8192  # rows whose raw numbers are made at a time
_CHUNKS = 10  # of training, with an evaluation after each
_EVAL_ROWS = 4096


class CrossFit(NamedTuple):
    """What `cross_fit` returns.

    Attributes:
      model: an ensemble of all members; its point estimate is their mean.
      folded: the data, with the fold of each row.
      member_fold: the fold that each member did not see.
      held_out: [members_per_fold, n, 6] raw numbers of each row by the members that did
        not see it.
      history: mean losses over members; the held-out ones on some rows.
      losses: cross-fitted loss of each recipe that was tried, in their order.
    """

    model: FittedModel
    folded: FoldedCounts
    member_fold: Int[np.ndarray, " m"]
    held_out: Float[np.ndarray, "members_per_fold n 6"]
    history: History
    losses: tuple[float, ...]


class _Fitted(NamedTuple):
    """Members of one recipe after training."""

    recipe: Recipe
    structure: nnx.GraphDef
    members: Members
    history: list[tuple[int, float, float]]


def cross_fit(
    key: PRNGKeyArray,
    folded: FoldedCounts,
    recipes: Sequence[Recipe],
    members_per_fold: int = 6,
    progress: bool = True,
) -> CrossFit:
    """Chooses a recipe by its cross-fitted loss, and trains an ensemble by it.

    With several recipes, one member per fold is trained by each; the recipe whose members
    predict the fold they did not see best gets the other members. All of a recipe's
    members are trained by one compiled program.

    Args:
      key: decides initialization, bootstrap weights and batches.
      folded: the data, from `make_folds`.
      recipes: of anchored networks, trained for `max_steps` steps without early stopping.
      members_per_fold: at least 2.
      progress: show a bar; never shown off a terminal.

    Raises:
      DivergedError: if a loss is not finite.
    """
    if members_per_fold < 2:
        raise ValueError(
            f"members_per_fold must be at least 2, got {members_per_fold}."
        )
    for recipe in recipes:
        _check_recipe(recipe)
    standardizer = make_standardizer(folded.counts)
    z = jnp.asarray(standardizer(folded.counts.z))
    trained = [
        _train(jax.random.fold_in(key, i), folded, z, recipe, 1, progress)
        for i, recipe in enumerate(recipes)
    ]
    losses = tuple(_held_out_loss(fitted, folded, z) for fitted in trained)
    first = trained[int(np.argmin(losses))]
    rest_key = jax.random.fold_in(key, len(recipes))
    rest = _train(rest_key, folded, z, first.recipe, members_per_fold - 1, progress)
    both = _join(first, rest)
    return CrossFit(
        model=_make_model(both, standardizer, z.shape[1]),
        folded=folded,
        member_fold=np.asarray(both.members.fold),
        held_out=_held_out_raw(both, folded, z),
        history=History(
            *(np.array(column) for column in zip(*rest.history, strict=True))
        ),
        losses=losses,
    )


def _check_recipe(recipe: Recipe) -> None:
    config = recipe.training
    if not isinstance(recipe.network, AnchoredConfig):
        raise TypeError(f"cross_fit trains anchored networks, got {recipe.network!r}.")
    if config.max_steps is None or config.batch_size is None or config.patience:
        raise ValueError(
            "a recipe for cross_fit needs max_steps and batch_size, and no patience."
        )


def _train(
    key: PRNGKeyArray,
    folded: FoldedCounts,
    z: jax.Array,
    recipe: Recipe,
    members_per_fold: int,
    progress: bool,
) -> _Fitted:
    """Trains some members for each fold."""
    keys = jax.random.split(key, 3)
    num_members = folded.num_folds * members_per_fold
    config = recipe.training
    assert config.max_steps is not None and config.batch_size is not None

    def make(key: PRNGKeyArray) -> Any:
        return nnx.split(recipe.network.make(key, z.shape[1]))[1]

    structure = nnx.split(recipe.network.make(keys[0], z.shape[1]))[0]
    params = jax.lax.map(make, jax.random.split(keys[0], num_members))
    optimizer = make_optimizer(config, config.max_steps)
    program = MemberProgram(structure, optimizer, config.batch_size)
    members = Members(
        params=params,
        optimizer=jax.vmap(optimizer.transformation().init)(params),
        step=jnp.zeros(num_members, jnp.int32),
        fold=jnp.tile(jnp.arange(folded.num_folds, dtype=jnp.int32), members_per_fold),
        key=jax.random.split(keys[1], num_members),
        weights=draw_weights(numpy_rng(keys[2]), folded, num_members),
    )
    entries = make_entries(folded)
    some = _some_rows(folded)
    history = []
    bar = tqdm.tqdm(
        total=config.max_steps,
        disable=not (progress and sys.stderr.isatty()),
        unit="step",
    )
    with bar:
        for size in _chunk_sizes(config.max_steps):
            members, losses = train_members(program, size, members, z, entries)
            loss = float(jnp.mean(losses))
            if not np.isfinite(loss):
                raise DivergedError(
                    f"the loss is not finite after {bar.n + size} steps; try a smaller "
                    "learning_rate."
                )
            fitted = _Fitted(recipe, structure, members, history)
            held_out = _held_out_loss(fitted, some, z[: len(some.fold)])
            bar.update(size)
            bar.set_postfix(loss=f"{loss:.4f}", held_out=f"{held_out:.4f}")
            history.append((int(bar.n), loss, held_out))
    return _Fitted(recipe, structure, members, history)


def _chunk_sizes(num_steps: int) -> list[int]:
    size = -(-num_steps // _CHUNKS)
    return [min(size, num_steps - start) for start in range(0, num_steps, size)]


def _some_rows(folded: FoldedCounts) -> FoldedCounts:
    """Keeps the first rows, to evaluate on while training."""
    some = slice(0, _EVAL_ROWS)
    counts = Counts(*(np.asarray(part)[some] for part in folded.counts))
    return FoldedCounts(counts, folded.fold[some], folded.cell[some])


def _held_out_raw(
    fitted: _Fitted, folded: FoldedCounts, z: jax.Array
) -> Float[np.ndarray, "members_per_fold n 6"]:
    """Collects each row's raw numbers from the members that did not see it."""
    fold = np.asarray(fitted.members.fold)
    by_fold = np.stack([np.flatnonzero(fold == j) for j in range(fold.max() + 1)])
    parts = []
    for start in range(0, len(z), _ROWS):
        block = z[start : start + _ROWS]
        count = len(block)
        filled = jnp.pad(block, ((0, min(_ROWS, len(z)) - count), (0, 0)))
        raw = np.asarray(member_raw(fitted.structure, fitted.members.params, filled))
        mine = by_fold[folded.fold[start : start + count]]  # [count, members_per_fold]
        parts.append(raw[mine.T, np.arange(count)])
    return np.concatenate(parts, axis=1)


def _held_out_loss(fitted: _Fitted, folded: FoldedCounts, z: jax.Array) -> float:
    """Computes the loss of all units by the mean of the members that did not see them."""
    raw = _held_out_raw(fitted, folded, z).mean(axis=0)
    logs = log_probabilities(jnp.asarray(raw), "anchored")
    weights = flat_weights(folded.counts)
    total = 0.0
    for part, values in zip((weights[:, :4], weights[:, 4:]), logs, strict=True):
        values = np.asarray(values, np.float64).reshape(-1, 4)
        total -= float((part * values).sum() / max(part.sum(), 1.0))
    return total


def _join(first: _Fitted, second: _Fitted) -> _Fitted:
    members = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b]), first.members, second.members
    )
    return second._replace(members=members)


def _make_model(
    fitted: _Fitted, standardizer: Standardizer, num_covariates: int
) -> FittedModel:
    """Puts the members into one ensemble."""
    assert isinstance(fitted.recipe.network, AnchoredConfig)
    config = EnsembleConfig(fitted.recipe.network.backbone, len(fitted.members.fold))
    network = config.make(jax.random.key(0), num_covariates)
    nnx.update(network.members, fitted.members.params)
    recipe = dataclasses.replace(fitted.recipe, network=config)
    return FittedModel(network, recipe, standardizer)
