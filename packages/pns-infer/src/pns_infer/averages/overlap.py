"""Counts of strata as if both sources had one law of covariates.

Units of a stratum are similar, not equal. If the covariates of the sources have different
laws, so do their frequencies in the stratum, although the law given covariates is the same.
Overlap weights undo that: an observational unit counts by the chance that one with its
covariates is experimental, and the other way around; then both sources have the covariates'
law with density proportional to e (1 - e), e that chance.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num

from pns_infer.core.sums import sum_by

Array = Any  # NumPy or JAX


def balanced_counts(
    stratum: Int[np.ndarray, " n"],
    chance: Float[np.ndarray, " n"],
    observational: Num[Array, "n treatments levels"],
    experimental: Num[Array, "n treatments levels"],
    squares: tuple[Num[Array, "n treatments levels"], Num[Array, "n treatments levels"]]
    | None = None,
) -> tuple[
    Float[np.ndarray, "num_strata treatments levels"],
    Float[np.ndarray, "num_strata treatments levels"],
]:
    """Sums rows by stratum with overlap weights, on the scale of effective sample sizes.

    Frequencies are weighted ones. Totals, of a stratum's observational counts and of
    each of its arms, are Kish's effective sample sizes (sum w)^2 / sum w^2, so counts
    may be taken as if they were counts of independent units, for `compatibility_test`.

    Args:
      stratum: of each row, from 0.
      chance: that a unit with the row's covariates is experimental.
      observational: counts `[..., x, y]`, or sums of weights.
      experimental: counts `[..., arm, y]`, or sums of weights.
      squares: sums of squared weights where counts are sums of weights; if None, a count
        of c is c units of weight 1.

    Example:
      >>> import numpy as np
      >>> # Units of the first row all respond, those of the second never do.
      >>> observational = np.array([[[0, 5], [0, 5]], [[15, 0], [15, 0]]])
      >>> experimental = np.array([[[0, 15], [0, 15]], [[5, 0], [5, 0]]])
      >>> stratum, chance = np.array([0, 0]), np.array([0.75, 0.25])
      >>> tables = balanced_counts(stratum, chance, observational, experimental)
      >>> [float(t[..., 1].sum() / t.sum()) for t in tables]  # 1/4 and 3/4 before
      [0.5, 0.5]
    """
    parts = (np.asarray(observational, float), np.asarray(experimental, float))
    seconds = parts if squares is None else [np.asarray(s, float) for s in squares]
    factors = (chance[:, None, None], 1 - chance[:, None, None])
    # All observational cells have one total, the cells of each arm another.
    axes = ((1, 2), (2,))
    results = []
    for part, second, factor, axis in zip(parts, seconds, factors, axes, strict=True):
        sums = sum_by(stratum, part * factor)
        weight = sums.sum(axis=axis, keepdims=True)
        square = sum_by(stratum, second * factor**2).sum(axis=axis, keepdims=True)
        scale = np.divide(weight, square, out=np.zeros_like(weight), where=square > 0)
        results.append(sums * scale)
    return results[0], results[1]
