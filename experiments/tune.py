"""Searches recipes by held-out loss, joint likelihood and calibration error alone.

It is given two tables and no model: there is no truth it could look at.

  python experiments/tune.py --observational=a.parquet --experimental=b.parquet
      --preset=epinet --out=results/tune
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
from absl import app, flags, logging
from options import read_options
from runner import run_tasks
from summarize import write_report

_OBSERVATIONAL = flags.DEFINE_string("observational", None, "Parquet.", required=True)
_EXPERIMENTAL = flags.DEFINE_string("experimental", None, "Parquet.", required=True)
_TREATMENT = flags.DEFINE_string("treatment", "x", "Column of 0 and 1.")
_OUTCOME = flags.DEFINE_string("outcome", "y", "Column of 0 and 1.")


@dataclasses.dataclass(frozen=True)
class Search:
    """A grid of changes to a recipe, each with several splits of the people."""

    base: pm.Recipe
    rates: tuple[float, ...]
    decays: tuple[float, ...]
    prior_scales: tuple[float, ...] = (0.0,)
    replicates: int = 2


def _small(recipe: pm.Recipe) -> pm.Recipe:
    return pm.Recipe(
        dataclasses.replace(
            recipe.network,
            backbone=pm.Backbone(16, 1, "silu"),
            index_dim=4,
            hidden=(8,),
        ),
        dataclasses.replace(recipe.training, max_steps=40, eval_every=20),
    )


PRESETS = {
    "epinet": Search(
        pm.PRESETS["default_epinet"], (3e-3, 1e-2), (1.0,), (0.1, 0.2, 0.3, 0.5)
    ),
    "anchored": Search(pm.PRESETS["default"], (3e-3, 1e-2, 3e-2), (0.3, 1.0, 3.0)),
    "smoke": Search(_small(pm.PRESETS["default_epinet"]), (1e-2,), (1.0,), (0.1, 0.3)),
}


def read_counts(
    paths: Sequence[str], treatment: str, outcome: str
) -> tuple[pm.Counts, str]:
    """Reads the two tables; returns them with a digest that names them."""
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
                f"{path} has columns that are no numbers; encode them."
            )
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
    return pm.counts_from_tables(triples[0], triples[1]), digest.hexdigest()


def judge(key: jax.Array, counts: pm.Counts, recipe: pm.Recipe) -> dict[str, Any]:
    """Fits a recipe and judges it on held-out people."""
    fit = pm.fit(key, counts, recipe, progress=False)
    made = pm.calibration(fit.model, fit.validation)
    result = {
        "held_out_loss": float(np.nanmin(fit.history.validation)),
        "ece_joint": made.ece_joint,
        "ece_mu": made.ece_mu,
    }
    if fit.model.is_epistemic:
        spread = pe.judge_spread(key, fit.model, fit.model.standardiser, fit.validation)
        result |= {
            "joint_log_likelihood": float(spread.log_likelihood.max()),
            "scale": spread.scale,
            "scale_low": spread.interval[0],
            "scale_high": spread.interval[1],
        }
    return result


def main(argv: Sequence[str]) -> None:
    """Runs the search; the best comes first."""
    del argv
    logging.set_verbosity(logging.WARNING)
    options = read_options()
    search = options.pick(PRESETS)
    paths = (_OBSERVATIONAL.value, _EXPERIMENTAL.value)
    counts, digest = read_counts(paths, _TREATMENT.value, _OUTCOME.value)
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

    def work(task):
        recipe = pm.Recipe(
            dataclasses.replace(search.base.network, prior_scale=task["prior_scale"]),
            dataclasses.replace(
                search.base.training,
                learning_rate=task["learning_rate"],
                weight_decay=task["weight_decay"],
            ),
        )
        key = jax.random.fold_in(jax.random.key(options.seed), task["replicate"])
        return judge(key, counts, recipe)

    config = {
        "program": "tune",
        "base": search.base.to_json(),
        "rates": search.rates,
        "decays": search.decays,
        "prior_scales": search.prior_scales,
        "data": digest,
        "seed": options.seed,
    }
    run_tasks(options.out, config, tasks, work, options.shard)
    print(write_report(options.out))


if __name__ == "__main__":
    app.run(main)
