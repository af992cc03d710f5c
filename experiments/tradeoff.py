"""Width against coverage: what a larger or smaller factor of the draws would give.

python experiments/tradeoff.py --preset=default --out=results/tradeoff
"""

from collections.abc import Sequence

import pns_estimate as pe
from absl import app, logging
from pns_experiments import options, tradeoff

options.define_flags()


def main(argv: Sequence[str]) -> None:
    """Runs the methods."""
    logging.set_verbosity(logging.WARNING)
    chosen = options.read_flags(argv)
    print(tradeoff.run_study(chosen.pick(tradeoff.PRESETS), chosen))


if __name__ == "__main__":
    pe.use_compilation_cache()
    app.run(main)
