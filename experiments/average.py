"""Coverage of debiased averages in small worlds, one difficulty at a time.

python experiments/average.py --preset=default --out=results/average
"""

from collections.abc import Sequence

import pns_estimate as pe
from absl import app, logging
from pns_experiments import average, options

options.define_flags()


def main(argv: Sequence[str]) -> None:
    """Runs the scenarios."""
    logging.set_verbosity(logging.WARNING)
    chosen = options.read_flags(argv)
    print(average.run_study(chosen.pick(average.PRESETS), chosen))


if __name__ == "__main__":
    pe.use_compilation_cache()
    app.run(main)
