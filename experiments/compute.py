"""tab:compute: set-up, inference times and peak memory of three ways to be uncertain.

Times are of this machine; compare them within a run. Each task runs in a process of its
own, so that its peak of memory is its own.

  python experiments/compute.py --preset=default --out=results/compute
"""

import dataclasses
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pns_dgp
import pns_infer as pi
import pns_models as pm
from absl import app, flags, logging
from runner import run_tasks

_PRESET = flags.DEFINE_enum(
    "preset", "default", ["default", "full_bootstrap", "smoke"], "Which study."
)
_OUT = flags.DEFINE_string("out", None, "Folder of the results.")
_ONE = flags.DEFINE_string(
    "one_task", None, "For the program itself: one task as JSON."
)


@dataclasses.dataclass(frozen=True)
class Study:
    """Which methods, training sizes and numbers of points.

    Attributes:
      methods: 'bootstrap_last_layer', 'bootstrap_full', 'epinet'.
      num_train: observational rows; half as many experimental ones.
      num_test: points of batched inference.
      num_draws: of the bootstraps' solves, and of the epinet.
      steps: most training steps.
      reference: points of the per-point algorithm.
    """

    methods: tuple[str, ...]
    num_train: tuple[int, ...]
    num_test: tuple[int, ...] = (1, 1000, 10_000)
    num_draws: int = 1000
    steps: int = 200
    reference: int = 2


PRESETS = {
    "default": Study(
        ("bootstrap_last_layer", "epinet"), (25_000, 50_000, 200_000, 1_000_000)
    ),
    "full_bootstrap": Study(("bootstrap_full",), (25_000, 50_000), num_draws=100),
    "smoke": Study(
        ("bootstrap_last_layer", "epinet"), (1000,), (1, 50), 60, steps=20, reference=1
    ),
}


def timed(function):
    """Calls a function; returns its result and the seconds it took."""
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def measure(study: Study, task: dict) -> dict[str, float]:
    """Trains, sets up and times one method at one training size."""
    warnings.simplefilter("ignore", pi.NotConvergedWarning)
    model = pns_dgp.li_model_1()
    key = jax.random.key(0)
    counts = pm.counts_from_tables(
        model.sample(key, task["num_train"], "observational"),
        model.sample(key, task["num_train"] // 2, "experimental"),
    )
    name = "default_epinet" if task["method"] == "epinet" else "default"
    preset = pm.PRESETS[name]
    recipe = pm.Recipe(
        preset.network,
        dataclasses.replace(preset.training, max_steps=study.steps, patience=None),
    )
    fit, training = timed(lambda: pm.fit(key, counts, recipe, progress=False))
    result = {"training_s": training, "rows": len(counts.z)}
    fitted = fit.model
    points = model.sample_population(jax.random.key(1), max(study.num_test)).z
    if task["method"] == "epinet":

        def draw(z):
            for start in range(0, len(z), 1000):
                fitted.draws(key, z[start : start + 1000], study.num_draws)
    else:
        plain = pm.plain_functions(fitted)
        cells = np.concatenate([np.reshape(p, (-1, 4)) for p in counts[1:]], axis=1)
        scope = "full" if task["method"] == "bootstrap_full" else "last_layer"
        bootstrap, solving = timed(
            lambda: pi.MultiplierBootstrap(
                key,
                pi.TwoStage(plain.features, plain.head),
                lambda raw, counts: plain.frozen_nll(raw, raw, counts),
                plain.params,
                fitted.standardiser(counts.z),
                cells,
                num_draws=study.num_draws,
                frozen_nll=plain.frozen_nll,
                scope=scope,
                damping=1e-3,
            )
        )
        result["solves_s"] = solving

        def draw(z):
            bootstrap.draws(fitted.standardiser(z))

        some = fitted.standardiser(points[: study.reference])
        pi.per_point_draws(bootstrap, some[:1])  # compiles
        _, slow = timed(lambda: pi.per_point_draws(bootstrap, some))
        result["reference_s_per_point"] = slow / len(some)
    for count in study.num_test:
        draw(points[:count])  # compiles
        _, took = timed(lambda count=count: draw(points[:count]))
        result[f"points_{count}_s"] = took
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result["peak_memory_gb"] = peak
    return {name: round(float(value), 4) for name, value in result.items()}


def in_own_process(task: dict) -> dict[str, float]:
    """Runs one task in a new process and reads what it prints."""
    command = [sys.executable, __file__, f"--preset={_PRESET.value}"]
    done = subprocess.run(
        [*command, f"--one_task={json.dumps(task)}"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def write_table(folder: Path, rows: list[dict]) -> str:
    """Writes table.md; returns it."""
    names = list(
        dict.fromkeys(k for row in rows for k in row if k not in ("task", "seconds"))
    )
    head = ["method", "observational rows", *names]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [row["task"]["method"], f"{row['task']['num_train']:,}"]
        cells += [f"{row[n]:g}" if n in row else "" for n in names]
        lines.append("| " + " | ".join(cells) + " |")
    text = "\n".join(lines) + "\n"
    (folder / "table.md").write_text(text)
    return text


def main(argv: Sequence[str]) -> None:
    """Runs the study, or one task of it."""
    del argv
    logging.set_verbosity(logging.WARNING)
    study = PRESETS[_PRESET.value]
    if _ONE.value is not None:
        print(json.dumps(measure(study, json.loads(_ONE.value))))
        return
    if _OUT.value is None:
        raise app.UsageError("say where to write with --out.")
    tasks = [
        {"method": method, "num_train": size}
        for size in study.num_train
        for method in study.methods
    ]
    config = dataclasses.asdict(study)
    rows = run_tasks(_OUT.value, config, tasks, in_own_process)
    print(write_table(Path(_OUT.value), rows))


if __name__ == "__main__":
    app.run(main)
