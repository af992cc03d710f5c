"""From two checked tables to everything that a fit leaves behind."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import pandas as pd

from pns_estimate.answers.population import Population, make_population
from pns_estimate.fit.fitting import fit_method
from pns_estimate.fit.saving import FittedState
from pns_estimate.fit.strata import run_compatibility_test
from pns_estimate.fit.summary import summarize_fit
from pns_estimate.methods import get_method
from pns_estimate.tables.preparation import PreparedTables


class TrainingPeople(NamedTuple):
    """Whom a fit saw; a loaded model has none of it.

    Attributes:
      sample: some people of both tables, to report on.
      population: everybody, to average over; None if not all were held out.
    """

    sample: pd.DataFrame
    population: Population | None


def fit_tables(
    prepared: PreparedTables, settings: Mapping[str, Any]
) -> tuple[FittedState, TrainingPeople]:
    """Fits a method to two tables.

    Args:
      prepared: both, checked and encoded.
      settings: of the estimator, checked.
    """
    method, seed = get_method(settings["method"]), int(settings["seed"])
    recipe = method.recipe if settings["recipe"] is None else settings["recipe"]
    key, rows = jax.random.key(seed), prepared.rows
    fit = fit_method(
        key,
        rows,
        method,
        recipe,
        settings["calibrate"],
        settings["progress"],
        settings["checkpoint_dir"],
    )
    compatibility = run_compatibility_test(jax.random.fold_in(key, 1), prepared)
    state = FittedState(
        encoder=prepared.meaning.encoder,
        sampler=fit.sampler,
        sample_size=float(rows.weights.sum()),
        summary=summarize_fit(prepared, fit, method, compatibility, seed),
    )
    population = make_population(prepared, fit.learned)
    return state, TrainingPeople(prepared.read.sample, population)
