"""tab:sensitivity and its figures: coverage, width and score against sample sizes.

python experiments/sensitivity.py --preset=default --out=results/sensitivity
"""

from collections.abc import Sequence

from absl import app, flags, logging
from benchmark import Study, pick, run_study
from summarize import plot_sensitivity

_VARYING = ((100_000, 20_000), (100_000, 50_000), (100_000, 80_000), (100_000, 100_000))
_BALANCED = ((500_000, 500_000), (1_000_000, 1_000_000))

PRESETS: dict[str, Study] = {
    "default": Study(("li_1",), _VARYING, 3000, ("epinet",), 2),
    "full": Study(("li_1",), (*_VARYING, *_BALANCED), 3000, ("epinet",), 10),
    "smoke": Study(
        ("li_1",), ((1000, 500), (1000, 1000)), 60, ("anchored", "epinet"), 1, "smoke"
    ),
}


def main(argv: Sequence[str]) -> None:
    """Runs the grid and draws the figures."""
    del argv
    logging.set_verbosity(logging.WARNING)
    run_study(pick(PRESETS))
    plot_sensitivity(flags.FLAGS.out)


if __name__ == "__main__":
    flags.FLAGS.set_default("preset", "default")
    app.run(main)
