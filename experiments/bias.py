"""fig:bias_illustration as a small study: plug-in against corrected lower bounds.

Terms are normal estimates of known values; the bound is the greatest. By number of terms,
gap between the first and the others (in standard errors), and noise.

  python experiments/bias.py --preset=default --out=results/bias
"""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
from absl import app, flags, logging
from matplotlib.figure import Figure
from runner import run_tasks

_PRESET = flags.DEFINE_enum("preset", "default", ["default", "smoke"], "Which grid.")
_SEED = flags.DEFINE_integer("seed", 2026, "Decides the simulation.")
_OUT = flags.DEFINE_string("out", None, "Folder of the results.", required=True)


@dataclasses.dataclass(frozen=True)
class Study:
    """A grid; every cell simulates `num_estimates` sets of estimated terms."""

    num_terms: tuple[int, ...] = (2, 3, 4, 8)
    gaps: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    noises: tuple[float, ...] = (0.01, 0.05, 0.1)
    num_estimates: int = 4000
    num_draws: int = 2000


PRESETS = {
    "default": Study(),
    "smoke": Study((2, 4), (0.0, 2.0), (0.05,), num_estimates=500, num_draws=500),
}


def simulate(study: Study, task: dict) -> dict[str, float]:
    """Computes bias and coverage of one cell of the grid."""
    values = np.full(task["num_terms"], -task["gap"] * task["noise"])
    values[0] = 0.0
    rng = np.random.default_rng([_SEED.value, *map(int, (task["num_terms"],))])
    shape = (study.num_estimates, len(values))
    estimates = values + task["noise"] * rng.standard_normal(shape)
    covariance = task["noise"] ** 2 * np.eye(len(values))
    wide = pi.linear_estimand("maximum", (np.zeros((0, 6)), []), (np.zeros((0, 6)), []))
    made = pi.intervals_from_estimates(
        jax.random.key(_SEED.value),
        pb.BoundTerms(estimates, np.zeros((len(estimates), 0))),
        np.broadcast_to(covariance, (len(estimates), *covariance.shape)),
        num_draws=study.num_draws,
        num_rows=10_000,
        estimand=wide,
        side="lower",
    )
    plug_in = estimates.max(axis=1)
    return {
        "plug_in_bias": float(plug_in.mean() / task["noise"]),
        "plug_in_coverage": float(np.mean(plug_in <= 0)),
        "half_median_bias": float(made.estimate_lower.mean() / task["noise"]),
        "half_median_coverage": float(np.mean(made.estimate_lower <= 0)),
        "corrected_coverage": float(np.mean(made.lower <= 0)),
    }


def write_tables(folder: Path, rows: list[dict]) -> str:
    """Writes table.md and the figure; returns the table."""
    names = [key for key in rows[0] if key not in ("task", "seconds")]
    head = ["terms", "gap / s.e.", "noise", *names]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        task = row["task"]
        cells = [task["num_terms"], task["gap"], task["noise"]]
        cells += [f"{row[name]:.3f}" for name in names]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    text = "\n".join(lines) + "\n"
    (folder / "table.md").write_text(text)
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    noise = rows[0]["task"]["noise"]
    for count in sorted({row["task"]["num_terms"] for row in rows}):
        chosen = [
            row
            for row in rows
            if row["task"]["num_terms"] == count and row["task"]["noise"] == noise
        ]
        gaps = [row["task"]["gap"] for row in chosen]
        left.plot(
            gaps, [r["plug_in_bias"] for r in chosen], "o-", label=f"{count} terms"
        )
        right.plot(gaps, [r["corrected_coverage"] for r in chosen], "o-")
        right.plot(gaps, [r["plug_in_coverage"] for r in chosen], "o:", color="grey")
    left.set(xlabel="gap (standard errors)", ylabel="plug-in bias (standard errors)")
    left.legend(frameon=False)
    right.set(
        xlabel="gap (standard errors)", ylabel="bound below the truth", ylim=(0, 1)
    )
    right.axhline(0.95, color="black", lw=0.6)
    for ending in ("png", "svg"):
        figure.savefig(folder / f"bias.{ending}", dpi=150)
    return text


def main(argv: Sequence[str]) -> None:
    """Runs the grid."""
    del argv
    logging.set_verbosity(logging.WARNING)
    study = PRESETS[_PRESET.value]
    tasks = [
        {"num_terms": count, "gap": gap, "noise": noise}
        for noise, count, gap in itertools.product(
            study.noises, study.num_terms, study.gaps
        )
    ]
    config = dataclasses.asdict(study) | {"seed": _SEED.value}
    rows = run_tasks(_OUT.value, config, tasks, lambda task: simulate(study, task))
    print(write_tables(Path(_OUT.value), rows))


if __name__ == "__main__":
    app.run(main)
