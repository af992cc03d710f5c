"""Set-up, inference times and peak memory of uncertainty methods.

Table 5 (tab:compute). Times are of the machine; compare them within a run. A task is
measured in a process of its own, so that its peak of memory is its own.
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import pns_dgp
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm
from absl import app
from pns_infer.bootstrap.multiplier import NotConvergedWarning, per_point_draws

from pns_experiments.cost import peak_memory, timed
from pns_experiments.options import Options
from pns_experiments.recipes import Size, resize
from pns_experiments.report import write_report
from pns_experiments.runner import Task, run_tasks


class Prepared(NamedTuple):
    """A fitted method.

    Attributes:
      numbers: what its set-up measured.
      draw: draws for points on the scale of the data.
      draw_one_by_one: the paper's algorithm, which solves for every point, or None.
    """

    numbers: dict[str, float]
    draw: Callable[[np.ndarray], object]
    draw_one_by_one: Callable[[np.ndarray], object] | None


class Measured(Protocol):
    """A method whose set-up and draws are timed."""

    @property
    def recipe(self) -> pm.Recipe:
        """Network and training."""
        ...

    def prepare(
        self, key: jax.Array, model: pm.FittedModel, counts: pm.Counts, num_draws: int
    ) -> Prepared:
        """Does what comes between training and draws."""
        ...


@dataclasses.dataclass(frozen=True)
class MeasuredBootstrap:
    """The multiplier bootstrap of an anchored network."""

    scope: Literal["full", "last_layer"]
    recipe: pm.Recipe = pm.PRESETS["default"]

    def prepare(
        self, key: jax.Array, model: pm.FittedModel, counts: pm.Counts, num_draws: int
    ) -> Prepared:
        """Solves for all draws."""
        bootstrap, took = timed(
            lambda: pe.make_bootstrap(
                key, model, counts, self.scope, num_draws, pi.SolveConfig(damping=1e-3)
            )
        )

        def draw(z: np.ndarray) -> object:
            raw = bootstrap.draws(model.standardizer(z))
            return jax.block_until_ready(
                pm.atoms_from_raw(jnp.asarray(raw), "anchored")
            )

        return Prepared(
            {"solves_s": took, "residual": float(bootstrap.residuals.max())},
            draw,
            lambda z: per_point_draws(bootstrap, model.standardizer(z)),
        )


@dataclasses.dataclass(frozen=True)
class MeasuredNetwork:
    """A network with draws of its own."""

    recipe: pm.Recipe

    def prepare(
        self, key: jax.Array, model: pm.FittedModel, counts: pm.Counts, num_draws: int
    ) -> Prepared:
        """Needs nothing beyond training."""
        del counts
        return Prepared({}, lambda z: model.draws(key, z, num_draws), None)


METHODS: dict[str, Measured] = {
    "bootstrap_last_layer": MeasuredBootstrap("last_layer"),
    "bootstrap_full": MeasuredBootstrap("full"),
    "epinet": MeasuredNetwork(pm.PRESETS["default_epinet"]),
}


@dataclasses.dataclass(frozen=True)
class Study:
    """Which methods, training sizes and numbers of points.

    Attributes:
      num_train: observational sample sizes, by method; the experimental are half.
      num_draws: by method.
      num_test: points of batched inference.
      steps: of training.
      reference: points of the paper's algorithm.
      replicates: how often all of it is timed.
      size: 'full', or 'smoke' for small networks.
    """

    num_train: dict[str, tuple[int, ...]]
    num_draws: dict[str, int]
    num_test: tuple[int, ...] = (1, 1000, 10_000)
    steps: int = 200
    reference: int = 2
    replicates: int = 1
    size: Size = "full"

    def recipe(self, method: str) -> pm.Recipe:
        """Returns the recipe of a method with the number of steps of the study."""
        recipe = resize(METHODS[method].recipe, self.size)
        training = dataclasses.replace(
            recipe.training, max_steps=self.steps, patience=None
        )
        return pm.Recipe(recipe.network, training)


_SIZES = (25_000, 50_000, 200_000, 1_000_000)
# Solves of the full network, of 52,358 parameters, take minutes for hundreds of draws.
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
        {"bootstrap_last_layer": (1000,)},
        dict.fromkeys(_DRAWS, 50),
        (2,),
        steps=20,
        reference=1,
        size="smoke",
    ),
}


def run_study(
    study: Study, options: Options, work: Callable[[Task], dict[str, Any]]
) -> str:
    """Runs the study; writes and returns its table.

    Args:
      study: what is measured.
      options: from the command line.
      work: calls `measure` in a process of its own.
    """
    if options.workers > 1:
        raise app.UsageError(
            "times are measured one after another; leave --workers out."
        )
    tasks = [
        {"method": method, "num_train": size, "replicate": replicate}
        for replicate in options.replicates(study.replicates)
        for method, sizes in study.num_train.items()
        for size in sizes
    ]
    config = {
        "study": "compute",
        **dataclasses.asdict(study),
        "seed": options.seed,
        "recipes": {name: study.recipe(name).to_json() for name in study.num_train},
    }
    run_tasks(options.out, config, tasks, work, options.shard)
    return write_report(options.out)


def measure(study: Study, seed: int, task: Task) -> dict[str, float]:
    """Trains, sets up and times one method at one training size."""
    warnings.simplefilter("ignore", NotConvergedWarning)
    dgp = pns_dgp.li_model_1()
    key = jax.random.fold_in(jax.random.key(seed), task["replicate"])
    counts = pm.rows_from_tables(
        dgp.sample(key, task["num_train"], "observational"),
        dgp.sample(key, task["num_train"] // 2, "experimental"),
    ).counts(merge=None)
    method, num_draws = METHODS[task["method"]], study.num_draws[task["method"]]
    recipe = study.recipe(task["method"])
    fit, took = timed(lambda: pm.fit(key, counts, recipe, progress=False))
    prepared = method.prepare(key, fit.model, counts, num_draws)
    points = dgp.sample_population(jax.random.fold_in(key, 1), max(study.num_test)).z
    points = np.asarray(points)
    numbers = {
        "rows": len(counts.z),
        "draws": num_draws,
        "training_s": took,
        **prepared.numbers,
        **_time_draws(prepared.draw, points, study.num_test),
        "peak_memory_gb": peak_memory(),
    }
    if prepared.draw_one_by_one:  # after the peak was read
        numbers["reference_s_per_point"] = _time_per_point(
            prepared.draw_one_by_one, points, study.reference
        )
    return {name: round(float(value), 5) for name, value in numbers.items()}


def _time_draws(
    draw: Callable[[np.ndarray], object], points: np.ndarray, num_test: tuple[int, ...]
) -> dict[str, float]:
    def draw_in_blocks(count: int) -> None:
        for start in range(0, count, 1000):
            draw(points[start : min(start + 1000, count)])

    seconds = {}
    for count in num_test:
        draw_in_blocks(count)  # compiles
        _, seconds[f"points_{count}_s"] = timed(lambda: draw_in_blocks(count))  # noqa: B023
    return seconds


def _time_per_point(
    draw: Callable[[np.ndarray], object], points: np.ndarray, count: int
) -> float:
    """Times `count` points beyond the first, which compiles and sets up."""
    draw(points[:1])
    _, one = timed(lambda: draw(points[:1]))
    _, all_of_them = timed(lambda: draw(points[: count + 1]))
    return (all_of_them - one) / count
