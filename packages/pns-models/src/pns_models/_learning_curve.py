"""How far a stack is from the truth, by how its loss falls with the number of units.

The loss that the best possible model would have is not known, so neither is the excess of
ours. But if the excess falls as n^-b, stacks fitted to a quarter and to a sixteenth of the
units show it: with L(q) the held-out loss of a stack that sees a share q,

    drop = L(1/4) - L(1),   rate = (L(1/16) - L(1/4)) / drop = 4^b,
    excess = L(1) - L(infinite) = drop / (rate - 1).

Losses are means over the same rows, so that their differences have small standard errors.
Each source has its drop, replaced by an upper confidence limit; the rate is that of both
together, moved between limits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

SHARES = (0.25, 1 / 16)  # of the units; the first shows the noise of members, too
_LIMIT = 2.0  # standard errors that are added to the drop
# Powers b of 0.24, slower than which learning hardly is, and 1, of regular problems.
_RATES = (1.4, 4.0)

Losses = Float[np.ndarray, "n sources"]  # sums over the units of each row


class LearningCurve(NamedTuple):
    """What losses say of the excess.

    Attributes:
      drop: L(1/4) - L(1).
      error: its standard error.
      rate: 4^b.
      excess: of L(1) over the loss of the truth, cautiously.
    """

    drop: Float[np.ndarray, " sources"]
    error: Float[np.ndarray, " sources"]
    rate: float
    excess: Float[np.ndarray, " sources"]


def learning_curve(
    losses: Sequence[Losses], sizes: Float[np.ndarray, " sources"]
) -> LearningCurve:
    """Extrapolates the losses of stacks that see all units and each of `SHARES`.

    Args:
      losses: of each row, under each of these stacks.
      sizes: units of each source.
    """
    full, quarter, sixteenth = (each / sizes for each in losses)
    change, before = quarter - full, (sixteenth - quarter).sum()
    drop = change.sum(axis=0)
    error = np.sqrt(np.square(change - change.mean(axis=0)).sum(axis=0))
    rate = before / drop.sum() if drop.sum() > 0 else 0.0  # slow if nothing is learned
    rate = float(np.clip(rate, *_RATES))
    excess = (np.maximum(drop, 0.0) + _LIMIT * error) / (rate - 1)
    return LearningCurve(drop, error, rate, excess)
