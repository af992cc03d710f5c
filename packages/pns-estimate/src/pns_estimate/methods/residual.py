"""A sampler that knows the counts of cells: units who share all their covariates."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
from jaxtyping import Bool, Float, Int

from pns_estimate.methods.protocol import SAMPLERS, Encoded, Sampler, linear_draws
from pns_estimate.methods.wrapper import Wrapper


@dataclasses.dataclass(frozen=True, eq=False)
class CellCounts:
    """Counts of the cells that are large enough to be kept."""

    z: Float[np.ndarray, "num_cells d"]  # encoded covariates of each cell
    # Of each cell, observational `[x, y]` and experimental `[arm, y]`.
    counts: Float[np.ndarray, "num_cells counts"]

    def find(self, z: Encoded) -> Float[np.ndarray, "n counts"]:
        """Returns the counts of each row's cell; zeros if it is not known."""
        known = {name: i for i, name in enumerate(_names(self.z))}
        place = np.array([known.get(name, -1) for name in _names(z)], int)
        # Place -1 is the row of zeros at the end, the only one if no cell is large.
        return np.pad(self.counts, ((0, 1), (0, 0)))[place]


@SAMPLERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class ResidualSampler(Wrapper):
    """Moves a sampler toward the frequencies of each cell; see `pns_infer`'s residual.

    A person whose cell is not known gets no counts, and so the widest draws.
    """

    kind: ClassVar[str] = "residual"
    cells: CellCounts  # counts of the cells
    # Of the residual's settings; every draw has settings of its own.
    profile: pi.ResidualProfile

    @property
    def is_posterior(self) -> bool:
        """Draws are the posterior of each cell's law."""
        return True

    def atoms(self, z: Encoded) -> pb.Atoms:
        """Averages the sampler's atoms and the frequencies, as the draws do."""
        counts = self.cells.find(z)
        atoms, is_rare = self.inner.atoms(z), self._is_rare(counts)
        return pi.residual_mean(atoms, *_split(counts), self.profile, is_rare)

    def draws(self, key: jax.Array, z: Encoded, num_draws: int) -> pb.Atoms:
        """Draws the sampler's atoms, then the law of each cell about them."""
        seed = int(np.asarray(jax.random.key_data(key)).astype(np.uint64).sum())
        number: dict[bytes, int] = {}  # of each cell, as they come
        place = [number.setdefault(name, len(number)) for name in _names(z)]
        _, first = np.unique(place, return_index=True)
        cells = z[first]
        drawn, settings = self._draw_inner(key, cells, num_draws, seed)
        counts = self.cells.find(cells)
        # A cell's randomness is its own, whoever else is asked about.
        rngs = [
            np.random.default_rng([seed, int.from_bytes(name, "little")])
            for name in number
        ]
        atoms = pi.draw_residual(
            rngs, drawn, *_split(counts), settings, self._is_rare(counts)
        )
        if len(cells) == len(z):
            return atoms
        return pb.Atoms(atoms.joint[:, place], atoms.mu[:, place])

    def _draw_inner(
        self, key: jax.Array, z: Encoded, num_draws: int, seed: int
    ) -> tuple[pb.Atoms, pi.ResidualSettings]:
        """Draws settings, and the sampler's atoms scaled by them."""
        rng = np.random.default_rng(seed)
        linear = linear_draws(self.inner, key, z, num_draws)
        if linear is not None:
            settings = self.profile.sample(rng, num_draws)
            return linear.scale(settings.draw_scale).atoms(), settings
        drawn = self.inner.draws(key, z, num_draws)
        # A bootstrap has as many draws as it solved for.
        settings = self.profile.sample(rng, len(drawn.mu))
        return pi.scale_draws(drawn, settings.draw_scale), settings

    def _is_rare(self, counts: Float[np.ndarray, "n counts"]) -> Bool[np.ndarray, " n"]:
        """Tells which cells are rare; one that is not known is."""
        return counts.sum(axis=1) <= self.profile.rare_size

    def settings(self) -> Mapping[str, Any]:
        """Returns counts and profile."""
        return {
            "z": self.cells.z,
            "counts": self.cells.counts,
            "weight": self.profile.weight,
            "log_likelihood": self.profile.log_likelihood,
            "rare_size": self.profile.rare_size,
            **self.profile.settings._asdict(),
        }

    @classmethod
    def from_settings(cls, inner: Sampler, settings: dict[str, np.ndarray]) -> Self:
        """Undoes `settings`."""
        fields = [settings[name] for name in pi.ResidualSettings._fields]
        profile = pi.ResidualProfile(
            pi.ResidualSettings(*fields),
            settings["weight"],
            settings["log_likelihood"],
            float(settings["rare_size"]),
        )
        return cls(inner, CellCounts(settings["z"], settings["counts"]), profile)


def _names(z: Encoded) -> list[bytes]:
    """Hashes rows; -0.0 and 0.0 are one value."""
    rows = np.ascontiguousarray(z, np.float32) + np.float32(0)
    return [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows]


def _split(counts: Float[np.ndarray, "n counts"]) -> tuple[np.ndarray, np.ndarray]:
    """Parts the counts of log and trial, each [n, treatments, levels]."""
    parts = counts.reshape(-1, 2, *pb.BINARY.joint_shape)
    return parts[:, 0], parts[:, 1]


def choose_cells(
    z: Encoded,
    cell: Int[np.ndarray, " n"],
    totals: Float[np.ndarray, "num_cells counts"],
    least_size: int,
) -> CellCounts:
    """Keeps the cells with enough units."""
    first = np.unique(cell, return_index=True)[1]
    kept = totals.sum(axis=1) >= least_size
    return CellCounts(z[first[kept]], totals[kept])
