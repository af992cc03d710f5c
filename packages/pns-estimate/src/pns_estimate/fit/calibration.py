"""Choosing the scale of a sampler's draws on units that training did not see."""

from collections.abc import Callable
from typing import Protocol

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float


class HasDraws(Protocol):
    """A sampler, or a fitted model that has draws."""

    def draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pb.Atoms:
        """Draws atoms [num_draws, n]."""
        ...


def calibrate_sampler(
    key: jax.Array,
    sampler: HasDraws,
    standardizer: Callable[[np.ndarray], np.ndarray],
    held_out: pm.Counts,
    num_draws: int = 400,
) -> pi.DrawCalibration:
    """Profiles the scale of draws on held-out units, a few thousand rows at most.

    Args:
      key: decides the draws.
      sampler: draws atoms of any unit.
      standardizer: maps covariates to comparable scales, to find neighbors.
      held_out: units that training did not see.
      num_draws: of each unit.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> import pns_models as pm
      >>> class Normal:  # draws of raw numbers with a standard deviation of 1
      ...     def draws(self, key, z, num_draws):
      ...         raw = jax.random.normal(key, (num_draws, len(z), 6))
      ...         return pm.atoms_from_raw(raw, "anchored")
      >>> rng = np.random.default_rng(0)
      >>> z = np.arange(60.0)[:, None]
      >>> raw = rng.normal(0.0, 0.5, (60, 6))  # in truth it is 0.5
      >>> atoms = pm.atoms_from_raw(raw, "anchored")
      >>> log = rng.multinomial(80, np.reshape(atoms.joint, (60, 4)).astype(float))
      >>> events = rng.binomial(40, atoms.mu)
      >>> trial = np.stack([40 - events, events], axis=-1)
      >>> held_out = pm.Counts(z, log.reshape(60, 2, 2), trial)
      >>> scale = pm.make_standardizer(held_out)
      >>> found = calibrate_sampler(jax.random.key(0), Normal(), scale, held_out, 200)
      >>> round(found.draw_scale, 1)
      0.5
    """
    z, observational, experimental = (np.asarray(part) for part in held_out)
    rows, groups = pi.choose_calibration_rows(
        standardizer(z), observational, experimental
    )
    drawn = sampler.draws(key, z[rows], num_draws)
    return pi.calibrate_draws(drawn, observational[rows], experimental[rows], groups)
