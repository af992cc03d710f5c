"""Draws from a network that has an index of its own: epinet and ensemble."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pns_bounds as pb
import pns_models as pm
from jaxtyping import Float
from numpy.typing import ArrayLike

from pns_estimate.methods.protocol import MethodFit, row_groups, split_key


@dataclasses.dataclass(frozen=True)
class NetworkSampler:
    """A fitted network; an index that is drawn fixes one law for everybody."""

    model: pm.FittedModel

    @property
    def has_draws(self) -> bool:
        """Whether the network has an index."""
        return self.model.is_epistemic

    @property
    def is_posterior(self) -> bool:
        """Draws vary as the estimate does."""
        return False

    def atoms(self, z: Float[np.ndarray, "n d"]) -> pb.Atoms:
        """Estimates the atoms of each unit."""
        return self.model.atoms(z)

    def draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pb.Atoms:
        """Draws atoms [num_draws, n]."""
        return self.model.draws(key, z, num_draws)

    def save(self, folder: Path) -> None:
        """Writes the network to a new folder."""
        self.model.save(folder)


@dataclasses.dataclass(frozen=True)
class NetworkMethod:
    """Trains a network whose own draws, if it has any, say how uncertain it is."""

    name: str
    sentence: str
    recipe: pm.Recipe

    def fit(
        self,
        key: jax.Array,
        counts: pm.Counts,
        recipe: pm.Recipe,
        progress: bool = False,
        groups: ArrayLike | None = None,
    ) -> MethodFit:
        """Trains the network."""
        result = pm.fit(
            split_key(key).train,
            counts,
            recipe,
            progress=progress,
            groups=row_groups(counts, groups),
        )
        return MethodFit(
            NetworkSampler(result.model),
            result.held_out,
            result.model.standardizer,
            result.history,
        )

    def load(self, folder: Path) -> NetworkSampler:
        """Reads a network."""
        return NetworkSampler(pm.load(folder))
