"""Cross-fitting: every unit is held out by some members of one ensemble.

Members of fold j see the other folds, each with its own bootstrap weights. The predictor
is the mean over all members; what the members of fold j say of the units of fold j are
held-out answers, for everybody. Covariates are standardized by all units; of the outcomes
in its fold a member sees none.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray

from pns_models._anchored import AnchoredConfig
from pns_models._checkpoints import RunCheckpoints, digest
from pns_models._data import flat_weights
from pns_models._ensemble import EnsembleConfig
from pns_models._folds import FoldedCounts
from pns_models._loop import History
from pns_models._member_groups import (
    MemberGroup,
    fold_means,
    held_out_loss,
    held_out_raw,
    join_groups,
    train_group,
)
from pns_models._model import FittedModel
from pns_models._recipe import Recipe
from pns_models._standardizer import (
    Standardizer,
    make_standardizer,
    weighted_covariance,
)
from pns_models._stuck import find_stuck, replace_stuck
from pns_models._subspaces import common_subspace, weighed_directions


class CrossFit(NamedTuple):
    """What `cross_fit` returns.

    Attributes:
      model: an ensemble of all members; its point estimate is their mean.
      folded: the data, with the fold of each row.
      member_fold: the fold that each member did not see.
      held_out: raw numbers of each row by the members that did not see it.
      fold_means: mean raw numbers of every row by the members that did not see a fold.
      coordinates: of every row, in which the networks change about as fast in all
        directions.
      subspaces: linear combinations of the covariates as columns, uncorrelated and of
        variance 1, that the members of each fold, and then all members, agree on; None
        if their recipe has no bottleneck.
      history: mean losses over members, without the first of each fold; the held-out
        ones on some rows.
      losses: cross-fitted loss of each recipe that was tried, in the order of trial.
      num_stuck: members that were replaced by copies of others.
    """

    model: FittedModel
    folded: FoldedCounts
    member_fold: Int[np.ndarray, " m"]
    held_out: Float[np.ndarray, "members_per_fold n 6"]
    fold_means: Float[np.ndarray, "num_folds n 6"]
    coordinates: Float[np.ndarray, "n r"]
    subspaces: Float[np.ndarray, "num_folds+1 d b"] | None
    history: History
    losses: tuple[float, ...]
    num_stuck: int = 0


def cross_fit(
    key: PRNGKeyArray,
    folded: FoldedCounts,
    recipes: Sequence[Recipe | Sequence[Recipe]],
    members_per_fold: int = 6,
    progress: bool = True,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    mesh: Mesh | None = None,
    replaces_stuck: bool = False,
) -> CrossFit:
    """Chooses a recipe by its cross-fitted loss, and trains an ensemble by it.

    One member per fold is trained by each recipe; the recipe whose members predict the
    fold they did not see best gets the other members. Recipes may be given in sequences:
    the next of a sequence is tried only if the one before is the best of all so far.

    Args:
      key: decides initialization, bootstrap weights and batches.
      folded: the data, from `fold_counts`.
      recipes: of anchored networks with training from `make_member_training`, perhaps
        `PORTFOLIO`.
      members_per_fold: at least 2.
      progress: show a bar; never shown off a terminal.
      checkpoint_dir: where to keep the state of the run, a folder for each recipe and
        one for the other members; if it holds the same run, training continues from
        there, to the same result.
      checkpoint_seconds: least time between two checkpoints.
      mesh: the devices to train on, from `make_mesh`; None takes all. The result is the
        same up to rounding.
      replaces_stuck: put copies of other members of the same fold in the place of those
        whose training ended far from the best, judged by what they saw.

    Raises:
      DivergedError: if a loss is not finite.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> import pns_models as pm
      >>> log = np.array([[[400, 100], [400, 100]], [[400, 100], [100, 400]]])
      >>> trial = np.array([[[400, 100], [400, 100]], [[350, 150], [100, 400]]])
      >>> z = np.array([[0.0], [1.0]], np.float32)
      >>> twice = [np.concatenate([part, part]) for part in (z, log, trial)]
      >>> folded, _ = pm.fold_counts(pm.Counts(*twice), np.array([0, 0, 1, 1]))
      >>> recipe = pm.Recipe(  # a small network and few steps, for the example
      ...     pm.AnchoredConfig(pm.Backbone(width=4, depth=0)),
      ...     pm.make_member_training(0.1, 0.0, max_steps=100, batch_size=8),
      ... )
      >>> result = cross_fit(jax.random.key(0), folded, [recipe], members_per_fold=2)
      >>> mu = result.model.atoms(z).mu  # 100 / 500, 150 / 500 and 400 / 500
      >>> [[round(float(value), 1) for value in row] for row in mu]
      [[0.2, 0.2], [0.3, 0.8]]
      >>> result.member_fold.tolist()  # what each member did not see
      [0, 1, 0, 1]
    """
    _check_arguments(folded, recipes, members_per_fold)
    standardizer = make_standardizer(folded.counts)
    z = jnp.asarray(standardizer(folded.counts.z))

    def train(number: int, recipe: Recipe, size: int, name: str) -> MemberGroup:
        group_key = jax.random.fold_in(key, number)
        checkpoints = RunCheckpoints(None, {})
        if checkpoint_dir is not None:
            label = _label(group_key, folded, z, recipe, size)
            checkpoints = RunCheckpoints(Path(checkpoint_dir) / name, label)
        return train_group(
            group_key,
            folded,
            z,
            recipe,
            size,
            checkpoints,
            checkpoint_seconds,
            progress,
            mesh,
        )

    sequences = _as_sequences(recipes)
    first, losses = _choose(
        sequences,
        lambda number, recipe: train(number, recipe, 1, f"recipe_{number}"),
        lambda group: held_out_loss(group, folded, z),
    )
    rest = train(sum(map(len, sequences)), first.recipe, members_per_fold - 1, "others")
    both = join_groups(first, rest)
    is_stuck = np.zeros(len(both.fold), bool)
    if replaces_stuck:
        is_stuck = find_stuck(both, folded, z)
        both = replace_stuck(both, is_stuck)
    kernels = _first_kernels(both)
    columns = zip(*rest.history, strict=True)
    return CrossFit(
        model=_make_model(both, standardizer, z.shape[1]),
        folded=folded,
        member_fold=np.asarray(both.fold),
        held_out=held_out_raw(both, folded, z),
        fold_means=fold_means(both, z),
        coordinates=np.asarray(z @ weighed_directions(kernels).astype(np.float32)),
        subspaces=_find_subspaces(both, kernels, folded, standardizer),
        history=History(*(np.array(column) for column in columns)),
        losses=tuple(losses),
        num_stuck=int(is_stuck.sum()),
    )


def _check_arguments(
    folded: FoldedCounts,
    recipes: Sequence[Recipe | Sequence[Recipe]],
    members_per_fold: int,
) -> None:
    if not isinstance(folded, FoldedCounts):
        raise TypeError(
            f"folded must come from fold_counts, got a {type(folded).__name__}."
        )
    if members_per_fold < 2:
        raise ValueError(
            f"members_per_fold must be at least 2, got {members_per_fold}."
        )
    if isinstance(recipes, Recipe) or not all(
        map(len, [recipes, *_as_sequences(recipes)])
    ):
        raise ValueError(
            "recipes must be a sequence of one Recipe or more, such as PORTFOLIO."
        )
    for recipe in itertools.chain(*_as_sequences(recipes)):
        _check_recipe(recipe)


def _as_sequences(
    recipes: Sequence[Recipe | Sequence[Recipe]],
) -> list[Sequence[Recipe]]:
    """Makes a sequence of every recipe that is none yet."""
    return [
        tuple(each) if isinstance(each, (list, tuple)) else (cast("Recipe", each),)
        for each in recipes
    ]


def _choose(
    sequences: list[Sequence[Recipe]],
    train: Callable[[int, Recipe], MemberGroup],
    score: Callable[[MemberGroup], float],
) -> tuple[MemberGroup, list[float]]:
    """Tries the first of every sequence, then what follows the best while it is better.

    Args:
      sequences: of recipes.
      train: makes members, given the number of a recipe among all, and the recipe.
      score: computes their loss.

    Returns:
      The members with the least loss, and the losses of all that were tried.
    """
    starts = [0, *itertools.accumulate(map(len, sequences))]
    pending, losses = [(row, 0) for row in range(len(sequences))], []
    best, following = None, None
    while pending:
        row, place = pending.pop(0)
        group = train(starts[row] + place, sequences[row][place])
        losses.append(score(group))
        if losses[-1] == min(losses):
            best, following = group, (row, place + 1)
        if not pending and following is not None:
            row, place = following
            pending = [following] if place < len(sequences[row]) else []
            following = None
    assert best is not None
    return best, losses


def _check_recipe(recipe: Recipe) -> None:
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipes must hold Recipes, got {recipe!r}.")
    if not isinstance(recipe.network, AnchoredConfig):
        raise TypeError(f"cross_fit trains anchored networks, got {recipe.network!r}.")
    config = recipe.training
    if config.max_steps is None or (config.batch_size or 0) < 2:
        raise ValueError(
            "a recipe for cross_fit needs max_steps and a batch_size of 2 or more, got "
            f"{config.max_steps} and {config.batch_size}; see make_member_training."
        )
    settings = (config.patience, config.held_out_fraction, config.data_noise)
    if settings != (None, 0, "exponential"):
        raise ValueError(
            "a recipe for cross_fit has no patience, a held_out_fraction of 0 and "
            f"exponential data_noise, got {settings}; see make_member_training."
        )


def _label(
    key: PRNGKeyArray,
    folded: FoldedCounts,
    z: Float[Array, "n d"],
    recipe: Recipe,
    members_per_fold: int,
) -> dict[str, Any]:
    """Says which group of members this is, to refuse a checkpoint of another one."""
    return {
        "recipe": recipe.to_json(),
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "members_per_fold": members_per_fold,
        "data": digest(z, flat_weights(folded.counts), folded.fold),
    }


def _first_kernels(group: MemberGroup) -> Float[np.ndarray, "m d b"]:
    """Returns the first layer of every member."""
    return np.asarray(nnx.merge(group.structure, group.params).body.kernels[0][...])


def _find_subspaces(
    group: MemberGroup,
    kernels: Float[np.ndarray, "m d b"],
    folded: FoldedCounts,
    standardizer: Standardizer,
) -> Float[np.ndarray, "num_folds+1 d b"] | None:
    """Finds what the members of each fold, and all, agree on; None without a bottleneck."""
    assert isinstance(group.recipe.network, AnchoredConfig)
    if group.recipe.network.backbone.bottleneck is None:
        return None
    kernels = kernels / standardizer.deviation[:, None]
    units = flat_weights(folded.counts).sum(axis=1)
    covariance = weighted_covariance(np.asarray(folded.counts.z), units)
    fold = np.asarray(group.fold)
    parts = [kernels[fold == j] for j in range(folded.num_folds)]
    return np.stack([common_subspace(part, covariance) for part in [*parts, kernels]])


def _make_model(
    group: MemberGroup, standardizer: Standardizer, num_covariates: int
) -> FittedModel:
    """Puts the members into one ensemble."""
    assert isinstance(group.recipe.network, AnchoredConfig)
    config = EnsembleConfig(group.recipe.network.backbone, len(group.fold))
    network = nnx.eval_shape(lambda: config.make(jax.random.key(0), num_covariates))
    nnx.update(network.members, jax.tree.map(jnp.asarray, group.params))
    recipe = dataclasses.replace(group.recipe, network=config)
    return FittedModel(network, recipe, standardizer)
