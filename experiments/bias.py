"""Figure 1 (fig:bias_illustration) as a study: plug-in against corrected lower bounds.

python experiments/bias.py --preset=default --out=results/bias
"""

from collections.abc import Sequence

import pns_estimate as pe
from absl import app, logging
from pns_experiments import bias, options

options.define_flags()


def main(argv: Sequence[str]) -> None:
    """Runs the grid."""
    logging.set_verbosity(logging.WARNING)
    chosen = options.read_flags(argv)
    print(bias.run_study(chosen.pick(bias.PRESETS), chosen))


if __name__ == "__main__":
    pe.use_compilation_cache()
    app.run(main)
