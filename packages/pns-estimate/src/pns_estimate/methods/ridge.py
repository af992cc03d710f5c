"""A sampler that is corrected along linear combinations of the covariates."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pns_bounds as pb
import pns_infer as pi
from jaxtyping import Float

from pns_estimate.methods.protocol import SAMPLERS, Sampler
from pns_estimate.methods.wrapper import Wrapper


@SAMPLERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class RidgeSampler(Wrapper):
    """Moves a sampler as its mean is corrected; see `pns_infer`'s ridge corrections."""

    kind: ClassVar[str] = "ridge"
    # Of the mean; draws keep their deviations from it, on the logit scale.
    correction: pi.RidgeCorrection

    def atoms(self, z: Float[np.ndarray, "n d"]) -> pb.Atoms:
        """Corrects the atoms of the sampler inside."""
        return self.correction.apply(z, self.inner.atoms(z))

    def change_draws(self, z: Float[np.ndarray, "n d"], draws: pb.Atoms) -> pb.Atoms:
        """Moves draws."""
        return pi.shift_draws(draws, *self._centers(z))

    def change_linear(
        self, z: Float[np.ndarray, "n d"], linear: pi.LinearDraws
    ) -> pi.LinearDraws:
        """Moves the center of the draws."""
        return linear.shift(*self._centers(z))

    def _centers(self, z: Float[np.ndarray, "n d"]) -> tuple[pb.Atoms, pb.Atoms]:
        """Estimates atoms before and after the correction."""
        center = self.inner.atoms(z)
        return center, self.correction.apply(z, center)

    def settings(self) -> Mapping[str, Any]:
        """Returns the correction."""
        return self.correction._asdict()

    @classmethod
    def from_settings(
        cls, inner: Sampler, settings: dict[str, np.ndarray]
    ) -> "RidgeSampler":
        """Undoes `settings`."""
        return cls(inner, pi.RidgeCorrection(**settings))
