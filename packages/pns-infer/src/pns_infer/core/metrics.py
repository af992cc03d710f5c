"""How good intervals are when the truth is known (app:metrics)."""

from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float

from pns_infer.core.inputs import check_alpha, check_shape

Array = Any  # NumPy or JAX


class Scores(NamedTuple):
    """Means over the points of one replicate.

    Attributes:
      valid: fraction of points whose estimated atoms are compatible; NaN if not given.
      point_coverage: fraction of intervals that contain the true value.
      set_coverage: fraction that contain the identified set.
      width: mean width; an empty interval has width 0.
      score: Winkler interval score of the true value; less is better.
      oracle_width: mean width of the identified set, below which no interval can fall
        that covers it.
      empty: fraction of intervals whose ends cross.
    """

    valid: float
    point_coverage: float
    set_coverage: float
    width: float
    score: float
    oracle_width: float
    empty: float


def score_intervals(
    interval: Any,
    value: Float[Array, " num_points"],
    truth: pb.Interval,
    alpha: float = 0.05,
    atoms: pb.Atoms | None = None,
) -> Scores:
    """Scores the intervals of one replicate.

    The interval is anything with `lower` and `upper` [num_points], such as
    CorrectedIntervals, Band or pns_bounds.Interval. Estimated atoms, if given, are
    judged by their validity.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> truth = pb.Interval(np.array([0.2, 0.3]), np.array([0.4, 0.5]))
      >>> wide = pb.Interval(np.array([0.1, 0.35]), np.array([0.5, 0.6]))
      >>> score_intervals(wide, np.array([0.3, 0.4]), truth).set_coverage
      0.5
    """
    check_alpha(alpha)
    lower, upper, value, low, high = (
        np.asarray(part, float)
        for part in (interval.lower, interval.upper, value, truth.lower, truth.upper)
    )
    names = ("lower", "upper", "value", "truth.lower", "truth.upper")
    for name, part in zip(names, (lower, upper, value, low, high), strict=True):
        check_shape(name, part, (len(lower) if lower.ndim else 1,))
        if not len(part) or not np.all(np.isfinite(part)):
            raise pb.InputError(name, "must be finite numbers, one for each point.")
    miss = np.maximum(lower - value, 0) + np.maximum(value - upper, 0)
    valid = np.nan
    if atoms is not None:
        valid = float(np.mean(pb.is_compatible(atoms)))
    return Scores(
        valid=valid,
        point_coverage=float(np.mean((lower <= value) & (value <= upper))),
        set_coverage=float(np.mean((lower <= low) & (high <= upper))),
        width=float(np.mean(np.maximum(upper - lower, 0))),
        score=float(np.mean(upper - lower + 2 / alpha * miss)),
        oracle_width=float(np.mean(high - low)),
        empty=float(np.mean(lower > upper)),
    )
