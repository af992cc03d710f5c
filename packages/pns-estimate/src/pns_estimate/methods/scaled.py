"""A sampler whose draws are scaled about their mean."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
from jaxtyping import Float

from pns_estimate.methods.protocol import SAMPLERS, Sampler
from pns_estimate.methods.wrapper import Wrapper


@SAMPLERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class ScaledSampler(Wrapper):
    """Scales the draws of a sampler; a scale of 1 changes nothing.

    Attributes:
      draw_scale: factor of the draws about their mean, on the logit scale.
    """

    kind: ClassVar[str] = "scaled"
    draw_scale: float = 1.0

    def draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pb.Atoms:
        """Draws atoms and scales them."""
        if self.draw_scale == 1:
            return self.inner.draws(key, z, num_draws)
        return super().draws(key, z, num_draws)

    def change_draws(self, z: Float[np.ndarray, "n d"], draws: pb.Atoms) -> pb.Atoms:
        """Scales draws."""
        return pi.scale_draws(draws, self.draw_scale)

    def change_linear(
        self, z: Float[np.ndarray, "n d"], linear: pi.LinearDraws
    ) -> pi.LinearDraws:
        """Scales the coefficients."""
        return linear.scale(self.draw_scale)

    def settings(self) -> Mapping[str, Any]:
        """Returns the scale."""
        return {"draw_scale": self.draw_scale}

    @classmethod
    def from_settings(
        cls, inner: Sampler, settings: dict[str, np.ndarray]
    ) -> "ScaledSampler":
        """Undoes `settings`."""
        return cls(inner, float(settings["draw_scale"]))
