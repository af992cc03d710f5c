"""The same settings, untouched, on members of the Li family, one row per model.

python experiments/robustness.py --models=101,102,103,104,105 --out=results/robustness
"""

import dataclasses
from collections.abc import Sequence

from absl import app, flags, logging
from benchmark import Study, pick, run_study

_MODELS = flags.DEFINE_list(
    "models", ["101", "102", "103", "104", "105"], "Seeds of the panel's members."
)

PRESETS: dict[str, Study] = {
    "default": Study((), ((50_000, 25_000),), 2000, ("anchored", "epinet"), 1),
    "smoke": Study((), ((1000, 500),), 60, ("anchored", "epinet"), 1, "smoke"),
}


def main(argv: Sequence[str]) -> None:
    """Runs the panel."""
    del argv
    logging.set_verbosity(logging.WARNING)
    models = tuple(f"li:{int(seed)}" for seed in _MODELS.value)
    run_study(dataclasses.replace(pick(PRESETS), models=models))


if __name__ == "__main__":
    flags.FLAGS.set_default("preset", "default")
    app.run(main)
