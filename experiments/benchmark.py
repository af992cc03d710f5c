"""Methods on structural models, replicate by replicate.

Table 1 (tab:results) is preset low_dim, Table 6 (tab:sensitivity) preset sensitivity;
preset robustness runs the same settings on other models.

  python experiments/benchmark.py --preset=low_dim --out=results/low_dim
"""

import dataclasses
from collections.abc import Sequence

import pns_estimate as pe
from absl import app, flags, logging
from pns_experiments import options, study

options.define_flags()
_METHODS = flags.DEFINE_list("methods", None, "Methods, if not those of the preset.")
_MODELS = flags.DEFINE_list(
    "models",
    None,
    "li_1, acic, li:<seed>, li:<seed>:<observed>+<hidden>, curved:<seed> or "
    "curved:<seed>:<covariates>, if not the preset's.",
)


def main(argv: Sequence[str]) -> None:
    """Runs the preset that was asked for."""
    logging.set_verbosity(logging.WARNING)
    chosen = options.read_flags(argv)
    given = {"methods": _METHODS.value, "models": _MODELS.value}
    changes = {name: tuple(value) for name, value in given.items() if value}
    preset = dataclasses.replace(chosen.pick(study.PRESETS), **changes)
    print(study.run_study(preset, chosen))


if __name__ == "__main__":
    pe.use_compilation_cache()
    app.run(main)
