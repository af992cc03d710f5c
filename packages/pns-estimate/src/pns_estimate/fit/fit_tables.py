"""From two checked tables to everything that a fit leaves behind."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pns_models as pm

from pns_estimate.answers.population import Population, make_population
from pns_estimate.fit.fitting import few_rows_as_user_error, fit_method
from pns_estimate.fit.held_out_rows import HeldOutRows, collect_held_out_rows
from pns_estimate.fit.saving import FittedState
from pns_estimate.fit.strata import run_compatibility_test
from pns_estimate.fit.summary import summarize_fit
from pns_estimate.methods import get_method
from pns_estimate.tables.preparation import PreparedTables, deal_streams


class TrainingPeople(NamedTuple):
    """Whom a fit saw; a loaded model has none of it.

    Attributes:
      sample: some people of both tables, to report on.
      held_out_rows: every row with its held-out answer; None if not all have one.
      population: the same people, to average over.
    """

    sample: pd.DataFrame
    held_out_rows: HeldOutRows | None
    population: Population | None


def fit_tables(
    prepared: PreparedTables, settings: dict[str, Any]
) -> tuple[FittedState, TrainingPeople]:
    """Fits a method to two tables.

    Args:
      prepared: both, checked and encoded.
      settings: of the estimator, checked.
    """
    method, seed = get_method(settings["method"]), int(settings["seed"])
    recipe = method.recipe if settings["recipe"] is None else settings["recipe"]
    key = jax.random.key(seed)
    dealt = None
    if prepared.streamed is not None:
        with few_rows_as_user_error():
            prepared, dealt = deal_streams(prepared, key, method, recipe)
    data = prepared.data
    counts = data.counts()
    fit = fit_method(
        key,
        counts,
        method,
        recipe,
        settings["calibrate"],
        settings["progress"],
        data.groups,
        settings["checkpoint_dir"],
        dealt,
    )
    squares = data.squared_weights()
    compatibility = run_compatibility_test(
        jax.random.fold_in(key, 1),
        pm.merge_counts(counts),
        fit.learned.standardizer,
        None if squares is None else pm.merge_counts(squares),
    )
    state = FittedState(
        encoder=data.encoder,
        sampler=fit.sampler,
        sample_size=float(sum(np.sum(part) for part in counts[1:])),
        summary=summarize_fit(
            data, fit, method, compatibility, seed, prepared.problems
        ),
    )
    rows = collect_held_out_rows(data, fit.learned)
    population = make_population(prepared[:2], data, rows, prepared.trial)
    return state, TrainingPeople(data.people, rows, population)
