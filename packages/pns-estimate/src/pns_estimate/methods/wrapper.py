"""What samplers around a sampler have in common."""

import abc
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
from jaxtyping import Float

from pns_estimate.methods.protocol import SAMPLERS, Sampler, linear_draws

_FILE = "settings.npz"


@dataclasses.dataclass(frozen=True, eq=False)
class Wrapper(abc.ABC):
    """Changes the atoms or the draws of a sampler, and is one itself."""

    kind: ClassVar[str]
    inner: Sampler  # the sampler inside, an ensemble for example

    @property
    def has_draws(self) -> bool:
        """Whether the sampler inside has draws."""
        return self.inner.has_draws

    @property
    def is_posterior(self) -> bool:
        """As the sampler inside."""
        return self.inner.is_posterior

    def atoms(self, z: Float[np.ndarray, "n d"]) -> pb.Atoms:
        """Estimates the atoms of each unit, as the sampler inside does."""
        return self.inner.atoms(z)

    def draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pb.Atoms:
        """Changes the draws inside; every draw stays a compatible law."""
        linear = self.linear_draws(key, z, num_draws)
        if linear is not None:
            return linear.atoms()
        return self.change_draws(z, self.inner.draws(key, z, num_draws))

    def linear_draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pi.LinearDraws | None:
        """Changes the draws inside before the link, if they are linear."""
        linear = linear_draws(self.inner, key, z, num_draws)
        return None if linear is None else self.change_linear(z, linear)

    def change_draws(self, z: Float[np.ndarray, "n d"], draws: pb.Atoms) -> pb.Atoms:
        """Changes draws [num_draws, n] that are not linear."""
        raise NotImplementedError

    def change_linear(
        self, z: Float[np.ndarray, "n d"], linear: pi.LinearDraws
    ) -> pi.LinearDraws | None:
        """Changes linear draws; None if the result is not linear."""
        raise NotImplementedError

    @abc.abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Returns everything but the sampler inside, as arrays."""

    @classmethod
    @abc.abstractmethod
    def from_settings(cls, inner: Sampler, settings: dict[str, np.ndarray]) -> Self:
        """Undoes `settings`."""

    def save(self, folder: Path) -> None:
        """Writes the settings, and the sampler inside to a folder of its own."""
        np.savez(folder / _FILE, **self.settings())
        SAMPLERS.save(self.inner, folder / "inner")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote."""
        with np.load(folder / _FILE, allow_pickle=False) as stored:
            settings = {name: stored[name] for name in stored.files}
        return cls.from_settings(SAMPLERS.load(folder / "inner"), settings)
