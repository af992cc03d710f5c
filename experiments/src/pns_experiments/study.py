"""Methods on structural models: Table 1 (tab:results), sample sizes, other models."""

import dataclasses
from typing import Any, Literal

import jax
import numpy as np
import pns_bounds as pb
import pns_dgp
import pns_infer as pi
from absl import app

from pns_experiments.methods import ENN_VARIANTS, METHODS
from pns_experiments.options import Options
from pns_experiments.recipes import Size, resize
from pns_experiments.replicates import (
    Replicate,
    count_twins,
    draw_replicate,
    is_model,
)
from pns_experiments.report import write_report
from pns_experiments.runner import Task, run_tasks

ALPHA = 0.05
_FEW = 10  # twins of a point in both tables


@dataclasses.dataclass(frozen=True)
class Study:
    """A grid of data settings, and the methods that are run on each.

    Attributes:
      models: names for `replicates.make_model`.
      sizes: pairs of observational and experimental sample sizes.
      num_test: test points per replicate.
      methods: keys of `methods.METHODS`.
      replicates: how many.
      name: which report the results get.
      size: 'full', or 'smoke' for networks that train in seconds.
      same_tables: replicates differ in the method's own seed alone.
    """

    models: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    num_test: int
    methods: tuple[str, ...]
    replicates: int
    name: Literal["benchmark", "sensitivity", "robustness"] = "benchmark"
    size: Size = "full"
    same_tables: bool = False

    def __post_init__(self) -> None:
        """Raises if there is no such method or model."""
        unknown = [name for name in self.methods if name not in METHODS]
        if unknown:
            raise app.UsageError(
                f"no such method: {unknown}; there are {list(METHODS)}."
            )
        unknown = [name for name in self.models if not is_model(name)]
        if unknown:
            raise app.UsageError(
                f"no such model: {unknown}; there are li_1, acic, li:<seed>, "
                "li:<seed>:<observed>+<hidden>, curved:<seed>, "
                "curved:<seed>:<covariates> and world:<family>:<seed>."
            )


_LI_1 = ("li_1",)
_PAPER_SIZES = ((100_000, 50_000),)  # Table 3 (tab:enn-hparams): data, low-dimensional
_COUNTING = ("trial_alone", "frequencies")
_DEFAULT = (
    *_COUNTING,
    "s_learner",
    "t_learner",
    "anchored",
    "bootstrap_last_layer",
    "epinet",
    "ensemble",
    "crossfit",
)
_PAPER = ("paper_bootstrap_last_layer", "paper_bootstrap_full", "paper_epinet_low_dim")
_ENN = tuple(variant.name for variant in ENN_VARIANTS)
_HIGH_DIM = ("anchored", "bootstrap_last_layer", "epinet", "crossfit")
_SENSITIVITY = (*_COUNTING, "epinet", "crossfit")
_SCALE = (
    *((5_000, 2_500), (20_000, 10_000), (100_000, 50_000)),
    *((300_000, 150_000), (1_000_000, 1_000_000)),
)

# Table 6 (tab:sensitivity), upper and lower part.
_VARYING = ((100_000, 20_000), (100_000, 50_000), (100_000, 80_000), (100_000, 100_000))
_BALANCED = ((500_000, 500_000), (1_000_000, 1_000_000))

# Five members of the Li family as they come, seeds 901 to 905: not screened (901 is nearly
# degenerate), and none of the screened seeds `pns_dgp.LI_PANEL_SEEDS`. Nothing was tuned on
# them up to `epinet`; `crossfit` was, on 901 and 904, and needs others (--models).
ROBUSTNESS_MODELS = ("li:901", "li:902", "li:903", "li:904", "li:905")

# Twenty members as they come, for final runs: no setting was chosen with them in view. Those that
# were looked at (1003 to 1006, 1013 to 1016, 1027, 1032) have made room for others.
FINAL_MEMBERS = (
    *(f"li:{1040 + hidden}:12+{hidden}" for hidden in (3, 4, 5, 6)),
    *(f"li:{1050 + hidden}:20+{hidden}" for hidden in (3, 4, 5, 6)),
    *(f"li:{seed}" for seed in range(1021, 1035) if seed not in (1027, 1032)),
)

# Worlds of another family, for final runs; 1 to 5 and 21 to 30 were looked at while choosing
# recipes and what widens draws.
FINAL_CURVED = (
    *(f"curved:{seed}" for seed in range(32, 36)),
    *("curved:36:4", "curved:37:4", "curved:38:20", "curved:39:20"),
)
# Worlds of many families. Seeds 1 to 3 were looked at in choosing settings, and results on
# 101 to 103 and 201 to 203 were known then; the final ones are new.
DEVELOPMENT_WORLDS, FINAL_WORLDS = (
    tuple(f"world:{family}:{seed}" for family in pns_dgp.FAMILIES for seed in seeds)
    for seeds in ((1, 2, 3), (301, 302, 303))
)
_PANEL_SIZES = (2_000, 10_000, 50_000)  # of the log; the trial has half as many rows
_CURVED_SCALE = (
    (5_000, 2_500),
    (20_000, 10_000),
    (100_000, 50_000),
    (300_000, 150_000),
)

