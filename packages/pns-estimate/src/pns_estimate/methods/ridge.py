"""A sampler that is corrected along linear combinations of the covariates."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
from jaxtyping import Float

from pns_estimate.methods.protocol import Sampler, linear_draws


@dataclasses.dataclass(frozen=True, eq=False)
class RidgeSampler:
    """Moves a sampler as its mean is corrected; see `pns_infer`'s ridge corrections.

    Attributes:
      inner: the sampler, an ensemble for example.
      correction: of the mean; draws keep their deviations from it, on the logit scale.
    """

    inner: Sampler
    correction: pi.RidgeCorrection

    @property
    def has_draws(self) -> bool:
        """Whether the sampler inside has draws."""
        return self.inner.has_draws

    @property
    def is_posterior(self) -> bool:
        """As the sampler inside."""
        return self.inner.is_posterior

    def atoms(self, z: Float[np.ndarray, "n d"]) -> pb.Atoms:
        """Estimates the atoms of each unit: the sampler's, corrected."""
        return self.correction.apply(z, self.inner.atoms(z))

    def draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pb.Atoms:
        """Draws the sampler's atoms and moves them; every draw is a compatible law."""
        linear = self.linear_draws(key, z, num_draws)
        if linear is not None:
            return linear.atoms()
        return pi.shift_draws(self.inner.draws(key, z, num_draws), *self._centers(z))

    def linear_draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pi.LinearDraws | None:
        """Moves the center of the sampler's draws, if they are linear."""
        linear = linear_draws(self.inner, key, z, num_draws)
        return None if linear is None else linear.shift(*self._centers(z))

    def _centers(self, z: Float[np.ndarray, "n d"]) -> tuple[pb.Atoms, pb.Atoms]:
        """Estimates atoms before and after the correction."""
        center = self.inner.atoms(z)
        return center, self.correction.apply(z, center)

    def save(self, folder: Path) -> None:
        """Writes the correction, and the sampler inside to a folder of its own."""
        folder.mkdir()
        np.savez(folder / "ridges.npz", **self.correction._asdict())
        self.inner.save(folder / "inner")

    @classmethod
    def load(
        cls, folder: Path, load_inner: Callable[[Path], Sampler]
    ) -> "RidgeSampler":
        """Reads what `save` wrote."""
        with np.load(folder / "ridges.npz", allow_pickle=False) as stored:
            fields = {name: stored[name] for name in stored.files}
        return cls(load_inner(folder / "inner"), pi.RidgeCorrection(**fields))
