"""Searches recipes by held-out loss, joint likelihood and calibration error alone.

It is given two tables and no structural model: there is no truth it could look at.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pns_estimate as pe
import pns_models as pm
from absl import app

from pns_experiments.options import Options
from pns_experiments.recipes import resize
from pns_experiments.report import write_report
from pns_experiments.runner import Task, run_tasks


@dataclasses.dataclass(frozen=True)
class Search:
    """A grid of changes to a recipe, each with several splits of the units.

    Attributes:
      base: what is changed.
      rates: learning rates.
      decays: weight decays.
      prior_scales: of the network; None for one that has no prior.
      replicates: how many splits.
    """

    base: pm.Recipe
    rates: tuple[float, ...]
    decays: tuple[float, ...]
    prior_scales: tuple[float | None, ...] = (None,)
    replicates: int = 2


PRESETS = {
    "epinet": Search(
        pm.PRESETS["default_epinet"], (3e-3, 1e-2), (1.0,), (0.1, 0.2, 0.3, 0.5)
    ),
    "anchored": Search(pm.PRESETS["default"], (3e-3, 1e-2, 3e-2), (0.3, 1.0, 3.0)),
    "smoke": Search(
        resize(pm.PRESETS["default_epinet"], "smoke"), (1e-2,), (1.0,), (0.3,), 1
    ),
}


def run_search(search: Search, counts: pm.Counts, digest: str, options: Options) -> str:
    """Runs a search; writes and returns its table, the best first."""
    tasks = [
        {
            "learning_rate": rate,
            "weight_decay": decay,
            "prior_scale": prior,
            "replicate": replicate,
        }
        for replicate in options.replicates(search.replicates)
        for rate, decay, prior in itertools.product(
            search.rates, search.decays, search.prior_scales
        )
    ]

    def work(task: Task) -> dict[str, Any]:
        key = jax.random.fold_in(jax.random.key(options.seed), task["replicate"])
        return judge(key, counts, _change(search.base, task))

    config = {
        "study": "tune",
        "base": search.base.to_json(),
        "rates": search.rates,
        "decays": search.decays,
        "prior_scales": search.prior_scales,
        "data": digest,
        "seed": options.seed,
    }
    run_tasks(options.out, config, tasks, work, options.shard, options.workers)
    return write_report(options.out)


def _change(base: pm.Recipe, task: Task) -> pm.Recipe:
    network: Any = base.network
    if task["prior_scale"] is not None:
        network = dataclasses.replace(network, prior_scale=task["prior_scale"])
    training = dataclasses.replace(
        base.training,
        learning_rate=task["learning_rate"],
        weight_decay=task["weight_decay"],
    )
    return pm.Recipe(network, training)


def judge(key: jax.Array, counts: pm.Counts, recipe: pm.Recipe) -> dict[str, Any]:
    """Fits a recipe and judges it on held-out units."""
    fit = pm.fit(key, counts, recipe, progress=False)
    reliability = pm.measure_reliability(fit.model, fit.held_out)
    result = {
        "held_out_loss": float(np.nanmin(fit.history.held_out)),
        "ece_joint": reliability.ece_joint,
        "ece_mu": reliability.ece_mu,
    }
    if fit.model.is_epistemic:
        calibration = pe.calibrate_sampler(
            key, fit.model, fit.model.standardizer, fit.held_out
        )
        result |= {
            "joint_log_likelihood": float(calibration.log_likelihood.max()),
            "draw_scale": calibration.draw_scale,
            "draw_scale_low": calibration.interval[0],
            "draw_scale_high": calibration.interval[1],
        }
    return result


def read_counts(
    paths: Sequence[str], treatment: str, outcome: str
) -> tuple[pm.Counts, str]:
    """Reads the two tables; returns them with a digest that names them."""
    tables = _read_tables(paths, treatment, outcome)
    columns = [c for c in tables[0] if c not in (treatment, outcome)]
    triples = [
        (
            table[columns].to_numpy(np.float32),
            table[treatment].to_numpy(),
            table[outcome].to_numpy(),
        )
        for table in tables
    ]
    digest = hashlib.sha256()
    for part in itertools.chain(*triples):
        digest.update(np.ascontiguousarray(part).tobytes())
    counts = pm.rows_from_tables(triples[0], triples[1]).counts(merge=None)
    return counts, digest.hexdigest()


def _read_tables(
    paths: Sequence[str], treatment: str, outcome: str
) -> list[pd.DataFrame]:
    for path in paths:
        if not Path(path).exists():
            raise app.UsageError(f"there is no file {path}.")
    tables = [pd.read_parquet(path) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        absent = {treatment, outcome, *tables[0]} - set(table)
        if absent:
            raise app.UsageError(f"{path} has no columns {sorted(absent)}.")
        if not all(pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes):
            raise app.UsageError(
                f"{path} has columns that are not numbers; encode them."
            )
    return tables
