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
from pns_models._data import FoldedCounts, flat_weights, row_blocks
from pns_models._learner import MEMBERS
from pns_models._model import FittedModel
from pns_models._recipe import Recipe
from pns_models._standardizer import Standardizer, weighted_covariance
from pns_models._subspaces import common_subspace, weighed_directions
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
        return self.model.member_raw(z)

    def join(self, other: "NetworkMembers") -> "NetworkMembers":
        """Puts members of the same recipe behind these; keeps the history of the others."""
        params = jax.tree.map(
            lambda *leaves: np.concatenate(leaves), self._params(), other._params()
        )
        fold = np.concatenate([self.fold, other.fold])
        return self._replaced(params, fold, other.history)

    def take(self, order: Int[np.ndarray, " m"]) -> "NetworkMembers":
        """Picks members by number, some perhaps more than once."""
        params = jax.tree.map(lambda leaf: leaf[order], self._params())
        return self._replaced(params, self.fold[order], self.history)

    def coordinates(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n r"]:
        """Computes coordinates in which networks change about as fast in all directions."""
        directions = weighed_directions(self._kernels()).astype(np.float32)
        scale, z = self.model.standardizer, np.asarray(z)
        parts = [scale(z[part]) @ directions for part in row_blocks(*z.shape)]
        return np.concatenate(parts)

    def subspaces(
        self, folded: FoldedCounts
    ) -> Float[np.ndarray, "folds_and_all d b"] | None:
        """Finds what the members of each fold, and then all members, agree on.

        Args:
          folded: the data.

        Returns:
          Linear combinations of the covariates as columns, uncorrelated and of variance
          1; None if the recipe has no bottleneck.
        """
        network = self.model.recipe.network
        assert isinstance(network, EnsembleConfig)
        if network.backbone.bottleneck is None:
            return None
        kernels = self._kernels() / self.model.standardizer.deviation[:, None]
        units = flat_weights(folded.counts).sum(axis=1)
        covariance = weighted_covariance(np.asarray(folded.counts.z), units)
        parts = [kernels[self.fold == j] for j in range(folded.num_folds)]
        every = [*parts, kernels]
        return np.stack([common_subspace(part, covariance) for part in every])

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

    def _kernels(self) -> Float[np.ndarray, "m d b"]:
        """Returns the first layer of every member."""
        return np.asarray(self._ensemble.members.body.kernels[0][...])

    def _replaced(
        self, params: Any, fold: Int[np.ndarray, " m"], history: History | None
    ) -> "NetworkMembers":
        model = self.model
        return self.from_params(params, fold, model.recipe, model.standardizer, history)
