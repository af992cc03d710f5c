"""Bootstrap resamples of the data, one for each member.

Every unit that a member sees has a weight from Exp(1), so c units that share covariates,
source, treatment and outcome have Gamma(c, 1) in all. Units of the member's fold have 0.
"""

import functools
from typing import cast

import numpy as np
from jaxtyping import Float, Int
from pns_bounds import BINARY

from pns_models._data import FoldedCounts, flat_weights


class Resamples:
    """Entries of both sources, with weights for each member that are drawn when asked.

    An *entry* is a count that is not 0: units that share covariates, source, treatment
    and outcome, in whatever fold.

    Attributes:
      folded: the data.
      member_fold: the fold that each member does not see.
      cell: of each entry, its covariates: a row of `z`.
      source: of each entry, a place in `SOURCES`: 0 the log, 1 the trial.
      treatment: of each entry.
      outcome: of each entry.
    """

    cell: Int[np.ndarray, " e"]
    source: Int[np.ndarray, " e"]
    treatment: Int[np.ndarray, " e"]
    outcome: Int[np.ndarray, " e"]

    def __init__(
        self,
        rng: np.random.Generator,
        folded: FoldedCounts,
        member_fold: Int[np.ndarray, " m"],
    ):
        """Lists the entries."""
        self.folded, self.member_fold = folded, member_fold
        seed = cast("np.random.SeedSequence", rng.bit_generator.seed_seq)
        self._seeds = seed.spawn(len(member_fold))
        self.cell, place = np.nonzero(folded.cell_totals() > 0)
        shape = (BINARY.num_counts // BINARY.num_cells, *BINARY.joint_shape)
        self.source, self.treatment, self.outcome = np.unravel_index(place, shape)
        self._place = place
        self.seen = functools.lru_cache(1)(self._sum_seen)

    @functools.cached_property
    def z(self) -> Float[np.ndarray, "c d"]:
        """Distinct covariate vectors, on the scale of the data."""
        return self.folded.cell_covariates()

    def weights(self, member: int) -> Float[np.ndarray, " e"]:
        """Draws a member's weights of all entries; the same at every call."""
        seen = self.seen(int(self.member_fold[member]))
        rng = np.random.default_rng(self._seeds[member])
        return rng.standard_gamma(seen[self.cell, self._place])

    def _sum_seen(self, fold: int) -> Float[np.ndarray, "c counts"]:
        """Sums the counts of each cell outside a fold."""
        folded = self.folded
        weights = flat_weights(folded.counts) * (folded.fold != fold)[:, None]
        size = int(folded.cell.max()) + 1
        return np.stack([np.bincount(folded.cell, w, size) for w in weights.T], axis=1)
