"""Times what people wait for: a line of JSON per measure, with its goal.

Takes under 15 minutes on two cores. Nothing else should run meanwhile.

python experiments/speed.py
python experiments/speed.py --measure=start --measure=answers
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags
from pns_experiments import speed
from pns_experiments.options import refuse_arguments

_MEASURES = flags.DEFINE_multi_enum(
    "measure", list(speed.MEASURES), list(speed.MEASURES), "What to time; all of it."
)
_PRESET = flags.DEFINE_enum("preset", "default", list(speed.SIZES), "How much.")
_OUT = flags.DEFINE_string(
    "out", None, "Folder for results and tables; a temporary one."
)


def main(argv: Sequence[str]) -> None:
    """Prints a line per measure."""
    refuse_arguments(argv)
    with tempfile.TemporaryDirectory() as folder:
        sizes = speed.SIZES[_PRESET.value]
        speed.run_measures(_MEASURES.value, sizes, Path(_OUT.value or folder))


if __name__ == "__main__":
    app.run(main)
