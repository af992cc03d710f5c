"""Which network, how it is trained, and the recipes with a name."""

import dataclasses
from typing import Any, Literal

import jax
from flax import nnx

from pns_models._epistemic import BootstrapEnsemble, Epinet, Hypermodel
from pns_models._networks import AnchoredNet, Backbone, Network, SLearner, TLearner

Kind = Literal["anchored", "s_learner", "t_learner", "hypermodel", "epinet", "ensemble"]


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Which network.

    Attributes:
      kind: 'anchored', 's_learner', 't_learner', 'hypermodel', 'epinet' or 'ensemble'.
      backbone: of every network.
      index_dim: hypermodel and epinet.
      hidden: hypermodel and epinet, widths of the index-conditioned part.
      prior_hidden: hypermodel and epinet, the same for the frozen prior.
      prior_scale: hypermodel and epinet; 0 leaves the prior out.
      num_members: ensemble.
    """

    kind: Kind = "anchored"
    backbone: Backbone = dataclasses.field(default_factory=Backbone)
    index_dim: int = 20
    hidden: tuple[int, ...] = (64, 64)
    prior_hidden: tuple[int, ...] = (32, 32)
    prior_scale: float = 1.0
    num_members: int = 20

    def __post_init__(self):
        """Checks what would only fail later."""
        object.__setattr__(self, "hidden", tuple(self.hidden))
        object.__setattr__(self, "prior_hidden", tuple(self.prior_hidden))
        widths = (*self.hidden, *self.prior_hidden)
        if not self.hidden or not self.prior_hidden or min(widths) < 1:
            raise ValueError(
                "hidden and prior_hidden need one width or more, each at least 1, got "
                f"{self.hidden} and {self.prior_hidden}."
            )
        if self.index_dim < 1:
            raise ValueError(f"index_dim must be at least 1, got {self.index_dim}.")
        if not 0 <= self.prior_scale < float("inf"):
            raise ValueError(
                f"prior_scale must be finite and not negative, got {self.prior_scale}."
            )

    def make(self, key: jax.Array, num_covariates: int) -> Network:
        """Draws the network for a number of covariates."""
        if num_covariates < 1:
            raise ValueError("a network needs one covariate or more.")
        rngs = nnx.Rngs(params=key)
        plain = {"anchored": AnchoredNet, "s_learner": SLearner, "t_learner": TLearner}
        if self.kind in plain:
            return plain[self.kind](num_covariates, self.backbone, rngs)
        if self.kind == "ensemble":
            return BootstrapEnsemble(
                num_covariates, self.backbone, self.num_members, rngs
            )
        indexed = {"hypermodel": Hypermodel, "epinet": Epinet}
        if self.kind not in indexed:
            known = [*plain, *indexed, "ensemble"]
            raise ValueError(f"kind must be one of {known}, got {self.kind!r}.")
        return indexed[self.kind](
            num_covariates,
            self.backbone,
            self.index_dim,
            self.hidden,
            self.prior_hidden,
            self.prior_scale,
            rngs,
        )


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How a network is trained.

    Attributes:
      learning_rate: of Adam.
      weight_decay: decoupled; 0 is plain Adam. Applies to kernels, not to biases, nor
        to the output kernel of a hypermodel or the head of an epinet, whose decay would
        kill the spread.
      schedule: 'constant', or 'cosine' decay to zero over `max_steps`.
      batch_size: rows per step; None is all of them.
      epochs: passes over the data; None if `max_steps` says when to end.
      max_steps: steps; None if `epochs` does.
      validation_fraction: share of the people held out.
      patience: evaluations without a better held-out loss before training stops, the
        best parameters being kept; None trains to the end and keeps the last.
      eval_every: steps between evaluations.
      num_indices: indices per step and per evaluation, for hypermodel and epinet.
      data_noise: 'none', or 'exponential' weights of the people that depend on the
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
    validation_fraction: float = 0.1
    patience: int | None = 10
    eval_every: int = 10
    num_indices: int = 8
    data_noise: Literal["none", "exponential"] = "none"
    merge: bool | None = None

    def __post_init__(self):
        """Checks what would only fail later."""
        if (self.epochs is None) == (self.max_steps is None):
            raise ValueError("give either epochs or max_steps, and not both.")
        positive = ("epochs", "max_steps", "batch_size", "patience", "eval_every")
        for name in (*positive, "num_indices"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                "validation_fraction must lie in [0, 1), got "
                f"{self.validation_fraction}."
            )
        if self.patience is not None and self.validation_fraction == 0:
            raise ValueError("early stopping needs a validation_fraction above 0.")
        if not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise ValueError(
                "learning_rate must be positive, weight_decay not negative."
            )
        if self.schedule not in ("constant", "cosine"):
            raise ValueError(f"schedule must be known, got {self.schedule!r}.")
        if self.data_noise not in ("none", "exponential"):
            raise ValueError(f"data_noise must be known, got {self.data_noise!r}.")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A network and its training."""

    network: NetworkConfig = dataclasses.field(default_factory=NetworkConfig)
    training: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def to_json(self) -> dict[str, Any]:
        """Returns nested plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Recipe":
        """Rebuilds a recipe; raises if a field is unknown."""
        network = dict(values["network"])
        network["backbone"] = Backbone(**network["backbone"])
        for name in ("hidden", "prior_hidden"):
            network[name] = tuple(network[name])
        return cls(NetworkConfig(**network), TrainConfig(**values["training"]))


def _paper_enn(width, index_dim, hidden, prior_scale, rate, epochs) -> Recipe:
    return Recipe(
        NetworkConfig(
            kind="hypermodel",
            backbone=Backbone(width=width, depth=3, activation="relu"),
            index_dim=index_dim,
            hidden=hidden,
            prior_hidden=(32, 32),
            prior_scale=prior_scale,
        ),
        TrainConfig(
            learning_rate=rate,
            weight_decay=0.0,  # "L2 regularization 0"
            schedule="constant",
            batch_size=8192,
            epochs=epochs,
            max_steps=None,
            validation_fraction=0.2,
            patience=None,  # app:training: no early stopping
            eval_every=1000,  # evaluations do not change training
            num_indices=8,  # not printed; ours
            data_noise="none",
            merge=False,
        ),
    )


# tab:enn-hparams and tab:mb-hparams to the letter; where prose and table differ, the table.
PRESETS: dict[str, Recipe] = {
    "paper_low_dim": _paper_enn(128, 20, (64, 64), 1.0, 3e-4, 800),
    "paper_high_dim": _paper_enn(256, 18, (32, 32), 1.25, 3e-5, 4600),
    "paper_bootstrap": Recipe(
        NetworkConfig("anchored", Backbone(width=128, depth=3, activation="relu")),
        TrainConfig(
            learning_rate=1e-3,
            weight_decay=0.0,
            batch_size=256,
            epochs=100,
            max_steps=None,
            validation_fraction=0.1,
            patience=None,
            eval_every=1000,
            merge=False,
        ),
    ),
    # Ours, for two CPU cores: chosen by held-out loss and calibration error alone.
    "default": Recipe(
        NetworkConfig("anchored", Backbone(width=128, depth=3, activation="silu")),
        TrainConfig(),
    ),
    "default_epinet": Recipe(
        NetworkConfig(
            "epinet",
            Backbone(width=128, depth=3, activation="silu"),
            prior_hidden=(64, 64),
            prior_scale=0.3,
        ),
        TrainConfig(data_noise="exponential"),
    ),
    "default_ensemble": Recipe(
        NetworkConfig(
            "ensemble", Backbone(width=128, depth=3, activation="silu"), num_members=20
        ),
        TrainConfig(data_noise="exponential"),
    ),
}
