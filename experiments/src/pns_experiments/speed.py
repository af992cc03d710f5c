"""Times what people wait for: a line of JSON per measure, with its goal.

Commands and fits run in processes of their own, one after the other, so that compilation
and memory are theirs alone. Machines differ: read ratios, and the rate of a large matrix
product that stands beside them.
"""

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pns_dgp
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm

from pns_experiments.cost import peak_memory, timed
from pns_experiments.processes import share_cores

Line = dict[str, Any]
_DRAWS = 200  # of the full-network bootstrap


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much of everything is timed.

    Attributes:
      observational: rows of the log of Li Model 1.
      experimental: rows of its trial.
      times: how many times larger the large tables are.
      asked: people that the command answers for.
      people: with intervals, after the fit.
      acic: rows of the log with 200 continuous covariates; the trial has half.
      method: that is timed.
      product: size of the matrix product that tells machines apart.
    """

    observational: int = 100_000
    experimental: int = 50_000
    times: int = 10
    asked: int = 3_000
    people: int = 10_000
    acic: int = 200_000
    method: str = "crossfit"
    product: int = 2048


SIZES = {
    "default": Sizes(),
    "smoke": Sizes(600, 400, 2, 20, 50, 300, "plug_in", product=64),
}


def time_machine(sizes: Sizes, folder: Path) -> Iterator[Line]:
    """Times a large float32 product, best of ten."""
    product, a = jax.jit(jnp.matmul), jnp.ones((sizes.product, sizes.product))
    product(a, a)
    best = min(timed(lambda: product(a, a))[1] for _ in range(10))
    rate = 2 * sizes.product**3 / best / 1e9
    yield {"what": "matrix product", "gflops": rate, "cores": os.cpu_count()}


def time_start(sizes: Sizes, folder: Path) -> Iterator[Line]:
    """Times help and imports in fresh processes, best of three."""
    show_help = "from pns_estimate.command.main import run; run(['', '--help'])"
    for what, code, goal in (
        ("python alone", "pass", None),
        ("import pns_bounds", "import pns_bounds", 0.2),
        ("import pns_estimate", "import pns_estimate", None),
        ("pns-estimate --help", show_help, 1.5),
    ):
        runs = [_run([sys.executable, "-c", code]) for _ in range(3)]
        yield {"what": what, **_goal("seconds", min(r["seconds"] for r in runs), goal)}


def time_rows(sizes: Sizes, folder: Path) -> Iterator[Line]:
    """Times rows of both models, beside as many standard normal numbers of NumPy."""
    rng = np.random.default_rng(0)
    models = {"Li Model 1": pns_dgp.li_model_1(), "ACIC": pns_dgp.acic_model()}
    rows = (sizes.observational * sizes.times, sizes.acic)
    for (name, model), count in zip(models.items(), rows, strict=True):
        width = np.shape(model.sample(jax.random.key(0), count, "observational").z)[1]
        _, took = timed(
            lambda m=model, n=count: m.sample(jax.random.key(1), n, "observational")
        )
        _, plain = timed(lambda n=count, d=width: rng.standard_normal((n, d)))
        what = f"{count:,} rows of {name}, beside normal numbers"
        yield {"what": what, "seconds": took, "ratio": took / plain}


def time_command(sizes: Sizes, folder: Path) -> Iterator[Line]:
    """Times the whole command on CSV files: cold, warm, in two processes, on many rows."""
    trial = (sizes.observational, sizes.experimental)
    cold = _run_command(sizes, folder, trial)
    yield {
        "what": f"command, {_rows(trial)} rows, nothing compiled yet",
        **cold,
        "goal_seconds": 60,
    }
    warm = _run_command(sizes, folder, trial)
    yield {"what": "the same again", **warm}
    # Nothing is compiled yet for two: JAX keeps CPU programs of process 0 alone.
    two = _run_command(sizes, folder, trial, num_processes=2)
    ratio = two["seconds"] / cold["seconds"]
    yield {
        "what": "the same in two processes, beside the first",
        **two,
        **_goal("ratio", ratio, 1.2),
    }
    few = (sizes.observational, sizes.observational)
    many = (few[0] * sizes.times, few[1] * sizes.times)
    small = _run_command(sizes, folder, few)
    yield {"what": f"command, {_rows(few)} rows", **small}
    large = _run_command(sizes, folder, many)
    ratio = large["seconds"] / small["seconds"]
    what = f"command, {_rows(many)} rows, beside {_rows(few)}"
    yield {"what": what, **large, **_goal("ratio", ratio, 1.5)}


def time_answers(sizes: Sizes, folder: Path) -> Iterator[Line]:
    """Times intervals after the fit, and the full-network bootstrap beside them."""
    tables = _draw_tables((sizes.observational, sizes.experimental))
    people = _draw_people(sizes.people)
    default = pe.PnsEstimator(sizes.method, progress=False)
    default.fit(*tables, treatment="x", outcome="y")
    default.predict(people).intervals()  # compiles
    _, took = timed(lambda: default.predict(people).intervals())
    what = f"intervals of {sizes.people:,} people by {sizes.method}"
    yield {"what": what, **_goal("seconds", took, 3)}
    log, trial = (_as_arrays(table) for table in tables)
    counts = pm.rows_from_tables(log, trial).counts(merge=None)
    recipe = _smaller(pe.METHODS["bootstrap_full"].recipe, sizes)
    model = pm.fit(jax.random.key(1), counts, recipe, progress=False).model
    # People who share covariates share draws, as `predict` has it.
    first, place = pm.distinct_rows(people.to_numpy(np.float32))
    z = model.standardizer(people.to_numpy()[first])

    def draw() -> pi.BootstrapResult:
        key = jax.random.key(2)
        solved = pe.make_bootstrap(key, model, counts, "full", _DRAWS)
        solved.draws(z)[:, place]
        return solved

    for what in ("with compilation", "compiled before"):
        solved, seconds = timed(draw)
        yield {
            "what": f"full-network bootstrap, {_DRAWS} draws, set-up included, {what}, "
            f"beside intervals by {sizes.method}",
            "seconds": seconds,
            **_goal("ratio", seconds / took, 3),
            "parameters": int(solved.shifts.shape[1]),
            "worst_residual": float(solved.residuals.max()),
        }


def time_continuous(sizes: Sizes, folder: Path) -> Iterator[Line]:
    """Times a fit with 200 continuous covariates, and its memory beside the tables."""
    program = (
        "import pathlib, sys\n"
        "from pns_experiments import speed\n"
        "speed.fit_acic(int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]))"
    )
    path = folder / "acic.json"
    _run([sys.executable, "-c", program, str(sizes.acic), sizes.method, str(path)])
    found = json.loads(path.read_text())
    rows = _rows((sizes.acic, sizes.acic // 2))
    yield {
        "what": f"fit by {sizes.method}, ACIC, {rows} rows; memory beside the tables",
        **_goal("seconds", found["seconds"], 600),
        "peak_gb": found["peak_gb"],
        "peak_before_fit_gb": found["before_gb"],
        **_goal("ratio", found["peak_gb"] / found["tables_gb"], 5),
    }


def fit_acic(rows: int, method: str, path: Path) -> None:
    """Fits in this process, and writes what it took."""
    tables = _sample(pns_dgp.acic_model(), (rows, rows // 2))
    tables_gb = sum(table.memory_usage().sum() for table in tables) / 2**30
    estimator, before_gb = pe.PnsEstimator(method, progress=False), peak_memory()
    _, took = timed(lambda: estimator.fit(*tables, treatment="x", outcome="y"))
    sizes = {"tables_gb": tables_gb, "before_gb": before_gb, "peak_gb": peak_memory()}
    path.write_text(json.dumps({"seconds": took, **sizes}))


MEASURES: dict[str, Callable[[Sizes, Path], Iterator[Line]]] = {
    "machine": time_machine,
    "start": time_start,
    "rows": time_rows,
    "command": time_command,
    "answers": time_answers,
    "continuous": time_continuous,
}


def run_measures(names: Sequence[str], sizes: Sizes, folder: Path) -> Path:
    """Runs measures one after the other; appends a line to results.jsonl for each.

    Args:
      names: of `MEASURES`.
      sizes: how much is timed.
      folder: for results, tables and models.

    Returns:
      The file with the lines.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.jsonl"
    for name in names:
        for line in MEASURES[name](sizes, folder):
            rounded = {
                key: float(f"{value:.3g}") if isinstance(value, float) else value
                for key, value in line.items()
            }
            text = json.dumps({"measure": name, **rounded})
            print(text, flush=True)
            with path.open("a") as file:
                file.write(text + "\n")
    return path


