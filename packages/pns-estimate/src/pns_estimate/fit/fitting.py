"""From rows to a calibrated sampler."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pns_infer as pi
import pns_models as pm

from pns_estimate._errors import InterruptedFitError, UserError
from pns_estimate.fit.calibration import calibrate_sampler
from pns_estimate.methods import Method, MethodFit, ScaledSampler, split_key
from pns_estimate.tables.preparation import few_rows_as_user_error


class CalibratedFit(NamedTuple):
    """What a method learned, its draws scaled; calibration is None if there was none."""

    learned: MethodFit
    sampler: ScaledSampler
    calibration: pi.DrawCalibration | None


def fit_method(
    key: jax.Array,
    rows: pm.Rows,
    method: Method,
    recipe: Any,
    calibrate: bool,
    progress: bool,
    checkpoint_dir: str | Path | None = None,
) -> CalibratedFit:
    """Fits a method and scales its draws to the largest factor held-out units allow.

    Args:
      key: decides everything.
      rows: of all tables, with the folds of the method.
      method: how uncertainty is represented.
      recipe: the method's settings.
      calibrate: whether to choose the scale of the draws on held-out units.
      progress: whether to show a bar.
      checkpoint_dir: where fits that are interrupted can go on; None keeps nothing.
    """
    if checkpoint_dir is not None:
        checkpoint_dir = Path(checkpoint_dir) / _name_fit(key, rows, method, recipe)
    with few_rows_as_user_error():
        try:
            learned = method.fit(key, rows, recipe, progress, checkpoint_dir)
        except pm.DivergedError as error:
            raise UserError(f"training failed: {error}") from error
        except pm.LostProcessError as error:
            raise InterruptedFitError(str(error)) from error
    sampler, held_out, standardizer = learned[:3]
    wanted = calibrate and not learned.is_calibrated
    if not (wanted and sampler.has_draws and len(held_out.z)):
        return CalibratedFit(learned, ScaledSampler(sampler), None)
    calibration = calibrate_sampler(
        split_key(key).calibrate, sampler, standardizer, held_out
    )
    scaled = ScaledSampler(sampler, calibration.interval[1])
    return CalibratedFit(learned, scaled, calibration)


def _name_fit(key: jax.Array, rows: pm.Rows, method: Method, recipe: Any) -> str:
    """Names a fit by everything that decides it, so that no other goes on with it."""
    result = hashlib.sha256(f"{method.name} {recipe!r}".encode())
    for part in (jax.random.key_data(key), *rows):
        if part is not None:
            result.update(np.ascontiguousarray(part).data)
    return result.hexdigest()[:16]
