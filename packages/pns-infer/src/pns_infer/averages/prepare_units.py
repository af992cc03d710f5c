"""Held-out units made ready for averages: shifted arms, and one target population."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pns_infer.averages.arm_shift import ArmShift, shift_arms
from pns_infer.averages.held_out import HeldOutUnits
from pns_infer.averages.linear_means import Source
from pns_infer.averages.source_model import SourceComparison, target_ratio


class PreparedUnits(NamedTuple):
    """Findings about the two sources, and the units that averages are computed from.

    Units have shifted mu (`arms` says how far), and a ratio where the laws of the
    sources' covariates differ.
    """

    units: HeldOutUnits
    arms: ArmShift
    comparison: SourceComparison

    def toward(self, source: Source) -> "PreparedUnits":
        """Weights the units toward the covariates of a source; fits nothing again."""
        if self.comparison.chance is None:
            return self
        ratio = target_ratio(self.comparison.chance, self.units.is_experimental, source)
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
    fold: Int[np.ndarray, " n"],
    comparison: SourceComparison,
    source: Source = "both",
) -> PreparedUnits:
    """Shifts the arms, and reweights the sources if their laws differ.

    Args:
      units: rows of both sources; their `ratio` is replaced.
      fold: of each row; everything is fitted on other folds than it is used for.
      comparison: of the sources' covariates, from `compare_sources`.
      source: whose covariates the target population has.

    Example:
      >>> import numpy as np
      >>> from pns_infer import compare_sources
      >>> from pns_infer.averages.held_out import example_units
      >>> units, fold = example_units(), np.arange(16) % 2
      >>> z = np.repeat([[0.0], [1.0]], 8, axis=0)
      >>> comparison = compare_sources(z, units.is_experimental, fold)
      >>> found = prepare_units(units, fold, comparison)
      >>> comparison.laws.p_value, found.units.ratio  # strata are as large in both
      (1.0, None)
    """
    shifted, arms = shift_arms(units, fold)
    prepared = PreparedUnits(shifted._replace(ratio=None), arms, comparison)
    return prepared.toward(source)
