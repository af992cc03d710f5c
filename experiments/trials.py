"""Averages and sorted groups of three public trials.

python experiments/trials.py --data=folder --trial=hillstrom --out=results/trials
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pns_estimate as pe
from absl import app, flags
from pns_experiments import options, trials
from pns_experiments.runner import note_start, write_text

_DATA = flags.DEFINE_string(
    "data", None, "Folder of the files: gotv/, hillstrom/, lalonde/.", required=True
)
_TRIAL = flags.DEFINE_enum("trial", "hillstrom", list(trials.TRIALS), "Which trial.")
_OUT = flags.DEFINE_string("out", None, "Folder of the results.", required=True)
_SEED = flags.DEFINE_integer("seed", 0, "Names the split, and decides the fit.")
_FRACTION = flags.DEFINE_float("fraction", 1.0, "Share of the trial's people to use.")


def main(argv: Sequence[str]) -> None:
    """Fits one trial and writes its numbers."""
    options.refuse_arguments(argv)
    folder = Path(_OUT.value)
    folder.mkdir(parents=True, exist_ok=True)
    note_start(folder / f"{_TRIAL.value}.runs.json", done=0)
    result = trials.run_trial(
        _TRIAL.value, Path(_DATA.value), _SEED.value, _FRACTION.value
    )
    write_text(folder / f"{_TRIAL.value}.json", json.dumps(result, indent=1) + "\n")
    text = trials.format_trial(result)
    write_text(folder / f"{_TRIAL.value}.md", text)
    print(text)


if __name__ == "__main__":
    pe.use_compilation_cache()
    app.run(main)
