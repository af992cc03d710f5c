"""Members that are stuck: their training ended far from where it can end.

A bottleneck finds the linear combinations that matter, or all but one of them, and then no
step leads out. The average of all members would keep their error.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from pns_bounds import BINARY

from pns_models._data import Counts, flat_weights
from pns_models._held_out import flat_logs

_TIMES = 3  # the error of the best of a fold, which that of a stuck member exceeds


def find_stuck(
    raw: Float[np.ndarray, "m n raw"],
    counts: Counts,
    fold: Int[np.ndarray, " n"],
    by_fold: Int[np.ndarray, "num_folds members_per_fold"],
) -> Bool[np.ndarray, " m"]:
    """Finds members that are far worse than the best of their fold, on what both saw.

    If two members err independently, the difference of their losses is the difference of
    their errors (as Kullback-Leibler divergences from the truth), and the divergence
    between the two is the sum. So the ratio of the errors is known without the truth.
    """
    weights = flat_weights(counts).astype(np.float64)
    is_stuck = np.zeros(len(raw), bool)
    for held_out, members in enumerate(by_fold):
        seen = weights * (fold != held_out)[:, None]
        is_stuck[members] = _are_far(flat_logs(raw[members]), seen)
    return is_stuck


def _are_far(
    logs: Float[np.ndarray, "k n counts"], weights: Float[np.ndarray, "n counts"]
) -> Bool[np.ndarray, " k"]:
    """Tells whose error is more than `_TIMES` that of the one with the least loss."""
    num, (_, levels) = BINARY.num_cells, BINARY.joint_shape
    units = weights.reshape(len(weights), -1, num).sum(axis=(0, 2))
    weights = weights / np.repeat(np.maximum(units, 1), num)
    losses = -np.einsum("knc,nc->k", logs, weights)
    best = logs[np.argmin(losses)]
    joint = weights[:, :num].sum(axis=1, keepdims=True).repeat(num, axis=1)
    arms = weights[:, num:].reshape(len(weights), -1, levels)
    arms = arms.sum(axis=2).repeat(levels, axis=1)
    expected = np.concatenate([joint, arms], axis=1) * np.exp(best)
    divergence = np.einsum("nc,knc->k", expected, best - logs)
    return losses - losses.min() > divergence * (_TIMES - 1) / (_TIMES + 1)


def replacements(
    is_stuck: Bool[np.ndarray, " m"],
    by_fold: Int[np.ndarray, "num_folds members_per_fold"],
) -> Int[np.ndarray, " m"]:
    """Names the member that takes each one's place: another of its fold if it is stuck."""
    order = np.arange(len(is_stuck))
    for members in by_fold:
        mine = is_stuck[members]
        order[members[mine]] = np.resize(members[~mine], mine.sum())
    return order
