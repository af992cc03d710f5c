"""Searches recipes by what held-out units say, without any truth.

python experiments/tune.py --observational=a.parquet --experimental=b.parquet
    --preset=epinet --out=results/tune
"""

from collections.abc import Sequence

import pns_estimate as pe
from absl import app, flags, logging
from pns_experiments import options, tune

options.define_flags()
_OBSERVATIONAL = flags.DEFINE_string("observational", None, "Parquet.", required=True)
_EXPERIMENTAL = flags.DEFINE_string("experimental", None, "Parquet.", required=True)
_TREATMENT = flags.DEFINE_string("treatment", "x", "Column of 0 and 1.")
_OUTCOME = flags.DEFINE_string("outcome", "y", "Column of 0 and 1.")


def main(argv: Sequence[str]) -> None:
    """Runs the search; the best comes first."""
    logging.set_verbosity(logging.WARNING)
    chosen = options.read_flags(argv)
    search = chosen.pick(tune.PRESETS)
    paths = (_OBSERVATIONAL.value, _EXPERIMENTAL.value)
    counts, digest = tune.read_counts(paths, _TREATMENT.value, _OUTCOME.value)
    print(tune.run_search(search, counts, digest, chosen))


if __name__ == "__main__":
    pe.use_compilation_cache()
    app.run(main)
