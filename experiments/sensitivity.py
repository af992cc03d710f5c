"""tab:sensitivity and its figures: coverage, width and score against sample sizes.

python experiments/sensitivity.py --preset=default --out=results/sensitivity
"""

from collections.abc import Sequence

from absl import app, logging
from benchmark import CHOSEN, Study, run_study
from options import read_options

_VARYING = ((100_000, 20_000), (100_000, 50_000), (100_000, 80_000), (100_000, 100_000))
_BALANCED = ((500_000, 500_000), (1_000_000, 1_000_000))

PRESETS: dict[str, Study] = {
    "default": Study(("li_1",), _VARYING, 3000, ("epinet",), 2),
    "balanced": Study(("li_1",), _BALANCED, 3000, ("epinet",), 1),
    "full": Study(("li_1",), (*_VARYING, *_BALANCED), 3000, ("epinet",), 10),
    "smoke": Study(
        ("li_1",), ((1000, 500), (1000, 1000)), 60, ("anchored", "epinet"), 1, "smoke"
    ),
}


def main(argv: Sequence[str]) -> None:
    """Runs the grid."""
    del argv
    logging.set_verbosity(logging.WARNING)
    options = read_options()
    run_study("sensitivity", options.pick(PRESETS), options, CHOSEN.value)


if __name__ == "__main__":
    app.run(main)
