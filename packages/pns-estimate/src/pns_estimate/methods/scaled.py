"""A sampler whose draws are scaled about their mean."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
from jaxtyping import Float

from pns_estimate.methods.protocol import Sampler, linear_draws


@dataclasses.dataclass(frozen=True)
class ScaledSampler:
    """Wraps a sampler; a scale of 1 changes nothing.

    Attributes:
      inner: the sampler whose draws are scaled.
      draw_scale: factor of the draws about their mean, on the logit scale.
    """

    inner: Sampler
    draw_scale: float = 1.0

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
        """Draws atoms and scales them; every draw stays a compatible law."""
        if self.draw_scale == 1:
            return self.inner.draws(key, z, num_draws)
        linear = self.linear_draws(key, z, num_draws)
        if linear is not None:
            return linear.atoms()
        return pi.scale_draws(self.inner.draws(key, z, num_draws), self.draw_scale)

    def linear_draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pi.LinearDraws | None:
        """Scales the coefficients of the sampler's draws, if they are linear."""
        linear = linear_draws(self.inner, key, z, num_draws)
        return None if linear is None else linear.scale(self.draw_scale)

    def save(self, folder: Path) -> None:
        """Writes the scale, and the sampler inside to a folder of its own."""
        folder.mkdir()
        (folder / "scale.json").write_text(json.dumps({"draw_scale": self.draw_scale}))
        self.inner.save(folder / "inner")

    @classmethod
    def load(cls, folder: Path, load_inner: Callable[[Path], Sampler]):
        """Reads what `save` wrote."""
        scale = json.loads((folder / "scale.json").read_text())["draw_scale"]
        return cls(load_inner(folder / "inner"), float(scale))
