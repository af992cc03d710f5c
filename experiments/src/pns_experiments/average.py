"""Coverage of debiased averages: one scenario for each thing that could go wrong.

The held-out model is a cheap one, cross-fitted ridge logistic regressions, so that many
replicates take minutes. It is wrong wherever the truth is not logistic; averages are
supposed not to mind. Beside each interval stands the one with the true probabilities.
"""

import dataclasses

import numpy as np
import pns_bounds as pb
import pns_infer as pi
from jaxtyping import Float, Int
from pns_infer.averages.covariate_tests import fit_logistic

from pns_experiments.average_worlds import SCENARIOS, Rows, draw_rows, identified_set
from pns_experiments.options import Options
from pns_experiments.report import write_report
from pns_experiments.runner import Task, run_tasks


@dataclasses.dataclass(frozen=True)
class Study:
    """Scenarios by name; a result is a block of `num_tables` pairs of tables.

    Attributes:
      scenarios: names of `SCENARIOS`.
      num_observational: rows of the log.
      num_experimental: rows of the trial.
      num_tables: pairs of tables in a block.
      replicates: number of blocks.
      num_folds: of the cheap model.
      alpha: probability of missing.
    """

    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    num_observational: int = 10_000
    num_experimental: int = 5000
    num_tables: int = 25
    replicates: int = 10
    num_folds: int = 5
    alpha: float = 0.05


PRESETS = {
    "default": Study(),
    "small": Study(num_observational=4000, num_experimental=2000),
    "smoke": Study(
        ("changing_terms", "clusters"), 800, 600, num_tables=3, replicates=1
    ),
}


def run_study(study: Study, options: Options) -> str:
    """Runs the blocks; writes and returns the table."""
    tasks = [
        {"scenario": name, "replicate": replicate}
        for replicate in options.replicates(study.replicates)
        for name in study.scenarios
    ]
    config = {"study": "average", **dataclasses.asdict(study), "seed": options.seed}

    def work(task: Task) -> dict[str, float]:
        return run_block(study, options.seed, task)

    run_tasks(options.out, config, tasks, work, options.shard, options.workers)
    return write_report(options.out)


def run_block(study: Study, seed: int, task: Task) -> dict[str, float]:
    """Computes coverage and widths over one block of tables."""
    number = list(SCENARIOS).index(task["scenario"])
    start = task["replicate"] * study.num_tables
    results = [
        _run_tables(study, task["scenario"], [seed, number, start + i])
        for i in range(study.num_tables)
    ]
    means = {name: float(np.mean([r[name] for r in results])) for name in results[0]}
    means["width_ratio"] = means["width"] / means["true_width"]
    return means


def _run_tables(study: Study, name: str, seed: list[int]) -> dict[str, float]:
    """Scores the interval of one pair of tables, and those it is compared with."""
    sizes = (study.num_observational, study.num_experimental)
    rows = draw_rows(SCENARIOS[name], seed, sizes)
    low, high = identified_set(SCENARIOS[name], sizes)
    fold = rows.household % study.num_folds
    units = make_units(rows, held_out_atoms(rows, fold))
    comparison = pi.compare_sources(
        rows.z, units.is_experimental, fold, units.weights, units.cluster, units.copies
    )
    prepared = pi.prepare_units(units, fold, comparison)
    found = pi.debiased_average(prepared.units, study.alpha)
    known = make_units(rows, rows.truth)
    if SCENARIOS[name].is_shifted:
        ratio = 1 / np.where(rows.is_experimental, rows.chance, 1 - rows.chance)
        known = known._replace(ratio=ratio)
    true = pi.debiased_average(known, study.alpha)
    counted = pi.frequency_interval(prepared.units, study.alpha)
    return {
        "set_coverage": float(found.lower <= low and found.upper >= high),
        "lower_coverage": float(found.lower <= low),
        "upper_coverage": float(found.upper >= high),
        "true_coverage": float(true.lower <= low and true.upper >= high),
        "width": found.upper - found.lower,
        "true_width": true.upper - true.lower,
        "counting_width": float(counted.upper - counted.lower),
        "set_width": high - low,
        "reweighted": float(prepared.effective_sizes is not None),
    }


def make_units(rows: Rows, atoms: pb.Atoms) -> pi.HeldOutUnits:
    """Puts rows and atoms together as a user of pns-infer would."""
    has_weights = not np.all(rows.weights == 1)
    return pi.make_held_out_units(
        atoms,
        rows.is_experimental,
        rows.x,
        rows.y,
        assignment=rows.assignment,
        weights=rows.weights if has_weights else None,
        groups=rows.household,
    )


def held_out_atoms(rows: Rows, fold: Int[np.ndarray, " n"]) -> pb.Atoms:
    """Predicts atoms of each fold by logistic regressions on the others."""
    z = _features(rows.z)
    joint = np.empty((len(z), *pb.BINARY.joint_shape))
    mu = np.empty((len(z), *pb.BINARY.mu_shape))
    log, trial = ~rows.is_experimental, rows.is_experimental
    for each in np.unique(fold):
        out = fold == each
        chooses = _fit(z, rows.x, rows.weights, log & ~out, out)
        for arm in (0, 1):
            taken = rows.x == arm
            outcome = _fit(z, rows.y, rows.weights, log & taken & ~out, out)
            share = chooses if arm else 1 - chooses
            joint[out, arm] = share[:, None] * np.stack([1 - outcome, outcome], axis=1)
            mu[out, arm] = _fit(z, rows.y, rows.weights, trial & taken & ~out, out)
    return pb.Atoms(joint, mu)


def _fit(
    z: Float[np.ndarray, "n k"],
    y: Int[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    seen: np.ndarray,
    out: np.ndarray,
) -> Float[np.ndarray, " m"]:
    return fit_logistic(z[seen], y[seen], weights[seen], ridge=2.0)(z[out])


def _features(z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
    """Standardizes covariates; few of them get their products, too."""
    standard = (z - z.mean(axis=0)) / z.std(axis=0)
    if z.shape[1] > 6:
        return standard
    i, j = np.triu_indices(z.shape[1], 1)
    return np.concatenate([standard, standard[:, i] * standard[:, j]], axis=1)
