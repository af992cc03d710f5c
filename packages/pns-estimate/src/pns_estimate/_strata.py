"""Strata of similar people, for the test of whether two tables contradict each other."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm

_MOST_STRATA = 64
_LEAST_PEOPLE = 100


def run_compatibility_test(
    key: jax.Array, counts: pm.Counts, standardizer: Callable[[np.ndarray], np.ndarray]
) -> dict[str, Any]:
    """Tests the tables in up to 64 strata of near neighbors.

    Strata are made larger until each has people in the survey and in both arms.
    """
    z = standardizer(counts.z)
    size = max(_LEAST_PEOPLE, -(-len(z) // _MOST_STRATA))
    cells = [np.asarray(part, float) for part in counts[1:]]
    if sum(part.sum() for part in cells) > 4 * len(z):
        size = max(1, len(z) // _MOST_STRATA)  # merged rows hold many people each
    while True:
        groups = pi.neighborhoods(z, size)
        sums = [np.zeros((groups.max() + 1, 2, 2)) for _ in cells]
        for total, part in zip(sums, cells, strict=True):
            np.add.at(total, groups, part)
        observational, experimental = sums
        least = min(observational.sum((1, 2)).min(), 2 * experimental.sum(2).min())
        if least >= _LEAST_PEOPLE / 2 or groups.max() == 0:
            break
        size *= 2
    result = pi.compatibility_test(key, observational, experimental)
    place = pb.CONSTRAINTS.index(result.constraint)
    return {
        "p_value": result.p_value,
        "strata": int(groups.max() + 1),
        "constraint": result.constraint,
        "slack": float(result.slack[result.stratum, place]),
        "statistic": result.statistic,
    }
