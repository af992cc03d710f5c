"""Times pns-models; every figure is a ratio within the run, or a peak of memory.

--part=fit    Li Model 1, 100k + 50k rows: the default fit against row-wise minibatches
              of 256, by the time to come as close to the oracle's held-out loss.
--part=draws  8,000 draws for 3,000 units: flop rate beside a large matrix product.
--part=epoch  One epoch of paper_high_dim on 2.4M + 1M rows: time and peak memory.
"""

from collections.abc import Sequence

from absl import app, flags
from pns_experiments import model_speed
from pns_experiments.options import refuse_arguments

_PART = flags.DEFINE_enum("part", "fit", ["fit", "draws", "epoch"], "What to time.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "Fits of each kind (part fit).")
_DRAWS = flags.DEFINE_integer("draws", 8000, "Draws (part draws).")
_POINTS = flags.DEFINE_integer("points", 3000, "Units (part draws).")
_PRODUCT = flags.DEFINE_integer("product", 2048, "Side of the product (part draws).")
_ROWS = flags.DEFINE_integer("rows", 2_400_000, "Observational rows (part epoch).")


def main(argv: Sequence[str]) -> None:
    """Runs the part that was asked for."""
    refuse_arguments(argv)
    {
        "fit": lambda: model_speed.time_fits(_SEEDS.value),
        "draws": lambda: model_speed.time_draws(
            _DRAWS.value, _POINTS.value, _PRODUCT.value
        ),
        "epoch": lambda: model_speed.time_epoch(_ROWS.value),
    }[_PART.value]()


if __name__ == "__main__":
    app.run(main)
