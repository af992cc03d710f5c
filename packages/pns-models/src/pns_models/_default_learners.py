"""The learners that are stacked unless others are asked for."""

from pns_models._anchored import AnchoredConfig
from pns_models._learner import Learner
from pns_models._linear_learner import LinearLearner
from pns_models._network import Activation, Backbone
from pns_models._network_learner import NetworkLearner
from pns_models._recipe import Recipe, make_member_training
from pns_models._tree_learner import TreeLearner


def _networks(
    name: str,
    bottleneck: int | None,
    width: int,
    depth: int,
    activation: Activation,
    learning_rate: float,
    weight_decay: float,
) -> NetworkLearner:
    backbone = Backbone(width, depth, activation=activation, bottleneck=bottleneck)
    training = make_member_training(learning_rate, weight_decay, max_steps=3000)
    recipe = Recipe(AnchoredConfig(backbone), training)
    return NetworkLearner(recipe, name, min_units=6000)


LEARNERS: dict[str, Learner] = {
    "ridge": LinearLearner(),
    "splines": LinearLearner(num_knots=10),
    "kernel": LinearLearner(num_landmarks=300),
    "trees": TreeLearner(),
    "random_trees": TreeLearner(random_cuts=True),
    "networks": _networks("networks of all covariates", None, 64, 2, "relu", 1e-2, 0.7),
    "networks_2": _networks(
        "networks of two linear combinations", 2, 64, 1, "relu", 1e-2, 0.3
    ),
    "networks_3": _networks(
        "networks of three linear combinations", 3, 32, 2, "silu", 5e-3, 0.3
    ),
}
"""Learners by the names that users ask for them."""
