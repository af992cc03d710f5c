"""tab:results: every method on one structural model, replicate by replicate.

  python experiments/benchmark.py --preset=low_dim --out=results/low_dim

Also serves sensitivity.py and robustness.py, which give other grids to the same run.
"""

import dataclasses
from collections.abc import Sequence

from absl import app, flags, logging
from methods import METHODS, Size, score_method, shrunk
from options import Options, read_options
from runner import run_tasks
from summarize import write_report

CHOSEN = flags.DEFINE_list("methods", None, "Methods, if not those of the preset.")


@dataclasses.dataclass(frozen=True)
class Study:
    """A grid of data settings, and the methods that are run on each.

    Attributes:
      models: names for `methods.make_model`.
      sizes: pairs of observational and experimental rows.
      num_test: test points per replicate.
      methods: keys of `methods.METHODS`.
      replicates: how many.
      size: 'full', or 'smoke' for networks that train in seconds.
    """

    models: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    num_test: int
    methods: tuple[str, ...]
    replicates: int
    size: Size = "full"


_DEFAULT = (
    "s_learner",
    "t_learner",
    "anchored",
    "bootstrap_last_layer",
    "epinet",
    "ensemble",
)
_HIGH_DIM = ("anchored", "bootstrap_last_layer", "epinet")
_SMOKE = Study(
    ("li_1",), ((2000, 1000),), 100, ("t_learner", "anchored", "epinet"), 1, "smoke"
)

PRESETS: dict[str, Study] = {
    # tab:enn-hparams, data: 100k + 50k, 3,000 test points.
    "low_dim": Study(("li_1",), ((100_000, 50_000),), 3000, _DEFAULT, 5),
    "low_dim_paper": Study(
        ("li_1",),
        ((100_000, 50_000),),
        3000,
        ("paper_bootstrap_last_layer", "paper_bootstrap_full", "paper_epinet_low_dim"),
        1,
    ),
    # tab:enn-hparams, ACIC column.
    "high_dim": Study(
        ("acic",),
        ((2_400_000, 1_000_000),),
        2000,
        (*_HIGH_DIM, "paper_epinet_high_dim"),
        1,
    ),
    "high_dim_small": Study(("acic",), ((200_000, 100_000),), 2000, _HIGH_DIM, 1),
    "smoke": _SMOKE,
}


def run_study(
    program: str, study: Study, options: Options, methods: Sequence[str] | None = None
) -> None:
    """Runs a study, with its own methods or others, and writes its tables."""
    chosen = tuple(methods or study.methods)
    unknown = [name for name in chosen if name not in METHODS]
    if unknown:
        raise app.UsageError(f"no such method: {unknown}; there are {list(METHODS)}.")
    tasks = [
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
        for method in chosen
    ]

    def work(task):
        return score_method(
            task["method"],
            task["model"],
            task["observational"],
            task["experimental"],
            study.num_test,
            task["replicate"],
            options.seed,
            size=study.size,
        )

    config = {
        "program": program,
        "num_test": study.num_test,
        "size": study.size,
        "seed": options.seed,
        "recipes": {
            name: shrunk(METHODS[name].recipe, study.size).to_json() for name in chosen
        },
    }
    run_tasks(options.out, config, tasks, work, options.shard)
    print(write_report(options.out))


def main(argv: Sequence[str]) -> None:
    """Runs the preset that was asked for."""
    del argv
    logging.set_verbosity(logging.WARNING)
    options = read_options()
    run_study("benchmark", options.pick(PRESETS), options, CHOSEN.value)


if __name__ == "__main__":
    app.run(main)
