"""A stack of members that nothing was trained for, and can be saved."""

import dataclasses
from typing import ClassVar

import numpy as np
import pns_models as pm
from pns_models._stack import ErrorSize


@pm.MEMBERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class SlopeMembers:
    """Raw numbers that are linear in the covariates."""

    kind: ClassVar[str] = "slopes"
    fold: np.ndarray
    slopes: np.ndarray  # [members, covariates and 1, raw]

    def raw(self, z):
        ones = np.ones((len(z), 1), np.float32)
        return np.concatenate([z, ones], axis=1) @ self.slopes

    def take(self, order):
        return SlopeMembers(self.fold[order], self.slopes[order])

    def save(self, folder):
        np.savez(folder / "slopes.npz", fold=self.fold, slopes=self.slopes)

    @classmethod
    def load(cls, folder):
        with np.load(folder / "slopes.npz") as stored:
            return cls(stored["fold"], stored["slopes"])


def make_stack(num_covariates=2, seed=0):
    """Two classes on two folds; weights differ by source."""
    rng = np.random.default_rng(seed)

    def make_members(middle):
        noise = 0.2 * rng.normal(size=(2, *middle.shape))
        return SlopeMembers(np.arange(2), (middle + noise).astype(np.float32))

    middles = 0.5 * rng.normal(size=(2, num_covariates + 1, 6))
    return pm.Stack(
        names=("one", "other"),
        members=tuple(map(make_members, middles)),
        weights=np.array([[0.7, 0.2], [0.3, 0.8]]),
        size=ErrorSize(np.array([0.9, 0.6]), np.array([0.05, 0.3])),
    )
