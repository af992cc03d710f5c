"""Draws from members of an ensemble, whatever learner fitted them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float

from pns_estimate.methods.protocol import SAMPLERS

_ROWS = 8192  # that members answer at a time
_atoms_from_raw = jax.jit(pm.atoms_from_raw, static_argnums=1)


def link(raw: Float[np.ndarray, "*batch raw"]) -> pb.Atoms:
    """Turns raw numbers of the anchored map into atoms [*batch]."""
    return jax.tree.map(np.asarray, _atoms_from_raw(raw, "anchored"))


@SAMPLERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class MembersSampler:
    """Members whose differences stand for the error of their mean."""

    kind: ClassVar[str] = "members"
    has_draws = True
    is_posterior = False  # draws vary as the estimate does
    members: pm.Members

    def atoms(self, z: Float[np.ndarray, "n d"]) -> pb.Atoms:
        """Links the mean of the members' raw numbers."""
        return link(self._by_block(lambda raw: raw.mean(axis=0), z))

    def draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pb.Atoms:
        """Draws atoms [num_draws, n]."""
        return self.linear_draws(key, z, num_draws).atoms()

    def linear_draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pi.LinearDraws:
        """Draws weights of the members, whose raw numbers are the factors."""
        factors = self._by_block(lambda raw: np.moveaxis(raw, 0, -1), z)
        return pi.LinearDraws(
            center=np.zeros(factors.shape[:2], factors.dtype),
            factors=factors,
            coefficients=np.asarray(
                pm.draw_member_weights(key, len(self.members.fold), num_draws)
            ),
        )

    def save(self, folder: Path) -> None:
        """Writes the members."""
        pm.MEMBERS.save(self.members, folder / "members")

    @classmethod
    def load(cls, folder: Path) -> "MembersSampler":
        """Reads what `save` wrote."""
        return cls(pm.MEMBERS.load(folder / "members"))

    def _by_block(
        self,
        function: Callable[[Float[np.ndarray, "m some raw"]], np.ndarray],
        z: Float[np.ndarray, "n d"],
    ) -> np.ndarray:
        """Applies a function to the members' raw numbers of some rows at a time."""
        starts = range(0, max(len(z), 1), _ROWS)
        return np.concatenate(
            [function(self.members.raw(z[start : start + _ROWS])) for start in starts]
        )
