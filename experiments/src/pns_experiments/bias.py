"""Selection bias of the greatest of several estimates, and its correction.

Figure 1 (fig:bias_illustration) as a study: terms are normal estimates of known values
and the bound is the greatest, by number of terms, gap between the first and the others,
and noise (the standard error of each).
"""

import dataclasses
import itertools
import json

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi

from pns_experiments.options import Options
from pns_experiments.report import write_report
from pns_experiments.runner import Task, run_tasks


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


# Terms are given as estimates, so none is defined here; no limit is known.
_MAXIMUM = pb.Estimand(
    name="maximum",
    sentence="The greatest of several values.",
    lower_labels=(),
    upper_labels=(),
    floor=-np.inf,
    ceiling=np.inf,
)


def run_study(study: Study, options: Options) -> str:
    """Runs the grid; writes and returns its table."""
    tasks = [
        {"num_terms": count, "gap": gap, "noise": noise, "replicate": replicate}
        for replicate in options.replicates(study.replicates)
        for noise, count, gap in itertools.product(
            study.noises, study.num_terms, study.gaps
        )
    ]
    config = {"study": "bias", **dataclasses.asdict(study), "seed": options.seed}

    def work(task: Task) -> dict[str, float]:
        return simulate(study, options.seed, task)

    run_tasks(options.out, config, tasks, work, options.shard, options.workers)
    return write_report(options.out)


def simulate(study: Study, seed: int, task: Task) -> dict[str, float]:
    """Computes bias and coverage of one replicate of a cell of the grid."""
    values = np.full(task["num_terms"], -task["gap"])
    values[0] = 0.0
    name = json.dumps(task, sort_keys=True).encode()  # cells are independent
    rng = np.random.default_rng([seed, *name])
    shape = (study.num_estimates, len(values))
    estimates = values + task["noise"] * rng.standard_normal(shape)
    covariance = task["noise"] ** 2 * np.eye(len(values))
    corrected = pi.intervals_from_estimates(
        jax.random.key(rng.integers(2**31)),
        pb.BoundTerms(estimates, np.zeros((len(estimates), 0))),
        np.broadcast_to(covariance, (len(estimates), *covariance.shape)),
        num_draws=study.num_draws,
        sample_size=10_000,
        estimand=_MAXIMUM,
        alpha=0.1,  # the lower end alone then misses in 5%
    )
    plug_in = estimates.max(axis=1)
    return {
        "plug_in_bias": float(plug_in.mean()),
        "plug_in_coverage": float(np.mean(plug_in <= 0)),
        "half_median_bias": float(corrected.bound_lower.mean()),
        "half_median_coverage": float(np.mean(corrected.bound_lower <= 0)),
        "corrected_coverage": float(np.mean(corrected.lower <= 0)),
    }