PRESETS: dict[str, Study] = {
    "low_dim": Study(_LI_1, _PAPER_SIZES, 3000, _DEFAULT, 5),
    "low_dim_paper": Study(_LI_1, _PAPER_SIZES, 3000, _PAPER, 1),
    "low_dim_enn": Study(_LI_1, _PAPER_SIZES, 3000, _ENN, 1),
    # Table 3, ACIC column.
    "high_dim": Study(
        ("acic",),
        ((2_400_000, 1_000_000),),
        2000,
        (*_HIGH_DIM, "paper_epinet_high_dim"),
        1,
    ),
    "high_dim_small": Study(("acic",), ((200_000, 100_000),), 2000, _HIGH_DIM, 1),
    "sensitivity": Study(_LI_1, _VARYING, 3000, _SENSITIVITY, 2, "sensitivity"),
    "sensitivity_balanced": Study(
        _LI_1, _BALANCED, 3000, _SENSITIVITY, 1, "sensitivity"
    ),
    "sensitivity_full": Study(
        _LI_1, (*_VARYING, *_BALANCED), 3000, _SENSITIVITY, 10, "sensitivity"
    ),
    "robustness": Study(
        ROBUSTNESS_MODELS,
        ((50_000, 25_000),),
        2000,
        (*_COUNTING, "anchored", "epinet", "crossfit"),
        1,
        "robustness",
    ),
    "members": Study(
        FINAL_MEMBERS,
        ((50_000, 25_000),),
        2000,
        (*_COUNTING, "crossfit"),
        1,
        "robustness",
    ),
    "curved": Study(
        FINAL_CURVED,
        ((50_000, 25_000),),
        2000,
        (*_COUNTING, "crossfit"),
        1,
        "robustness",
    ),
    "curved_scale": Study(
        ("curved:31",), _CURVED_SCALE, 2000, (*_COUNTING, "crossfit"), 1
    ),
    **{
        f"panel_{size // 1000}k": Study(
            FINAL_WORLDS,
            ((size, size // 2),),
            2000,
            ("trial_alone", "logistic", "boosted_trees", "crossfit"),
            1,
            "robustness",
        )
        for size in _PANEL_SIZES
    },
    "panel_development": Study(
        DEVELOPMENT_WORLDS,
        tuple((size, size // 2) for size in _PANEL_SIZES),
        2000,
        ("crossfit",),
        1,
        "robustness",
    ),
    "scale": Study(_LI_1, _SCALE, 3000, (*_COUNTING, "crossfit"), 1),
    "stability": Study(_LI_1, _PAPER_SIZES, 3000, ("crossfit",), 3, same_tables=True),
    "smoke": Study(
        _LI_1,
        ((2000, 1000),),
        100,
        ("t_learner", "anchored", "epinet"),
        1,
        size="smoke",
    ),
}


def run_study(study: Study, options: Options) -> str:
    """Runs a study; writes and returns its table."""

    def work(task: Task) -> dict[str, float]:
        return score_method(study, task, options.seed)

    config = {
        "study": study.name,
        "num_test": study.num_test,
        "size": study.size,
        "seed": options.seed,
        "recipes": {
            name: resize(METHODS[name].recipe, study.size).to_json()
            for name in study.methods
        },
        **({"same_tables": True} if study.same_tables else {}),
    }
    tasks = list_tasks(study, options)
    run_tasks(options.out, config, tasks, work, options.shard, options.workers)
    return write_report(options.out)


def list_tasks(study: Study, options: Options) -> list[Task]:
    """Lists what a study computes, replicate by replicate."""
    return [
        {
            "model": model,
            "observational": observational,
            "experimental": experimental,
            "replicate": replicate,
            "method": method,
        }
        for replicate in options.replicates(study.replicates)
        for model in study.models
        for observational, experimental in study.sizes
        for method in study.methods
    ]


def score_method(study: Study, task: Task, seed: int) -> dict[str, Any]:
    """Draws a replicate, runs a method on it, and scores it against the truth."""
    data = draw_replicate(
        task["model"],
        task["observational"],
        task["experimental"],
        study.num_test,
        0 if study.same_tables else task["replicate"],
        seed,
    )
    key = data.method_key
    if study.same_tables:
        key = jax.random.fold_in(key, task["replicate"])
    answer = METHODS[task["method"]].answer(key, data.tables, data.z, ALPHA, study.size)
    scores = pi.score_intervals(
        answer.interval, data.truth.pns, data.truth.interval, ALPHA, answer.atoms
    )
    return {
        **scores._asdict(),
        **_score_rare(data, answer.interval),
        **answer.notes,
    }


def _score_rare(data: Replicate, interval: pb.Interval) -> dict[str, float]:
    """Scores the points with the fewest twins in the tables, if points have twins.

    Returns:
      Set coverage of the rarest fifth, and of those with fewer than 10 twins (absent if
      there are none).
    """
    twins = count_twins(data.tables, data.z)
    if np.median(twins) == 0:
        return {}
    covered = (interval.lower <= data.truth.interval.lower) & (
        interval.upper >= data.truth.interval.upper
    )
    rarest = np.argsort(twins, kind="stable")[: len(twins) // 5]
    scores = {"rare_coverage": float(covered[rarest].mean())}
    if np.any(few := twins < _FEW):
        scores["few_coverage"] = float(covered[few].mean())
    return scores
