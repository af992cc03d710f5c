"""Held-out units made ready for averages: calibrated arms, and one target population."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pns_infer.averages.arm_calibration import ArmCalibration, calibrate_arms
from pns_infer.averages.held_out import HeldOutUnits
from pns_infer.averages.linear_means import Source
from pns_infer.averages.score_test import ScoreTest
from pns_infer.averages.source_model import (
    RatioSummary,
    compare_sources,
    source_probability,
    target_ratio,
)

_DIFFERENT = 0.05  # p-value below which the sources' laws are taken to differ


class PreparedUnits(NamedTuple):
    """Units for averages, and what was found on the way.

    Attributes:
      units: with calibrated mu, and a ratio where the sources' laws differ.
      calibration: of the arms.
      laws: test of whether the covariates of both sources have one law.
      ratio: how reweighting thins the sources out; None where the laws agree.
    """

    units: HeldOutUnits
    calibration: ArmCalibration
    laws: ScoreTest
    ratio: RatioSummary | None


def prepare_units(
    units: HeldOutUnits,
    z: Float[np.ndarray, "n d"],
    fold: Int[np.ndarray, " n"],
    source: Source = "both",
) -> PreparedUnits:
    """Calibrates the arms, tests the sources' laws, and reweights if they differ.

    Args:
      units: rows of both sources; their `ratio` is replaced.
      z: covariates of the rows.
      fold: of each row; everything is fitted on other folds than it is used for.
      source: whose covariates the target population has.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from pns_infer import make_held_out_units
      >>> source = np.repeat([0, 1], 4000)
      >>> z = np.repeat([[0], [1], [1], [0]], [3000, 1000, 3000, 1000], axis=0)
      >>> x, y = np.tile([[0, 0, 1, 1], [0, 1, 0, 1]], 2000)
      >>> atoms = pb.Atoms(np.full((8000, 2, 2), 0.25), np.full((8000, 2), 0.5))
      >>> units = make_held_out_units(atoms, source == 1, x, y, assignment=0.5)
      >>> found = prepare_units(units, z, fold=np.arange(8000) // 4 % 2)
      >>> round(found.laws.statistic, 3)  # Pearson's chi-squared of source and z
      2000.0
      >>> found.units.ratio[[0, 3000]].round(1).tolist()  # 1 / 0.75 and 1 / 0.25
      [1.3, 4.0]
    """
    calibrated, calibration = calibrate_arms(units, fold)
    is_experimental = units.is_experimental
    laws = compare_sources(
        z, is_experimental, units.weights, units.cluster, units.copies
    )
    if laws.p_value >= _DIFFERENT:
        return PreparedUnits(
            calibrated._replace(ratio=None), calibration, laws, ratio=None
        )
    copies = units.copies
    chance = source_probability(z, is_experimental, fold, units.weights, copies=copies)
    ratio = target_ratio(chance, is_experimental, source, copies)
    calibrated = calibrated._replace(ratio=ratio.ratio)
    return PreparedUnits(calibrated, calibration, laws, ratio)
