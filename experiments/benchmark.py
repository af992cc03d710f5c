"""tab:results: every method on one structural model, replicate by replicate.

  python experiments/benchmark.py --preset=low_dim --out=results/low_dim

Also serves sensitivity.py and robustness.py, which give other grids to the same run.
"""

import dataclasses
from collections.abc import Sequence

from absl import app, flags, logging
from methods import METHODS, Size, score_method
from runner import run_tasks
from summarize import write_summary

_PRESET = flags.DEFINE_string("preset", "low_dim", "Which study; see PRESETS.")
_METHODS = flags.DEFINE_list("methods", None, "Some methods of the preset.")
_START = flags.DEFINE_integer("replicate_start", 0, "First replicate.")
_END = flags.DEFINE_integer("replicate_end", None, "One past the last; the preset's.")
_SEED = flags.DEFINE_integer("seed", 2026, "Names the study's data.")
_OUT = flags.DEFINE_string("out", None, "Folder of the results.", required=True)
_SHARD = flags.DEFINE_string("shard", "results", "Name of the results file.")


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
_SMOKE = Study(
    ("li_1",), ((2000, 1000),), 100, ("t_learner", "anchored", "epinet"), 1, "smoke"
)

PRESETS: dict[str, Study] = {
    # tab:enn-hparams, data: 100k + 50k, 3,000 test points.
    "low_dim": Study(("li_1",), ((100_000, 50_000),), 3000, _DEFAULT, 5),
    "low_dim_bootstrap_full": Study(
        ("li_1",), ((100_000, 50_000),), 3000, ("bootstrap_full",), 1
    ),
    "low_dim_paper": Study(
        ("li_1",),
        ((100_000, 50_000),),
        3000,
        ("paper_bootstrap_last_layer", "paper_bootstrap_full", "paper_epinet_low_dim"),
        1,
    ),
    # tab:enn-hparams, ACIC column.
    "high_dim": Study(
        ("acic",), ((2_400_000, 1_000_000),), 2000, ("paper_epinet_high_dim",), 1
    ),
    "high_dim_small": Study(
        ("acic",), ((200_000, 100_000),), 2000, ("anchored", "epinet"), 1
    ),
    "smoke": _SMOKE,
}


def run_study(study: Study) -> None:
    """Runs a study with the flags of the command line, and writes its tables."""
    chosen = tuple(_METHODS.value or study.methods)
    unknown = [name for name in chosen if name not in METHODS]
    if unknown:
        raise app.UsageError(f"no such method: {unknown}; there are {list(METHODS)}.")
    end = study.replicates if _END.value is None else _END.value
    tasks = [
        {
            "model": model,
            "observational": observational,
            "experimental": experimental,
            "replicate": replicate,
            "method": method,
        }
        for replicate in range(_START.value, end)
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
            _SEED.value,
            size=study.size,
        )

    config = {"num_test": study.num_test, "size": study.size, "seed": _SEED.value}
    run_tasks(_OUT.value, config, tasks, work, _SHARD.value)
    print(write_summary(_OUT.value))


def pick(presets: dict[str, Study]) -> Study:
    """Returns the preset that was asked for."""
    if _PRESET.value not in presets:
        raise app.UsageError(
            f"no such preset: {_PRESET.value}; there are {list(presets)}."
        )
    return presets[_PRESET.value]


def main(argv: Sequence[str]) -> None:
    """Runs the preset that was asked for."""
    del argv
    logging.set_verbosity(logging.WARNING)
    run_study(pick(PRESETS))


if __name__ == "__main__":
    app.run(main)
