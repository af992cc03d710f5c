"""fig:bias_illustration as a small study: plug-in against corrected lower bounds.

Terms are normal estimates of known values; the bound is the greatest. By number of terms,
gap between the first and the others, and noise (the standard error of each).

  python experiments/bias.py --preset=default --out=results/bias
"""

import dataclasses
import itertools
import json
from collections.abc import Sequence

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
from absl import app, logging
from options import read_options
from runner import run_tasks
from summarize import write_report


@dataclasses.dataclass(frozen=True)
class Study:
    """A grid; every replicate of a cell simulates `num_estimates` sets of terms."""

    num_terms: tuple[int, ...] = (2, 3, 4, 8)
    gaps: tuple[float, ...] = (0.0, 0.02, 0.05, 0.1, 0.2)
    noises: tuple[float, ...] = (0.01, 0.03, 0.1)
    num_estimates: int = 1000
    num_draws: int = 2000
    replicates: int = 4


PRESETS = {
    "default": Study(),
    "smoke": Study(
        (2, 4), (0.0, 0.1), (0.02, 0.1), num_estimates=250, num_draws=500, replicates=2
    ),
}


def simulate(study: Study, seed: int, task: dict) -> dict[str, float]:
    """Computes bias and coverage of one replicate of a cell of the grid."""
    values = np.full(task["num_terms"], -task["gap"])
    values[0] = 0.0
    name = json.dumps(task, sort_keys=True).encode()  # cells are independent
    rng = np.random.default_rng([seed, *name])
    shape = (study.num_estimates, len(values))
    estimates = values + task["noise"] * rng.standard_normal(shape)
    covariance = task["noise"] ** 2 * np.eye(len(values))
    wide = pi.linear_estimand("maximum", (np.zeros((0, 6)), []), (np.zeros((0, 6)), []))
    made = pi.intervals_from_estimates(
        jax.random.key(rng.integers(2**31)),
        pb.BoundTerms(estimates, np.zeros((len(estimates), 0))),
        np.broadcast_to(covariance, (len(estimates), *covariance.shape)),
        num_draws=study.num_draws,
        num_rows=10_000,
        estimand=wide,
        side="lower",
    )
    plug_in = estimates.max(axis=1)
    return {
        "plug_in_bias": float(plug_in.mean()),
        "plug_in_coverage": float(np.mean(plug_in <= 0)),
        "half_median_bias": float(made.estimate_lower.mean()),
        "half_median_coverage": float(np.mean(made.estimate_lower <= 0)),
        "corrected_coverage": float(np.mean(made.lower <= 0)),
    }


def main(argv: Sequence[str]) -> None:
    """Runs the grid."""
    del argv
    logging.set_verbosity(logging.WARNING)
    options = read_options()
    study = options.pick(PRESETS)
    tasks = [
        {"num_terms": count, "gap": gap, "noise": noise, "replicate": replicate}
        for replicate in options.replicates(study.replicates)
        for noise, count, gap in itertools.product(
            study.noises, study.num_terms, study.gaps
        )
    ]
    config = {"program": "bias", **dataclasses.asdict(study), "seed": options.seed}

    def work(task):
        return simulate(study, options.seed, task)

    run_tasks(options.out, config, tasks, work, options.shard)
    print(write_report(options.out))


if __name__ == "__main__":
    app.run(main)
