"""Table 5 (tab:compute): set-up, inference times and peak memory of three methods.

Times are of this machine; compare them within a run.

  python experiments/compute.py --preset=default --out=results/compute
"""

import json
import sys
from collections.abc import Sequence

from absl import app, flags, logging
from pns_experiments import compute, options, processes

options.define_flags()
_ONE = flags.DEFINE_string(
    "one_task", None, "For the program itself: one task as JSON."
)


def main(argv: Sequence[str]) -> None:
    """Runs the study, or one task of it."""
    logging.set_verbosity(logging.WARNING)
    chosen = options.read_flags(argv)
    study = chosen.pick(compute.PRESETS)
    if _ONE.value is not None:
        processes.end_with_parent()
        print(json.dumps(compute.measure(study, chosen.seed, json.loads(_ONE.value))))
        return

    def work(task: dict) -> dict:
        command = [sys.executable, *sys.argv, f"--one_task={json.dumps(task)}"]
        return json.loads(processes.run_child(command).splitlines()[-1])

    print(compute.run_study(study, chosen, work))


if __name__ == "__main__":
    app.run(main)
