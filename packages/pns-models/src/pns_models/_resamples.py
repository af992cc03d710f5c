"""Parts of the data, one for each member.

A member sees the units outside its fold: all of them, or of a random share of the units,
which is the same for one member of each fold. See `LearningCurve` for what such members
show.
"""

import functools

import numpy as np
from jaxtyping import Float, Int
from pns_bounds import BINARY

from pns_models._data import FoldedCounts, flat_weights
from pns_models._rows import SOURCES

Counts = Float[np.ndarray, "c sources treatments levels"]


class Resamples:
    """Entries of both sources, with weights for each member that are drawn when asked.

    An *entry* is a count that is not 0: units that share covariates, source, treatment
    and outcome, in whatever fold.

    Attributes:
      folded: the data.
      member_fold: the fold that each member does not see. The first members are one for
        each fold, in order, and share their units; so are the next.
      per_fold: how many members do not see each fold.
      share: of the units outside its fold, those that a member sees.
      seed: decides which these are.
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
        folded: FoldedCounts,
        per_fold: int = 1,
        share: float = 1.0,
        seed: int = 0,
    ):
        """Lists the entries.

        Args:
          folded: the data.
          per_fold: how many members do not see each fold.
          share: of the units outside its fold, those that a member sees.
          seed: decides which these are.
        """
        self.folded, self.share, self.seed = folded, share, seed
        self.per_fold = per_fold
        self.member_fold = np.tile(np.arange(folded.num_folds), per_fold)
        units = flat_weights(folded.counts)
        row, count = np.nonzero(units)
        self._units, self._fold = units[row, count], folded.fold[row]
        shape = (int(folded.cell.max()) + 1, len(SOURCES), *BINARY.joint_shape)
        index, self._entry = np.unique(
            folded.cell[row] * units.shape[1] + count, return_inverse=True
        )
        self._place, self._shape = np.unravel_index(index, shape), shape
        self.cell, self.source, self.treatment, self.outcome = self._place
        # Of a function, not of a method: nothing refers back to these resamples, which
        # would keep them alive after their fit.
        thin = functools.partial(_thin, folded, share, seed)
        self._thinned = functools.lru_cache(1)(thin)

    @functools.cached_property
    def z(self) -> Float[np.ndarray, "c d"]:
        """Distinct covariate vectors, on the scale of the data."""
        return self.folded.cell_covariates()

    @property
    def covariate(self) -> Int[np.ndarray, " d"]:
        """The covariate that each column of `z` belongs to, see `Rows`."""
        known = self.folded.covariate
        return np.arange(self.z.shape[1]) if known is None else known

    @property
    def total(self) -> Counts:
        """Counts of each cell."""
        return self._by_cell(self._sum(self._units))

    def weights(self, member: int) -> Float[np.ndarray, " e"]:
        """Returns how many units of each entry a member sees; the same at every call."""
        units = self._units
        if self.share < 1:
            units = self._thinned(member // self.folded.num_folds)
        return self._sum(units * (self._fold != self.member_fold[member]))

    def counts(self, member: int) -> Counts:
        """Returns what a member sees as counts of each cell."""
        return self._by_cell(self.weights(member))

    def held_out(self, fold: int) -> Float[np.ndarray, " e"]:
        """Counts the units of each entry in a fold."""
        return self._sum(self._units * (self._fold == fold))

    def seen(self, fold: int) -> Counts:
        """Sums the counts of each cell outside a fold."""
        return self._by_cell(self._sum(self._units * (self._fold != fold)))

    def _sum(self, units: Float[np.ndarray, " p"]) -> Float[np.ndarray, " e"]:
        """Adds up the units of each entry, which may lie in several folds."""
        return np.bincount(self._entry, units, len(self.cell))

    def _by_cell(self, weights: Float[np.ndarray, " e"]) -> Counts:
        counts = np.zeros(self._shape)
        counts[self._place] = weights
        return counts


def _thin(
    folded: FoldedCounts, share: float, seed: int, number: int
) -> Float[np.ndarray, " p"]:
    """Draws a share of the units that are not 0, the same for members of all folds.

    Of a count that is not whole, the rest is seen or not as one unit.
    """
    rng = np.random.default_rng([seed, number])
    units = flat_weights(folded.counts)
    rest, whole = np.modf(units[units > 0])
    thinned = rng.binomial(whole.astype(int), share)
    return thinned + rest * (rng.random(units.shape)[units > 0] < share)