def _goal(name: str, value: float, goal: float | None) -> Line:
    """Puts a number beside what it should be at most."""
    return {name: value} if goal is None else {name: value, f"goal_{name}": goal}


def _rows(counts: tuple[int, int]) -> str:
    return " + ".join(f"{count:,}" for count in counts)


def _run(arguments: list[str], **environment: str) -> Line:
    """Runs a program to its end; returns seconds and peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen(
        arguments,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise RuntimeError(f"{arguments[0]} failed: {said.decode()[-500:]}")
    return {
        "seconds": time.perf_counter() - start,
        "peak_gb": usage.ru_maxrss / 2**20,
    }


def _run_command(
    sizes: Sizes, folder: Path, rows: tuple[int, int], num_processes: int = 1
) -> Line:
    """Runs the command on tables of some rows, in one process or several."""
    paths = _write_tables(folder, rows, sizes.asked)
    out = folder / f"run_{time.time_ns()}"
    arguments = [sys.executable, "-m", "pns_estimate.command.main"]
    arguments += [f"--{name}={path}" for name, path in paths.items()]
    arguments += ["--treatment=x", "--outcome=y", f"--method={sizes.method}"]
    arguments += [f"--out={out}"]
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled")}
    if num_processes == 1:
        return _run(arguments, **cache)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments += [f"--coordinator_address=127.0.0.1:{port}"]
    arguments += [f"--num_processes={num_processes}"]
    # XLA's threads: each process has its share of the cores, as a scheduler would deal.
    cache["NPROC"] = str(max(1, len(share_cores(1)[0]) // num_processes))
    others = [
        subprocess.Popen([*arguments, f"--process_id={i}"], env={**os.environ, **cache})
        for i in range(1, num_processes)
    ]
    try:
        return _run([*arguments, "--process_id=0"], **cache)
    finally:
        for other in others:
            other.wait()


def _write_tables(folder: Path, rows: tuple[int, int], asked: int) -> dict[str, Path]:
    """Writes both tables and the people of Li Model 1, unless they are there."""
    name = "_".join(map(str, rows))
    paths = {
        "observational": folder / f"log_{name}.csv",
        "experimental": folder / f"trial_{name}.csv",
        "predict": folder / "people.csv",
    }
    if not paths["experimental"].exists():
        log, trial = _draw_tables(rows)
        log.to_csv(paths["observational"], index=False)
        trial.to_csv(paths["experimental"], index=False)
        _draw_people(asked).to_csv(paths["predict"], index=False)
    return paths


def _draw_tables(rows: tuple[int, int]) -> tuple[pd.DataFrame, pd.DataFrame]:
    return _sample(pns_dgp.li_model_1(), rows)


def _sample(
    model: pns_dgp.StructuralModel, rows: tuple[int, int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    key = jax.random.key(0)
    log = model.sample(key, rows[0], "observational")
    return _as_frame(log), _as_frame(model.sample(key, rows[1], "experimental"))


def _draw_people(count: int) -> pd.DataFrame:
    z = np.asarray(pns_dgp.li_model_1().sample_population(jax.random.key(1), count).z)
    return pd.DataFrame(z, columns=[f"z{i}" for i in range(z.shape[1])])


def _as_frame(table: Any) -> pd.DataFrame:
    z = np.asarray(table.z)
    frame = pd.DataFrame(z, columns=[f"z{i}" for i in range(z.shape[1])])
    return frame.assign(x=np.asarray(table.x), y=np.asarray(table.y))


def _as_arrays(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    z = table.drop(columns=["x", "y"]).to_numpy()
    return z, table["x"].to_numpy(), table["y"].to_numpy()


def _smaller(recipe: pm.Recipe, sizes: Sizes) -> pm.Recipe:
    """Returns a recipe of few steps for a few rows."""
    if sizes.observational > 10_000:
        return recipe
    training = dataclasses.replace(recipe.training, max_steps=20, patience=None)
    network = pm.AnchoredConfig(pm.Backbone(width=4, depth=1))
    return pm.Recipe(network, training)
