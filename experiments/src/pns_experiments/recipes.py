"""Recipes that train in seconds, for smoke runs."""

import dataclasses
import functools
from typing import Any, Literal, TypeVar

import pns_estimate as pe
import pns_models as pm

from pns_experiments.counting import CountingRecipe
from pns_experiments.refits import RefitRecipe

Size = Literal["full", "smoke"]
Recipe = TypeVar("Recipe", pm.Recipe, pe.CrossFitRecipe, CountingRecipe, RefitRecipe)

# What a network of a smoke run has instead, where its config has such a field.
_SMALL: dict[str, Any] = {
    "index_dim": 5,
    "hidden": (8,),
    "prior_hidden": (8,),
    "num_members": 3,
}


def resize(recipe: Recipe, size: Size) -> Recipe:
    """Returns the recipe itself, or a small one of the same kind."""
    return recipe if size == "full" else _small(recipe)


@functools.singledispatch
def _small(recipe: Any) -> Any:
    raise TypeError(f"no small recipe is known for {type(recipe).__name__}.")


@_small.register
def _(recipe: pm.Recipe) -> pm.Recipe:
    training = dataclasses.replace(
        recipe.training, epochs=None, max_steps=40, eval_every=20
    )
    return pm.Recipe(_shrink(recipe.network), training)


@_small.register
def _(recipe: pe.CrossFitRecipe) -> pe.CrossFitRecipe:
    learners = (pm.LEARNERS["ridge"],)
    return dataclasses.replace(
        recipe, learners=learners, num_folds=2, members_per_fold=2
    )


@_small.register
def _(recipe: CountingRecipe) -> CountingRecipe:
    return dataclasses.replace(recipe, num_draws=200)


@_small.register
def _(recipe: RefitRecipe) -> RefitRecipe:
    return dataclasses.replace(recipe, num_refits=2)


def _shrink(network: Any) -> Any:
    fields = {field.name for field in dataclasses.fields(network)}
    backbone = dataclasses.replace(network.backbone, width=16, depth=1)
    small = {name: value for name, value in _SMALL.items() if name in fields}
    return dataclasses.replace(network, backbone=backbone, **small)
