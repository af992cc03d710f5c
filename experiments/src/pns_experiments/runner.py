"""Runs a list of tasks, one result line each; a killed run continues where it was.

Results are JSON lines, appended and flushed one by one. A task is a flat dict that names
it (setting, method, replicate, ...); a task whose name is in the file is done. Beside the
results are the resolved config, and for every start of the program its command, versions,
commit and device.
"""

import importlib.metadata
import itertools
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pns_models as pm
from absl import app
from jax.experimental import multihost_utils

from pns_experiments.processes import ask_workers, is_worker, serve

PACKAGES = ("pns-bounds", "pns-dgp", "pns-models", "pns-infer", "pns-estimate")

Task = dict[str, Any]
Config = dict[str, Any]


def run_tasks(
    folder: str | os.PathLike,
    config: Config,
    tasks: list[Task],
    work: Callable[[Task], dict[str, Any]],
    shard: str = "results",
    workers: int = 1,
) -> None:
    """Does the tasks that are not done yet; returns only in a process that writes.

    Where several processes share fits (`pns_models.join_processes`) all of them do the
    same tasks, and process 0 writes.

    Args:
      folder: where results and config are.
      config: the study, and everything that decides a result beside the task; a
        folder with another config is refused. Under 'recipes' is what each method
        uses: a folder may get more methods, but not another recipe of one.
      tasks: flat and JSON-able, each naming itself.
      work: maps a task to its result.
      shard: name of the results file, for work shared among machines.
      workers: number of processes, which run the same program; this one then only
        writes down what they find.
    """
    if is_worker():
        serve(lambda line: json.dumps(_attempt(json.loads(line), work)))
    folder, path = Path(folder), Path(folder) / f"{shard}.jsonl"
    is_left, done_before = np.zeros(len(tasks), bool), 0
    if pm.is_writer():
        rows, done = _open_folder(folder, config, path)
        is_left = np.array([_name(task) not in done for task in tasks], bool)
        done_before = len(rows)
    # Others may not see the disk of process 0, or see it too late.
    is_left = multihost_utils.broadcast_one_to_all(is_left)
    left = {_name(t): t for t, is_open in zip(tasks, is_left, strict=True) if is_open}
    if not pm.is_writer():
        for task in left.values():
            _attempt(task, work)
        sys.exit()
    if left:
        note_start(folder / f"{shard}.runs.json", done_before)
        _do_tasks(path, left, work, workers)
        if workers > 1:
            _sort_rows(path, tasks)


def _open_folder(
    folder: Path, config: Config, path: Path
) -> tuple[list[dict[str, Any]], set[str]]:
    """Makes a folder ready; returns the shard's rows, and the names of all tasks done."""
    if folder.exists() and not folder.is_dir():
        raise app.UsageError(f"{folder} is a file; name a folder for the results.")
    folder.mkdir(parents=True, exist_ok=True)
    _write_config(folder, config)
    rows = read_results(path)
    _drop_cut_line(path, rows)
    others = (read_results(other) for other in folder.glob("*.jsonl") if other != path)
    return rows, {_name(row["task"]) for row in itertools.chain(rows, *others)}


def _do_tasks(
    path: Path,
    tasks: dict[str, Task],
    work: Callable[[Task], dict[str, Any]],
    workers: int,
) -> None:
    """Appends a line per task; one that fails does not stop the others."""
    start, failed = time.monotonic(), []
    if workers > 1:
        attempts = _attempts_of_workers(tasks, workers)
    else:
        attempts = ((name, _attempt(task, work)) for name, task in tasks.items())
    for number, (name, attempt) in enumerate(attempts, 1):
        if "error" in attempt:
            print(attempt["error"], file=sys.stderr, flush=True)
            failed.append(name)
            continue
        row = attempt["row"]
        _append(path, row)
        minutes = (time.monotonic() - start) / number * (len(tasks) - number) / 60
        print(
            f"[{number}/{len(tasks)}] {name}: {row['seconds']:.0f} s, "
            f"{minutes:.0f} min left",
            file=sys.stderr,
            flush=True,
        )
    if failed:
        raise SystemExit(
            f"{len(failed)} of {len(tasks)} tasks failed; their errors are above, and "
            f"the same command tries them again: {', '.join(failed)}"
        )


