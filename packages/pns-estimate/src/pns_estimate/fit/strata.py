"""Strata of similar people, for the test of whether two tables contradict each other."""

import dataclasses

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float

from pns_estimate.tables.preparation import PreparedTables

_MOST_STRATA = 64
_LEAST_PEOPLE = 100
_CONTRADICTION = 0.05  # p-value below which the tables contradict each other


@dataclasses.dataclass(frozen=True)
class Compatibility:
    """The test of whether the two sources contradict each other."""

    p_value: float  # of the hypothesis that they do not
    strata: int  # how many were compared
    constraint: str  # the inequality that comes nearest to failing
    slack: float  # of that inequality, negative where it fails
    statistic: float  # standard errors by which it fails

    @property
    def is_contradiction(self) -> bool:
        """Whether the sources contradict each other."""
        return self.p_value < _CONTRADICTION


def run_compatibility_test(key: jax.Array, prepared: PreparedTables) -> Compatibility:
    """Tests the tables in up to 64 strata of near neighbors.

    Strata are made larger until each has people in the log and in both arms. Within a
    stratum the tables are weighted to one law of the covariates.

    Args:
      key: decides ties between people, and the simulation of the critical value.
      prepared: both tables.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    rows = prepared.rows
    counts = rows.counts()
    observational, experimental = (np.asarray(part, float) for part in counts[1:])
    chance = _chance_by_cell(rows, prepared.comparison.chance)
    second = None
    if prepared.weights_are == "sampling":
        squares = rows.squares()
        second = (squares.observational, squares.experimental)
    # Neighbors with a tie are parted by their order, which must not tell their source.
    order = rng.permutation(len(counts.z))
    deviation = pm.make_standardizer(counts).deviation
    size = _first_size(len(counts.z), observational.sum() + experimental.sum())
    while True:
        stratum = pi.neighborhoods(np.asarray(counts.z), size, deviation, order)
        tables = pi.balanced_counts(
            stratum, chance, observational, experimental, second
        )
        if _least_people(*tables) >= _LEAST_PEOPLE / 2 or stratum.max() == 0:
            break
        size *= 2
    result = pi.compatibility_test(key, *tables)
    place = pb.CONSTRAINTS.index(result.constraint)
    return Compatibility(
        p_value=result.p_value,
        strata=int(stratum.max() + 1),
        constraint=result.constraint,
        slack=float(result.slack[result.stratum, place]),
        statistic=result.statistic,
    )


def _chance_by_cell(
    rows: pm.Rows, chance: Float[np.ndarray, " n"] | None
) -> Float[np.ndarray, " num_cells"]:
    """Averages the chance to be in the trial over the rows of each cell."""
    if chance is None:
        chance = np.full(len(rows.z), 0.5)
    _, place = pm.distinct_rows(rows.cell)
    return np.bincount(place, rows.weights * chance) / np.bincount(place, rows.weights)


def _first_size(num_rows: int, num_people: float) -> int:
    """Returns rows per stratum, few if rows are merged and hold many people each."""
    if num_people > 4 * num_rows:
        return max(1, num_rows // _MOST_STRATA)
    return max(_LEAST_PEOPLE, -(-num_rows // _MOST_STRATA))


def _least_people(
    observational: Float[np.ndarray, "num_strata treatments levels"],
    experimental: Float[np.ndarray, "num_strata treatments levels"],
) -> float:
    """Returns the least size of a table in a stratum, an arm counted twice."""
    return min(observational.sum((1, 2)).min(), 2 * experimental.sum(2).min())
