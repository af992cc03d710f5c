"""Times pns-dgp: rows of both models, and the oracles.

python experiments/dgp_speed.py
"""

from collections.abc import Sequence

from absl import app, flags
from pns_experiments import dgp_speed
from pns_experiments.options import refuse_arguments

_LI_ROWS = flags.DEFINE_integer("li_rows", 1_000_000, "Rows drawn of Li Model 1.")
_ACIC_ROWS = flags.DEFINE_integer("acic_rows", 2_400_000, "Rows drawn of ACIC.")
_POINTS = flags.DEFINE_integer("points", 3_000, "Points given to each oracle.")


def main(argv: Sequence[str]) -> None:
    """Prints the table."""
    refuse_arguments(argv)
    dgp_speed.time_models(_LI_ROWS.value, _ACIC_ROWS.value, _POINTS.value)


if __name__ == "__main__":
    app.run(main)
