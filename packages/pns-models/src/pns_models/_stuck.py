"""Members that are stuck: their training ended far from where it can end.

A bottleneck finds the linear combinations that matter, or all but one of them, and then no
step leads out. The average of all members would keep their error.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pns_models._data import flat_weights
from pns_models._folds import FoldedCounts
from pns_models._links import log_probabilities
from pns_models._member_groups import (
    MemberGroup,
    members_by_fold,
    raw_blocks,
    some_rows,
)

_ROWS = 32_768  # that members are compared on, at most
_TIMES = 3  # the error of the best of a fold, which that of a stuck member exceeds


def find_stuck(
    group: MemberGroup, folded: FoldedCounts, z: Float[Array, "n d"]
) -> Bool[np.ndarray, " m"]:
    """Finds members that are far worse than the best of their fold, on what both saw.

    If two members err independently, the difference of their losses is the difference of
    their errors (as Kullback-Leibler divergences from the truth), and the divergence
    between the two is the sum. So the ratio of the errors is known without the truth.

    Args:
      group: as many members for each fold.
      folded: the data.
      z: its covariates, standardized.
    """
    some, some_z = some_rows(folded, z, _ROWS)
    raw = np.concatenate(list(raw_blocks(group, some_z)), axis=1)
    parts = log_probabilities(jnp.asarray(raw), "anchored")
    logs = np.concatenate(
        [np.asarray(part, np.float64).reshape(*raw.shape[:2], 4) for part in parts], 2
    )
    weights = flat_weights(some.counts).astype(np.float64)
    is_stuck = np.zeros(len(logs), bool)
    for fold, members in enumerate(members_by_fold(group)):
        seen = weights * (some.fold != fold)[:, None]
        is_stuck[members] = _are_far(logs[members], seen)
    return is_stuck


def _are_far(
    logs: Float[np.ndarray, "k n 8"], weights: Float[np.ndarray, "n 8"]
) -> Bool[np.ndarray, " k"]:
    """Tells whose error is more than `_TIMES` that of the one with the least loss."""
    units = weights.reshape(-1, 2, 4).sum(axis=(0, 2))
    weights = weights / np.repeat(np.maximum(units, 1), 4)
    losses = -np.einsum("knc,nc->k", logs, weights)
    best = logs[np.argmin(losses)]
    joint = weights[:, :4].sum(axis=1, keepdims=True).repeat(4, axis=1)
    arms = weights[:, 4:].reshape(-1, 2, 2).sum(axis=2).repeat(2, axis=1)
    expected = np.concatenate([joint, arms], axis=1) * np.exp(best)
    divergence = np.einsum("nc,knc->k", expected, best - logs)
    return losses - losses.min() > divergence * (_TIMES - 1) / (_TIMES + 1)


def replace_stuck(group: MemberGroup, is_stuck: Bool[np.ndarray, " m"]) -> MemberGroup:
    """Puts copies of the others of the same fold in the place of stuck members."""
    order = np.arange(len(is_stuck))
    for members in members_by_fold(group):
        mine = is_stuck[members]
        order[members[mine]] = np.resize(members[~mine], mine.sum())
    return group._replace(params=jax.tree.map(lambda leaf: leaf[order], group.params))
