"""How a network is trained; a recipe is a network and its training."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, cast

from pns_models._anchored import AnchoredConfig
from pns_models._errors import require
from pns_models._network import NetworkConfig, check_choice, network_from_json


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How a network is trained.

    Attributes:
      learning_rate: of Adam.
      weight_decay: decoupled; 0 is plain Adam. Applies to kernels, not to biases, nor
        to the output kernel of a hypermodel or the head of an epinet, whose decay would
        make all draws equal.
      schedule: 'constant', or 'cosine' decay to zero over `max_steps`.
      batch_size: rows per step; None is all of them.
      epochs: passes over the data; None if `max_steps` says when to end.
      max_steps: steps; None if `epochs` does.
      held_out_fraction: share of the units held out.
      patience: evaluations without a better held-out loss before training stops, the
        best parameters being kept; None trains to the end and keeps the last.
      eval_every: steps between evaluations.
      num_indices: indices per step and per evaluation, for hypermodel and epinet.
      data_noise: 'none', or 'exponential' weights of the units that depend on the
        index, which makes draws of the network bootstrap draws; networks without an
        index have none.
      merge: whether rows with equal covariates merge; None if that halves them.
    """

    learning_rate: float = 1e-2
    weight_decay: float = 1.0
    schedule: Literal["constant", "cosine"] = "constant"
    batch_size: int | None = 8192
    epochs: int | None = None
    max_steps: int | None = 1000
    held_out_fraction: float = 0.1
    patience: int | None = 10
    eval_every: int = 10
    num_indices: int = 8
    data_noise: Literal["none", "exponential"] = "none"
    merge: bool | None = None

    def __post_init__(self):
        require(
            (self.epochs is None) != (self.max_steps is None),
            "epochs",
            "or max_steps must be given, and not both.",
        )
        positive = ("epochs", "max_steps", "batch_size", "patience", "eval_every")
        for name in (*positive, "num_indices"):
            value = getattr(self, name)
            is_right = value is None or value >= 1
            require(is_right, name, f"must be at least 1, got {value}.")
        fraction = self.held_out_fraction
        require(
            0 <= fraction < 1,
            "held_out_fraction",
            f"must lie in [0, 1), got {fraction}.",
        )
        require(
            self.patience is None or fraction > 0,
            "held_out_fraction",
            "must be above 0 for early stopping.",
        )
        require(
            self.learning_rate > 0 and self.weight_decay >= 0,
            "learning_rate",
            "must be positive, and weight_decay not negative.",
        )
        check_choice(self, "schedule", ("constant", "cosine"))
        check_choice(self, "data_noise", ("none", "exponential"))


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A network and its training."""

    network: NetworkConfig = dataclasses.field(default_factory=AnchoredConfig)
    training: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def to_json(self) -> dict[str, Any]:
        """Returns nested plain values."""
        fields = dataclasses.asdict(cast("Any", self))
        return {**fields, "network": {"kind": self.network.kind, **fields["network"]}}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Recipe":
        """Rebuilds a recipe; raises if the kind of network or a field is unknown."""
        return cls(
            network_from_json(values["network"]), TrainConfig(**values["training"])
        )


def make_member_training(
    learning_rate: float = 5e-3,
    weight_decay: float = 0.2,
    max_steps: int = 2000,
    batch_size: int = 512,
) -> TrainConfig:
    """Makes the training of a member: a fixed number of steps, the rate decaying to 0.

    Example:
      >>> training = make_member_training(max_steps=300)
      >>> training.max_steps, training.schedule
      (300, 'cosine')
      >>> training.held_out_fraction  # its fold is held out already
      0.0
    """
    return TrainConfig(
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        schedule="cosine",
        batch_size=batch_size,
        max_steps=max_steps,
        held_out_fraction=0.0,
        patience=None,
    )
