"""Recipes that train in seconds, for smoke runs."""

import dataclasses
from typing import Any, Literal

import pns_models as pm

Size = Literal["full", "smoke"]

# What a network of a smoke run has instead, where its config has such a field.
_SMALL: dict[str, Any] = {
    "index_dim": 5,
    "hidden": (8,),
    "prior_hidden": (8,),
    "num_members": 3,
}


def resize(recipe: pm.Recipe, size: Size) -> pm.Recipe:
    """Returns the recipe itself, or a small one of the same kind."""
    if size == "full":
        return recipe
    training = dataclasses.replace(
        recipe.training, epochs=None, max_steps=40, eval_every=20
    )
    return pm.Recipe(_shrink(recipe.network), training)


def _shrink(network: Any) -> Any:
    fields = {field.name for field in dataclasses.fields(network)}
    backbone = dataclasses.replace(network.backbone, width=16, depth=1)
    small = {name: value for name, value in _SMALL.items() if name in fields}
    return dataclasses.replace(network, backbone=backbone, **small)
