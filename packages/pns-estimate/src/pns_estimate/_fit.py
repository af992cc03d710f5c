"""From two checked tables to everything that a fit leaves behind."""

import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm

from pns_estimate._duration import TEST
from pns_estimate._errors import InterruptedFitError, UserError
from pns_estimate._progress import begin, is_watched
from pns_estimate._state import Compatibility, FittedState, summarize_fit
from pns_estimate.answers.population import Population
from pns_estimate.methods import (
    Method,
    MethodFit,
    ScaledSampler,
    get_method,
    split_key,
)
from pns_estimate.tables.preparation import PreparedTables, few_rows_as_user_error


def calibrate_sampler(
    key: jax.Array,
    sampler: Any,
    standardizer: Callable[[np.ndarray], np.ndarray],
    held_out: pm.Counts,
    num_draws: int = 400,
) -> pi.DrawCalibration:
    """Profiles the scale of draws on held-out units, a few thousand rows at most.

    The sampler has `draws(key, z, num_draws)`, as a `Sampler` or a fitted model does.
    Neighbors are found on the scales that the standardizer maps covariates to.

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


_MOST_STRATA = 64
_LEAST_PEOPLE = 100


def run_compatibility_test(key: jax.Array, prepared: PreparedTables) -> Compatibility:
    """Tests the tables in up to 64 strata of near neighbors.

    Strata are made larger until each has people in the log and in both arms. Within a
    stratum the tables are weighted to one law of the covariates. The key decides ties
    between people, and the simulation of the critical value.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    rows = prepared.rows
    counts = rows.counts()
    observational, experimental = (np.asarray(part, float) for part in counts[1:])
    chance = prepared.comparison.chance
    if chance is None:
        chance = np.full(len(rows.z), 0.5)
    _, cell = pm.distinct_rows(rows.cell)  # over whose rows the chance is averaged
    chance = np.bincount(cell, rows.weights * chance) / np.bincount(cell, rows.weights)
    second = None
    if prepared.weights_are == "sampling":
        squares = rows.squares()
        second = (squares.observational, squares.experimental)
    # Neighbors with a tie are parted by their order, which must not tell their source.
    order = rng.permutation(len(counts.z))
    deviation = pm.make_standardizer(counts).deviation
    size = max(_LEAST_PEOPLE, math.ceil(len(counts.z) / _MOST_STRATA))
    if observational.sum() + experimental.sum() > 4 * len(counts.z):
        # Rows are merged and hold many people each.
        size = max(1, len(counts.z) // _MOST_STRATA)
    while True:
        stratum = pi.neighborhoods(np.asarray(counts.z), size, deviation, order)
        tables = pi.balanced_counts(
            stratum, chance, observational, experimental, second
        )
        log, trial = tables[0].sum((1, 2)).min(), tables[1].sum(2).min()
        if min(log, 2 * trial) >= _LEAST_PEOPLE / 2 or stratum.max() == 0:
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
        detectable=float(result.detectable.max()),
    )


def fit_sampler(
    key: jax.Array, rows: pm.Rows, settings: Mapping[str, Any]
) -> tuple[MethodFit, pi.DrawCalibration | None, ScaledSampler]:
    """Fits a method to rows.

    Draws are scaled by the largest factor that held-out units allow, if that is wanted.
    """
    method, folder = get_method(settings["method"]), settings["checkpoint_dir"]
    recipe = method.recipe if settings["recipe"] is None else settings["recipe"]
    if folder is not None:
        folder = Path(folder) / _name_fit(key, rows, method, recipe)
    with few_rows_as_user_error():
        try:
            show = settings["progress"] and not is_watched()
            learned = method.fit(key, rows, recipe, show, folder)
        except (pm.DivergedError, pm.UnsuitableError) as error:
            raise UserError(f"training failed: {error}") from error
        except pm.LostProcessError as error:
            raise InterruptedFitError(str(error)) from error
    sampler, held_out, standardizer = learned[:3]
    calibration, draw_scale = None, 1.0
    wanted = settings["calibrate"] and not learned.is_calibrated
    if wanted and sampler.has_draws and len(held_out.z):
        purpose = split_key(key).calibrate
        calibration = calibrate_sampler(purpose, sampler, standardizer, held_out)
        draw_scale = calibration.interval[1]
    return learned, calibration, ScaledSampler(sampler, draw_scale)


def fit_tables(
    prepared: PreparedTables, settings: Mapping[str, Any]
) -> tuple[FittedState, Population | None]:
    """Fits a method to two tables.

    Returns what predictions need, and everybody to average over; None if not all were
    held out.
    """
    method, seed = get_method(settings["method"]), int(settings["seed"])
    key, rows = jax.random.key(seed), prepared.rows
    begin(f"fitting {method.name}")  # of crossfit each learner is a step
    learned, calibration, sampler = fit_sampler(key, rows, settings)
    begin(TEST)
    compatibility = run_compatibility_test(jax.random.fold_in(key, 1), prepared)
    state = FittedState(
        encoder=prepared.meaning.encoder,
        sampler=sampler,
        sample_size=float(rows.weights.sum()),
        summary=summarize_fit(
            prepared, method, learned, calibration, compatibility, seed
        ),
    )
    place, atoms = learned.held_out_place, learned.held_out_atoms
    if place is None or atoms is None:
        return state, None
    held_out_atoms = pb.Atoms(*(np.asarray(part)[place] for part in atoms))
    return state, Population(prepared, held_out_atoms)


def _name_fit(key: jax.Array, rows: pm.Rows, method: Method, recipe: Any) -> str:
    """Names a fit by everything that decides it, so that no other goes on with it."""
    result = hashlib.sha256(f"{method.name} {recipe!r}".encode())
    for part in (jax.random.key_data(key), *rows):
        if part is not None:
            result.update(np.ascontiguousarray(part).data)
    return result.hexdigest()[:16]
