"""Width against coverage, for methods whose draws are scaled by several factors.

A method chooses the scale of its draws without the truth: that is factor 1. The other
factors show what it could have gained, and what its center alone is worth.
"""

import dataclasses

import pns_infer as pi

from pns_experiments.methods import METHODS, FrontDoor
from pns_experiments.options import Options
from pns_experiments.recipes import Size, resize
from pns_experiments.replicates import draw_replicate
from pns_experiments.report import write_report
from pns_experiments.runner import Task, run_tasks
from pns_experiments.study import ALPHA

FACTORS = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0)


@dataclasses.dataclass(frozen=True)
class Study:
    """Methods of pns-estimate on one model."""

    model: str = "li_1"
    observational: int = 100_000
    experimental: int = 50_000
    num_test: int = 3000
    methods: tuple[str, ...] = (
        "crossfit",
        "epinet",
        "ensemble",
        "bootstrap_last_layer",
    )
    replicates: int = 1
    size: Size = "full"


PRESETS = {
    "default": Study(),
    "smoke": Study("li:7", 1500, 1000, 60, ("epinet",), size="smoke"),
}


def run_study(study: Study, options: Options) -> str:
    """Runs the methods; writes and returns the table."""
    tasks = [
        {"model": study.model, "method": method, "replicate": replicate}
        for replicate in options.replicates(study.replicates)
        for method in study.methods
    ]
    config = {
        "study": "tradeoff",
        **{k: v for k, v in vars(study).items() if k not in ("methods", "replicates")},
        "seed": options.seed,
        "recipes": {
            name: resize(METHODS[name].recipe, study.size).to_json()
            for name in study.methods
        },
    }

    def work(task: Task) -> dict[str, float]:
        return score_factors(study, task, options.seed)

    run_tasks(options.out, config, tasks, work, options.shard, options.workers)
    return write_report(options.out)


def score_factors(study: Study, task: Task, seed: int) -> dict[str, float]:
    """Fits a method once, and scores its intervals at every factor."""
    data = draw_replicate(
        study.model,
        study.observational,
        study.experimental,
        study.num_test,
        task["replicate"],
        seed,
    )
    method = METHODS[task["method"]]
    assert isinstance(method, FrontDoor)
    prediction = method.predict(data.method_key, data.tables, data.z, study.size)
    result = {}
    for factor in FACTORS:
        draws = [pi.scale_draws(block, factor) for block in prediction.draws]
        ends = dataclasses.replace(prediction, draws=draws).intervals(ALPHA)
        score = pi.score_intervals(ends, data.truth.pns, data.truth.interval, ALPHA)
        result[f"width_{factor:g}"] = score.width
        result[f"set_coverage_{factor:g}"] = score.set_coverage
        result["oracle_width"] = score.oracle_width
    return result
