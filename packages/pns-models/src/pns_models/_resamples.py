"""Parts of the data, one for each member.

A member sees the units outside its fold: all of them, or of a random share of the units,
which is the same for one member of each fold. See `Stack` for what such members show.
"""

import functools

import numpy as np
from jaxtyping import Float, Int, Shaped
from pns_bounds import BINARY

from pns_models._data import FoldedCounts, flat_weights

Counts = Float[np.ndarray, "c sources treatments levels"]


class Resamples:
    """Entries of both sources, with weights for each member that are drawn when asked.

    An *entry* is a count that is not 0: units that share covariates, source, treatment
    and outcome, in whatever fold.

    Attributes:
      folded: the data.
      member_fold: the fold that each member does not see. The first members are one for
        each fold, in order, and share their units; so are the next.
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
        self.member_fold = np.tile(np.arange(folded.num_folds), per_fold)
        self._place = np.nonzero(self.total)
        self.cell, self.source, self.treatment, self.outcome = self._place
        # Of a function, not of a method: nothing refers back to these resamples, which
        # would keep them alive after their fit.
        thin = functools.partial(_thin, folded, share, seed)
        self._thinned = functools.lru_cache(1)(thin)

    @functools.cached_property
    def z(self) -> Float[np.ndarray, "c d"]:
        """Distinct covariate vectors, on the scale of the data."""
        return self.folded.cell_covariates()

    @functools.cached_property
    def total(self) -> Counts:
        """Counts of each cell."""
        return self._sum(np.ones(len(self.folded.fold)))

    def weights(self, member: int) -> Float[np.ndarray, " e"]:
        """Returns how many units of each entry a member sees; the same at every call."""
        fold = int(self.member_fold[member])
        if self.share == 1:
            return self.seen(fold)[self._place]
        units = self._thinned(member // self.folded.num_folds)
        return self._sum(self.folded.fold != fold, units)[self._place]

    def counts(self, member: int) -> Counts:
        """Returns what a member sees as counts of each cell."""
        counts = np.zeros_like(self.total)
        counts[self._place] = self.weights(member)
        return counts

    def held_out(self, fold: int) -> Float[np.ndarray, " e"]:
        """Counts the units of each entry in a fold."""
        return (self.total - self.seen(fold))[self._place]

    def seen(self, fold: int) -> Counts:
        """Sums the counts of each cell outside a fold."""
        return self._sum(self.folded.fold != fold)

    def _sum(
        self,
        chosen: Shaped[np.ndarray, " n"],
        units: Float[np.ndarray, "n counts"] | None = None,
    ) -> Counts:
        cell, size = self.folded.cell, int(self.folded.cell.max()) + 1
        units = flat_weights(self.folded.counts) if units is None else units
        result = np.empty((size, BINARY.num_counts))
        for column, out in zip(units.T, result.T, strict=True):
            out[:] = np.bincount(cell, column * chosen, size)
        return result.reshape(size, -1, *BINARY.joint_shape)


def _thin(
    folded: FoldedCounts, share: float, seed: int, number: int
) -> Float[np.ndarray, "n counts"]:
    """Draws a share of the units, the same for the members of all folds.

    Of a count that is not whole, the rest is seen or not as one unit.
    """
    rng = np.random.default_rng([seed, number])
    rest, whole = np.modf(flat_weights(folded.counts))
    result, some = np.zeros_like(whole), whole > 0
    result[some] = rng.binomial(whole[some].astype(int), share)
    if rest.any():
        result += rest * (rng.random(rest.shape) < share)
    return result
