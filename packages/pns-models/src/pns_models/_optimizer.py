"""The optimizer as a value: equal settings are one compiled program."""

import dataclasses
from typing import Any

import jax
import optax
from flax import nnx

from pns_models._mlp import Kernel
from pns_models._recipe import TrainConfig


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

    def of_variable(variable: Any) -> Any:
        return jax.tree.map(lambda _: isinstance(variable, Kernel), variable)

    return jax.tree.map(
        of_variable, params, is_leaf=lambda node: isinstance(node, nnx.Variable)
    )
