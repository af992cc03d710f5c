"""Networks as members: an ensemble, the fold that each did not see, and what they share."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Float, Int

from pns_models._anchored import AnchoredConfig, BootstrapEnsemble, EnsembleConfig
from pns_models._learner import MEMBERS
from pns_models._links import free_numbers
from pns_models._model import FittedModel
from pns_models._recipe import Recipe
from pns_models._standardizer import Standardizer
from pns_models._training import History


@MEMBERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class NetworkMembers:
    """Anchored networks of one recipe.

    Attributes:
      model: the ensemble of all members.
      fold: the one that each member did not see.
      history: mean losses over the members that were trained last; the held-out ones on
        some rows. None if the members were loaded.
    """

    kind: ClassVar[str] = "networks"
    model: FittedModel
    fold: Int[np.ndarray, " m"]
    history: History | None = None

    @classmethod
    def from_params(
        cls,
        params: Any,
        fold: Int[np.ndarray, " m"],
        recipe: Recipe,
        standardizer: Standardizer,
        history: History | None = None,
    ) -> "NetworkMembers":
        """Puts stacked parameters of anchored networks into one ensemble.

        Args:
          params: of all members, stacked.
          fold: the one that each member did not see.
          recipe: of an anchored network, or of an ensemble of them.
          standardizer: of the covariates.
          history: of training.
        """
        assert isinstance(recipe.network, AnchoredConfig | EnsembleConfig)
        config = EnsembleConfig(recipe.network.backbone, len(fold))
        size = len(standardizer.mean)
        network = nnx.eval_shape(lambda: config.make(jax.random.key(0), size))
        nnx.update(network.members, jax.tree.map(jnp.asarray, params))
        recipe = dataclasses.replace(recipe, network=config)
        return cls(FittedModel(network, recipe, standardizer), fold, history)

    def raw(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m n raw"]:
        """Computes every member's raw numbers of rows, on the scale of the data."""
        return free_numbers(self.model.member_raw(z))

    def take(self, order: Int[np.ndarray, " m"]) -> "NetworkMembers":
        """Picks members by number."""
        params = jax.tree.map(lambda leaf: leaf[order], self._params())
        return self._replaced(params, self.fold[order], self.history)

    def save(self, folder: Path) -> None:
        """Writes the ensemble and the folds."""
        self.model.save(folder / "ensemble")
        np.save(folder / "fold.npy", self.fold, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path) -> "NetworkMembers":
        """Reads what `save` wrote."""
        fold = np.load(folder / "fold.npy", allow_pickle=False)
        return cls(FittedModel.load(folder / "ensemble"), fold)

    @property
    def _ensemble(self) -> BootstrapEnsemble:
        assert isinstance(self.model.network, BootstrapEnsemble)
        return self.model.network

    def _params(self) -> Any:
        return jax.tree.map(np.asarray, nnx.state(self._ensemble.members))

    def _replaced(
        self, params: Any, fold: Int[np.ndarray, " m"], history: History | None
    ) -> "NetworkMembers":
        model = self.model
        return self.from_params(params, fold, model.recipe, model.standardizer, history)
