"""People in order of a score: shares of a population that ties do not upset."""

import numpy as np
from jaxtyping import Float, Int


def rank_limits(
    score: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    fold: Int[np.ndarray, " n"] | None = None,
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Returns the share of weight below each score, and below or equal to it.

    Rows of weight 0 are ranked among the others. Ranks are within folds, as models of
    different folds score differently.
    """
    below, upto = np.empty(len(score)), np.empty(len(score))
    fold = np.zeros(len(score), int) if fold is None else np.asarray(fold)
    for name in np.unique(fold):
        inside = fold == name
        _, place = np.unique(score[inside], return_inverse=True)
        mass = np.bincount(place, weights[inside])
        total = np.cumsum(mass)
        below[inside] = ((total - mass) / total[-1])[place]
        upto[inside] = (total / total[-1])[place]
    return below, upto


def share_between(
    limits: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]],
    low: float,
    high: float,
) -> Float[np.ndarray, " n"]:
    """Returns how much of each row lies between two ranks; tied rows are split alike.

    A fraction is the chance that breaking ties at random would put the row there. It is
    a function of the score, so it means the same in both sources.
    """
    below, upto = limits
    overlap = np.minimum(upto, high) - np.maximum(below, low)
    mass = upto - below
    share = np.clip(overlap / np.where(mass > 0, mass, 1), 0, 1)
    share = np.where(share < 1e-12, 0.0, share)
    # A rank that only rows of weight 0 have is a point.
    is_inside = (below >= low) & ((below < high) | ((high >= 1) & (below >= 1)))
    return np.where(mass > 0, share, is_inside)