def _attempt(task: Task, work: Callable[[Task], dict[str, Any]]) -> dict[str, Any]:
    """Does one task; returns its row, or the traceback of what went wrong."""
    begun = time.monotonic()
    try:
        row = {"task": task, **work(task)}
    except pm.LostProcessError:
        raise  # no other task can be done, either
    except Exception:  # noqa: BLE001, its traceback is printed
        return {"error": traceback.format_exc()}
    return {"row": {**row, "seconds": round(time.monotonic() - begun, 2)}}


def _attempts_of_workers(
    tasks: dict[str, Task], workers: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Has tasks done by other processes; yields them as they end."""
    names = list(tasks)
    lines = [json.dumps(task) for task in tasks.values()]
    for number, answer in ask_workers(lines, min(workers, len(lines))):
        died = {"error": f"the worker of {names[number]} died."}
        yield names[number], died if answer is None else json.loads(answer)


def _sort_rows(path: Path, tasks: list[Task]) -> None:
    """Puts results in the order of the tasks, as one process would have."""
    place = {_name(task): number for number, task in enumerate(tasks)}
    rows = read_results(path)
    rows.sort(key=lambda row: place.get(_name(row["task"]), -1))
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def read_results(path: Path) -> list[dict[str, Any]]:
    """Reads result lines; the last may have been cut short by a kill."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise app.UsageError(
                    f"line {number} of {path} is not valid JSON; fix or delete it."
                ) from error
    return rows


def read_config(folder: Path) -> Config | None:
    """Reads the config of a folder of results; None if there is none.

    Folders of earlier versions name a `program` where newer ones name a `study`.
    """
    path = folder / "config.json"
    if not path.exists():
        return None
    config = json.loads(path.read_text())
    if "program" in config:
        config["study"] = config.pop("program")
    return config


def write_text(path: Path, text: str) -> None:
    """Writes a file under another name, then renames it: it is complete or absent."""
    unfinished = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.part")
    unfinished.write_text(text)
    unfinished.replace(path)


def _name(task: Task) -> str:
    return json.dumps(task, sort_keys=True)


def _append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _drop_cut_line(path: Path, rows: list[dict[str, Any]]) -> None:
    """Removes what a kill left unfinished at the end of the file."""
    if not path.exists():
        return
    whole = "".join(json.dumps(row) + "\n" for row in rows)
    if path.read_text() != whole:
        write_text(path, whole)


def _write_config(folder: Path, config: Config) -> None:
    wanted = json.loads(json.dumps(config))
    there = read_config(folder)
    if there is not None:
        recipes = [part.setdefault("recipes", {}) for part in (there, wanted)]
        both = recipes[0].keys() & recipes[1].keys()
        same = all(recipes[0][name] == recipes[1][name] for name in both)
        wanted["recipes"] = recipes[0] | recipes[1]
        if not same or there | {"recipes": wanted["recipes"]} != wanted:
            raise app.UsageError(
                f"{folder} holds results of another config; name a new folder."
            )
    write_text(folder / "config.json", json.dumps(wanted, indent=1) + "\n")


def note_start(path: Path, done: int) -> None:
    """Adds what runs from here on, after `done` results of the shard."""
    starts = json.loads(path.read_text()) if path.exists() else []
    starts.append(
        {
            "done_before": done,
            "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "versions": {name: importlib.metadata.version(name) for name in PACKAGES}
            | {"jax": jax.__version__, "python": platform.python_version()},
            "commit": _commit(),
            "device": f"{jax.default_backend()}, {_count_cores()} cores",
        }
    )
    write_text(path, json.dumps(starts, indent=1) + "\n")


def _count_cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):  # those this process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
