"""tab:compute: set-up, inference times and peak memory of three ways to be uncertain.

Times are of this machine; compare them within a run. Each task runs in a process of its
own, so that its peak of memory is its own.

  python experiments/compute.py --preset=default --out=results/compute
"""

import dataclasses
import json
import subprocess
import sys
import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import pns_dgp
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm
from absl import app, flags, logging
from options import read_options
from runner import run_tasks
from summarize import write_report
from timing import peak_memory, timed

_ONE = flags.DEFINE_string(
    "one_task", None, "For the program itself: one task as JSON."
)


@dataclasses.dataclass(frozen=True)
class Study:
    """Which methods, training sizes and numbers of points.

    Attributes:
      num_train: observational rows, by method; half as many experimental ones.
      num_draws: by method.
      num_test: points of batched inference.
      steps: of training.
      reference: points of the per-point algorithm.
      replicates: how often all of it is timed.
    """

    num_train: dict[str, tuple[int, ...]]
    num_draws: dict[str, int]
    num_test: tuple[int, ...] = (1, 1000, 10_000)
    steps: int = 200
    reference: int = 2
    replicates: int = 1


_SIZES = (25_000, 50_000, 200_000, 1_000_000)
# Solves of the full network take minutes per 25 draws, and are proportional to them.
_DRAWS = {"bootstrap_last_layer": 1000, "bootstrap_full": 25, "epinet": 1000}

PRESETS = {
    "default": Study(
        {
            "bootstrap_last_layer": _SIZES,
            "bootstrap_full": (25_000, 200_000),
            "epinet": _SIZES,
        },
        _DRAWS,
    ),
    "smoke": Study(
        dict.fromkeys(_DRAWS, (1000,)),
        dict.fromkeys(_DRAWS, 60),
        (1, 50),
        steps=20,
        reference=1,
    ),
}


def make_recipe(study: Study, method: str) -> pm.Recipe:
    """Returns the default recipe of a method with a fixed number of steps."""
    preset = pm.PRESETS["default_epinet" if method == "epinet" else "default"]
    training = dataclasses.replace(
        preset.training, max_steps=study.steps, patience=None
    )
    return pm.Recipe(preset.network, training)


def measure(study: Study, seed: int, task: dict) -> dict[str, float]:
    """Trains, sets up and times one method at one training size."""
    warnings.simplefilter("ignore", pi.NotConvergedWarning)
    model = pns_dgp.li_model_1()
    key = jax.random.fold_in(jax.random.key(seed), task["replicate"])
    counts = pm.counts_from_tables(
        model.sample(key, task["num_train"], "observational"),
        model.sample(key, task["num_train"] // 2, "experimental"),
    )
    method, num_draws = task["method"], study.num_draws[task["method"]]
    recipe = make_recipe(study, method)
    fit, took = timed(lambda: pm.fit(key, counts, recipe, progress=False))
    result = {"rows": len(counts.z), "draws": num_draws, "training_s": took}
    fitted = fit.model
    points = model.sample_population(jax.random.fold_in(key, 1), max(study.num_test)).z
    bootstrap = None
    if method != "epinet":
        bootstrap, result["solves_s"] = timed(
            lambda: pe.make_bootstrap(
                key,
                fitted,
                counts,
                "full" if method == "bootstrap_full" else "last_layer",
                num_draws=num_draws,
                damping=1e-3,
            )
        )
        result["residual"] = float(bootstrap.residuals.max())

    def draw(z):
        for start in range(0, len(z), 1000):
            block = z[start : start + 1000]
            if bootstrap is None:
                fitted.draws(key, block, num_draws)
            else:
                raw = bootstrap.draws(fitted.standardiser(block))
                jax.block_until_ready(pm.atoms_from_raw(jnp.asarray(raw), "anchored"))

    for count in study.num_test:
        draw(points[:count])  # compiles
        _, result[f"points_{count}_s"] = timed(lambda count=count: draw(points[:count]))
    result["peak_memory_gb"] = peak_memory()
    if bootstrap is not None:  # after the peak was read
        some = fitted.standardiser(points[: study.reference + 1])
        # The first point compiles, and both calls set up what points share.
        _, one = timed(lambda: pi.per_point_draws(bootstrap, some[:1]))
        _, one = timed(lambda: pi.per_point_draws(bootstrap, some[:1]))
        _, all_of_them = timed(lambda: pi.per_point_draws(bootstrap, some))
        result["reference_s_per_point"] = (all_of_them - one) / study.reference
    return {name: round(float(value), 5) for name, value in result.items()}


def in_own_process(task: dict) -> dict[str, float]:
    """Runs this program again for one task and reads what it prints."""
    done = subprocess.run(
        [sys.executable, *sys.argv, f"--one_task={json.dumps(task)}"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main(argv: Sequence[str]) -> None:
    """Runs the study, or one task of it."""
    del argv
    logging.set_verbosity(logging.WARNING)
    options = read_options()
    study = options.pick(PRESETS)
    if _ONE.value is not None:
        print(json.dumps(measure(study, options.seed, json.loads(_ONE.value))))
        return
    tasks = [
        {"method": method, "num_train": size, "replicate": replicate}
        for replicate in options.replicates(study.replicates)
        for method, sizes in study.num_train.items()
        for size in sizes
    ]
    config = {
        "program": "compute",
        **dataclasses.asdict(study),
        "seed": options.seed,
        "recipes": {n: make_recipe(study, n).to_json() for n in study.num_train},
    }
    run_tasks(options.out, config, tasks, in_own_process, options.shard)
    print(write_report(options.out))


if __name__ == "__main__":
    app.run(main)
