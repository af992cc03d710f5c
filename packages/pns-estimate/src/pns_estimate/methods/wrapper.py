"""Samplers around a sampler: what they share, and the one that scales draws."""

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

from pns_estimate.methods.protocol import (
    SAMPLERS,
    Encoded,
    Sampler,
    disagreement,
    linear_draws,
)

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

    def disagreement(self, z: Encoded) -> Float[np.ndarray, " n"] | None:
        """Returns what the sampler inside says, if it has learners."""
        return disagreement(self.inner, z)

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


@SAMPLERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class ScaledSampler(Wrapper):
    """Scales the draws of a sampler about their mean; a scale of 1 changes nothing."""

    kind: ClassVar[str] = "scaled"
    draw_scale: float = 1.0  # on the logit scale

    @property
    def is_posterior(self) -> bool:
        """As the sampler inside."""
        return self.inner.is_posterior

    def atoms(self, z: Encoded) -> pb.Atoms:
        """Estimates the atoms of each unit, as the sampler inside does."""
        return self.inner.atoms(z)

    def draws(self, key: jax.Array, z: Encoded, num_draws: int) -> pb.Atoms:
        """Draws atoms and scales them; every draw stays a compatible law."""
        if self.draw_scale == 1:
            return self.inner.draws(key, z, num_draws)
        linear = self.linear_draws(key, z, num_draws)
        if linear is not None:
            return linear.atoms()
        return pi.scale_draws(self.inner.draws(key, z, num_draws), self.draw_scale)

    def linear_draws(
        self, key: jax.Array, z: Encoded, num_draws: int
    ) -> pi.LinearDraws | None:
        """Scales the draws inside before the link, if they are linear."""
        linear = linear_draws(self.inner, key, z, num_draws)
        return None if linear is None else linear.scale(self.draw_scale)

    def settings(self) -> Mapping[str, Any]:
        """Returns the scale."""
        return {"draw_scale": self.draw_scale}

    @classmethod
    def from_settings(cls, inner: Sampler, settings: dict[str, np.ndarray]) -> Self:
        """Undoes `settings`."""
        return cls(inner, float(settings["draw_scale"]))
