"""From counts to a calibrated sampler."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pns_infer as pi
import pns_models as pm
from numpy.typing import ArrayLike

from pns_estimate._errors import InterruptedFitError, UserError
from pns_estimate.fit.calibration import calibrate_sampler
from pns_estimate.methods import (
    DealtFolds,
    Method,
    MethodFit,
    ScaledSampler,
    split_key,
)

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


@contextmanager
def few_rows_as_user_error() -> Iterator[None]:
    """Says in the words of the front door that there are too few rows."""
    try:
        yield
    except pm.TooFewRowsError as error:
        raise UserError(_TOO_FEW[error.part == "fold"]) from error


def fit_method(
    key: jax.Array,
    counts: pm.Counts,
    method: Method,
    recipe: Any,
    calibrate: bool,
    progress: bool,
    groups: ArrayLike | None = None,
    checkpoint_dir: str | Path | None = None,
    dealt: DealtFolds | None = None,
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
      checkpoint_dir: where fits that are interrupted can go on; None keeps nothing.
      dealt: folds of the rows, by a method that dealt them; None if it has yet to.
    """
    options: dict[str, Any] = {} if dealt is None else {"dealt": dealt}
    if checkpoint_dir is not None:
        name = _name_fit(key, counts, method, recipe, groups)
        options["checkpoint_dir"] = Path(checkpoint_dir) / name
    with few_rows_as_user_error():
        try:
            learned = method.fit(key, counts, recipe, progress, groups, **options)
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


def _name_fit(
    key: jax.Array,
    counts: pm.Counts,
    method: Method,
    recipe: Any,
    groups: ArrayLike | None,
) -> str:
    """Names a fit by everything that decides it, so that no other goes on with it."""
    result = hashlib.sha256(f"{method.name} {recipe!r}".encode())
    for part in (jax.random.key_data(key), *counts):
        result.update(np.asarray(part).tobytes())
    if groups is not None:
        result.update(repr(np.asarray(groups).tolist()).encode())
    return result.hexdigest()[:16]
