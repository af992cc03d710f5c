"""How far a stack is from the truth, by how its loss falls with the number of units.

The loss that the best possible model would have is not known, so neither is the excess of
ours. But stacks fitted to a quarter and to a sixteenth of the units show how fast the loss
falls. With L(q) the held-out loss of a stack that sees a share q,

    drop = L(1/4) - L(1),   rate = (L(1/16) - L(1/4)) / drop.

If the excess falls as n^-b, the rate is 4^b, and the excess is drop / (rate - 1). Measured
rates are noisy, and this expression explodes where they are close to 1. On development
worlds the excess was close to drop / rate^(3/4), which is nearly the same for regular
problems (rate 4) and stays finite for slow ones.

Losses are means over the same rows, so that their differences have small standard errors.
Each source has its drop, replaced by an upper confidence limit; the rate is that of both
together. The excess is at least that of frequencies where no covariate matters, half a
free number per unit.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from pns_bounds import BINARY

SHARES = (1 / 4, 1 / 16)  # of the units
_LIMIT = 2.0  # standard errors that are added to the drop
_POWER = 0.75  # of the rate
_RATES = (0.5, 4.0)  # between which it is moved
# Of the laws of one covariate vector: that of the log, and those of the arms.
_FREE_NUMBERS = np.array(
    [BINARY.num_cells - 1, BINARY.num_treatments * (BINARY.num_levels - 1)]
)

Losses = Float[np.ndarray, "n sources"]  # sums over the units of each row


class LearningCurve(NamedTuple):
    """What losses say of the excess.

    Attributes:
      drop: L(1/4) - L(1).
      error: its standard error.
      rate: by how much the drop before was larger.
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
    excess = (np.maximum(drop, 0.0) + _LIMIT * error) / rate**_POWER
    return LearningCurve(
        drop, error, rate, np.maximum(excess, _FREE_NUMBERS / (2 * sizes))
    )
