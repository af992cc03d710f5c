"""Draws from a stack of learners, whatever their classes."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float

from pns_estimate.methods.protocol import SAMPLERS


def link(raw: Float[np.ndarray, "n raw"]) -> pb.Atoms:
    """Turns free raw numbers into compatible atoms [n]."""
    no_draws = np.zeros((1, 0), raw.dtype)
    linear = pi.LinearDraws(raw, np.zeros((*raw.shape, 0), raw.dtype), no_draws, "free")
    return pb.Atoms(*(part[0] for part in linear.atoms()))


def draw(key: jax.Array, answer: pm.Linear, num_draws: int) -> pi.LinearDraws:
    """Draws the multipliers of a stack's deviations."""
    rank = answer.factors.shape[-1]
    normals = np.asarray(jax.random.normal(key, (num_draws, rank)), np.float32)
    return pi.LinearDraws(answer.center, answer.factors, normals, "free")


@SAMPLERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class StackSampler:
    """A stack with draws of its error."""

    kind: ClassVar[str] = "stack"
    has_draws = is_posterior = True
    stack: pm.Stack

    def atoms(self, z: Float[np.ndarray, "n d"]) -> pb.Atoms:
        """Links the pooled raw numbers."""
        return link(self.stack.answer(z).center)

    def draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pb.Atoms:
        """Draws atoms [num_draws, n]."""
        return self.linear_draws(key, z, num_draws).atoms()

    def linear_draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pi.LinearDraws:
        """Draws multipliers; the first do not depend on the number of draws."""
        return draw(key, self.stack.answer(z), num_draws)

    def disagreement(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Computes by how much the classes differ; NaN if there is only one."""
        if len(self.stack.names) == 1:
            return np.full(len(z), np.nan)
        return self.stack.disagreement(z)

    def save(self, folder: Path) -> None:
        """Writes the stack."""
        self.stack.save(folder)

    @classmethod
    def load(cls, folder: Path) -> "StackSampler":
        """Reads what `save` wrote."""
        return cls(pm.Stack.load(folder))
