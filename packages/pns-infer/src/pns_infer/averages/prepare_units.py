"""Held-out units made ready for averages: shifted arms, and one target population."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pns_infer.averages.arm_shift import ArmShift, shift_arms
from pns_infer.averages.held_out import HeldOutUnits
from pns_infer.averages.linear_means import Source
from pns_infer.averages.score_test import ScoreTest
from pns_infer.averages.source_model import (
    compare_sources,
    source_probability,
    target_ratio,
)

_DIFFERENT = 0.05  # p-value below which the sources' laws are taken to differ


class PreparedUnits(NamedTuple):
    """Findings about the two sources, and the units that averages are computed from.

    Attributes:
      units: with shifted mu, and a ratio where the sources' laws differ.
      arms: how far mu was shifted in each arm.
      laws: test of whether the covariates of both sources have one law.
      chance: of each row to be experimental, by a model that did not see it; None where
        the laws agree.
    """

    units: HeldOutUnits
    arms: ArmShift
    laws: ScoreTest
    chance: Float[np.ndarray, " n"] | None

    def toward(self, source: Source) -> "PreparedUnits":
        """Weights the units toward the covariates of a source; fits nothing again."""
        if self.chance is None:
            return self
        ratio = target_ratio(self.chance, self.units.is_experimental, source)
        return self._replace(units=self.units._replace(ratio=ratio))

    @property
    def effective_sizes(self) -> tuple[float, float] | None:
        """Effective sample sizes of log and trial; None where nothing is reweighted."""
        ratio, copies = self.units.ratio, self.units.copies
        if ratio is None:
            return None
        parts = (~self.units.is_experimental, self.units.is_experimental)
        log, trial = (
            float(copies[part] @ ratio[part]) ** 2
            / float(copies[part] @ ratio[part] ** 2)
            for part in parts
        )
        return log, trial


def prepare_units(
    units: HeldOutUnits,
    z: Float[np.ndarray, "n d"],
    fold: Int[np.ndarray, " n"],
    source: Source = "both",
) -> PreparedUnits:
    """Shifts the arms, tests the sources' laws, and reweights if they differ.

    Args:
      units: rows of both sources; their `ratio` is replaced.
      z: covariates of the rows.
      fold: of each row; everything is fitted on other folds than it is used for.
      source: whose covariates the target population has.

    Example:
      >>> import numpy as np
      >>> from pns_infer.averages.held_out import example_units
      >>> units = example_units()
      >>> fold = np.arange(16) % 2
      >>> found = prepare_units(units, np.repeat([[0.0], [1.0]], 8, axis=0), fold)
      >>> found.laws.p_value, found.units.ratio  # the strata are as large in both sources
      (1.0, None)
    """
    shifted, arms = shift_arms(units, fold)
    laws = compare_sources(
        z, units.is_experimental, units.weights, units.cluster, units.copies
    )
    chance = None
    if laws.p_value < _DIFFERENT:
        chance = source_probability(
            z, units.is_experimental, fold, units.weights, units.copies
        )
    prepared = PreparedUnits(shifted._replace(ratio=None), arms, laws, chance)
    return prepared.toward(source)
