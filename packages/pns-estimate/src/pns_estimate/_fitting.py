"""From counts to a calibrated sampler."""

from typing import Any, NamedTuple

import jax
import pns_infer as pi
import pns_models as pm
from numpy.typing import ArrayLike

from pns_estimate._calibration import calibrate_sampler
from pns_estimate._errors import UserError
from pns_estimate.methods import Method, MethodFit, ScaledSampler, split_key

_TOO_FEW = {
    False: "there are too few people to learn from: some of both tables are held out to "
    "judge the fit; give larger tables, or smaller groups.",
    True: "there are too few people to hold out one part after another: each part needs "
    "people of the observational table and of both arms of the experimental one; give "
    "larger tables, smaller groups, fewer folds in the recipe, or another method.",
}


class CalibratedFit(NamedTuple):
    """What a method learned, its draws scaled; calibration is None if there was none."""

    learned: MethodFit
    sampler: ScaledSampler
    calibration: pi.DrawCalibration | None


def fit_method(
    key: jax.Array,
    counts: pm.Counts,
    method: Method,
    recipe: Any,
    calibrate: bool,
    progress: bool,
    groups: ArrayLike | None = None,
) -> CalibratedFit:
    """Fits a method and scales its draws to the largest factor held-out units allow.

    Args:
      key: decides everything.
      counts: both tables, row by row.
      method: how uncertainty is represented.
      recipe: the method's settings.
      calibrate: whether to choose the scale of the draws on held-out units.
      progress: whether to show a bar.
      groups: of each row, a label; rows of a group are held out together.
    """
    try:
        learned = method.fit(key, counts, recipe, progress, groups)
    except pm.DivergedError as error:
        raise UserError(f"training failed: {error}") from error
    except pm.TooFewRowsError as error:
        raise UserError(_TOO_FEW[error.part == "fold"]) from error
    sampler, held_out, standardizer = learned[:3]
    wanted = calibrate and not learned.is_calibrated
    if not (wanted and sampler.has_draws and len(held_out.z)):
        return CalibratedFit(learned, ScaledSampler(sampler), None)
    calibration = calibrate_sampler(
        split_key(key).calibrate, sampler, standardizer, held_out
    )
    scaled = ScaledSampler(sampler, calibration.interval[1])
    return CalibratedFit(learned, scaled, calibration)
