"""The same settings, untouched, on members of the Li family, one row per model.

python experiments/robustness.py --models=901,902,903,904,905 --out=results/robustness
"""

import dataclasses
from collections.abc import Sequence

from absl import app, flags, logging
from benchmark import CHOSEN, Study, run_study
from options import read_options

_MODELS = flags.DEFINE_list(
    "models", ["901", "902", "903", "904", "905"], "Seeds of the panel's members."
)

PRESETS: dict[str, Study] = {
    "default": Study((), ((50_000, 25_000),), 2000, ("anchored", "epinet"), 1),
    "smoke": Study((), ((1000, 500),), 60, ("anchored", "epinet"), 1, "smoke"),
}


def main(argv: Sequence[str]) -> None:
    """Runs the panel."""
    del argv
    logging.set_verbosity(logging.WARNING)
    if not all(seed.isdecimal() for seed in _MODELS.value):
        raise app.UsageError(f"--models takes whole numbers, got {_MODELS.value}.")
    options = read_options()
    models = tuple(f"li:{int(seed)}" for seed in _MODELS.value)
    study = dataclasses.replace(options.pick(PRESETS), models=models)
    run_study("robustness", study, options, CHOSEN.value)


if __name__ == "__main__":
    app.run(main)
