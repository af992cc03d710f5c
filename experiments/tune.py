"""Searches recipes by held-out loss, joint likelihood and calibration error alone.

It is given two tables and no model: there is no truth it could look at.

  python experiments/tune.py --observational=a.parquet --experimental=b.parquet
      --preset=epinet --out=results/tune
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
import pns_infer as pi
import pns_models as pm
from absl import app, flags, logging
from runner import run_tasks

_OBSERVATIONAL = flags.DEFINE_string("observational", None, "Parquet.", required=True)
_EXPERIMENTAL = flags.DEFINE_string("experimental", None, "Parquet.", required=True)
_TREATMENT = flags.DEFINE_string("treatment", "x", "Column of 0 and 1.")
_OUTCOME = flags.DEFINE_string("outcome", "y", "Column of 0 and 1.")
_PRESET = flags.DEFINE_enum(
    "preset", "epinet", ["anchored", "epinet", "smoke"], "Which search."
)
_SEED = flags.DEFINE_integer("seed", 0, "Decides training.")
_OUT = flags.DEFINE_string("out", None, "Folder of the results.", required=True)


@dataclasses.dataclass(frozen=True)
class Search:
    """A grid of changes to a recipe."""

    base: pm.Recipe
    rates: tuple[float, ...]
    decays: tuple[float, ...]
    prior_scales: tuple[float, ...] = (0.0,)


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


SEARCHES = {
    "anchored": Search(pm.PRESETS["default"], (3e-3, 1e-2, 3e-2), (0.3, 1.0, 3.0)),
    "epinet": Search(
        pm.PRESETS["default_epinet"], (3e-3, 1e-2), (1.0,), (0.1, 0.2, 0.3, 0.5)
    ),
    "smoke": Search(_small(pm.PRESETS["default_epinet"]), (1e-2,), (1.0,), (0.1, 0.3)),
}


def read_counts() -> pm.Counts:
    """Reads the two tables."""
    tables = [pd.read_parquet(p) for p in (_OBSERVATIONAL.value, _EXPERIMENTAL.value)]
    columns = [c for c in tables[0] if c not in (_TREATMENT.value, _OUTCOME.value)]
    triples = [
        (
            table[columns].to_numpy(np.float32),
            table[_TREATMENT.value].to_numpy(),
            table[_OUTCOME.value].to_numpy(),
        )
        for table in tables
    ]
    return pm.counts_from_tables(triples[0], triples[1])


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
        drawn = fit.model.draws(key, fit.validation.z, 400)
        spread = pi.calibrate_spread(drawn, *fit.validation[1:])
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
    search = SEARCHES[_PRESET.value]
    counts = read_counts()
    tasks = [
        {"learning_rate": rate, "weight_decay": decay, "prior_scale": prior}
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
        return judge(jax.random.key(_SEED.value), counts, recipe)

    config = {"base": search.base.to_json(), "seed": _SEED.value}
    rows = run_tasks(_OUT.value, config, tasks, work)
    rows.sort(key=lambda row: row.get("joint_log_likelihood", -row["held_out_loss"]))
    for row in reversed(rows):
        shown = {k: round(v, 4) for k, v in row.items() if k not in ("task", "seconds")}
        print(row["task"], shown)


if __name__ == "__main__":
    app.run(main)
