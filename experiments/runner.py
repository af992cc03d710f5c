"""Runs a list of tasks, one result line each; a killed run continues where it was.

Results are JSON lines, appended and flushed one by one. A task is a flat dict that names
it (setting, method, replicate, ...); a task whose name is in the file is done. Beside the
results lies what made them: the resolved config, and for every start of the program its
command, versions, commit and device.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from absl import app

PACKAGES = ("pns-bounds", "pns-dgp", "pns-models", "pns-infer", "pns-estimate")

Task = dict[str, Any]


def read_results(path: Path) -> list[dict[str, Any]]:
    """Reads result lines; the last may have been cut short by a kill."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    rows = []
    for number, line in enumerate(lines):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines) - 1:
                raise app.UsageError(
                    f"line {number + 1} of {path} is no result; mend or remove it."
                ) from error
    return rows


def run_tasks(
    folder: str | os.PathLike,
    config: dict[str, Any],
    tasks: list[Task],
    work: Callable[[Task], dict[str, Any]],
    shard: str = "results",
) -> None:
    """Does the tasks that are not done yet.

    Args:
      folder: where results and config lie.
      config: the program, and everything that decides a result beside the task; a
        folder with another config is refused. Under 'recipes' is what each method
        uses: a folder may get more methods, but not another recipe of one.
      tasks: flat and JSON-able, each naming itself.
      work: maps a task to its result.
      shard: name of the results file, for work shared among machines.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise app.UsageError(f"{folder} is a file; name a folder for the results.")
    folder.mkdir(parents=True, exist_ok=True)
    _write_config(folder, config)
    path = folder / f"{shard}.jsonl"
    rows = read_results(path)
    _drop_cut_line(path, rows)
    others = (read_results(other) for other in folder.glob("*.jsonl") if other != path)
    done = {_name(row["task"]) for row in itertools.chain(rows, *others)}
    left = {_name(task): task for task in tasks if _name(task) not in done}
    if not left:
        return
    _note_start(folder / f"{shard}.runs.json", len(rows))
    start, failed = time.monotonic(), []
    for number, (name, task) in enumerate(left.items()):
        begun = time.monotonic()
        try:
            row = {"task": task, **work(task)}
        except Exception:  # noqa: BLE001, one task must not take the others with it
            traceback.print_exc()
            failed.append(name)
            continue
        row["seconds"] = round(time.monotonic() - begun, 2)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        pace = (time.monotonic() - start) / (number + 1)
        print(
            f"[{number + 1}/{len(left)}] {name}: {row['seconds']:.0f} s, "
            f"{pace * (len(left) - number - 1) / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )
    if failed:
        raise SystemExit(
            f"{len(failed)} of {len(left)} tasks failed; what they said is above, and the "
            f"same command tries them again: {', '.join(failed)}"
        )


def _name(task: Task) -> str:
    return json.dumps(task, sort_keys=True)


def _drop_cut_line(path: Path, rows: list[dict[str, Any]]) -> None:
    """Removes what a kill left unfinished at the end of the file."""
    if not path.exists():
        return
    whole = "".join(json.dumps(row) + "\n" for row in rows)
    if path.read_text() != whole:
        write_text(path, whole)


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    path = folder / "config.json"
    made = json.loads(json.dumps(config))
    if path.exists():
        there = json.loads(path.read_text())
        recipes = [part.setdefault("recipes", {}) for part in (there, made)]
        both = recipes[0].keys() & recipes[1].keys()
        same = all(recipes[0][name] == recipes[1][name] for name in both)
        made["recipes"] = recipes[0] | recipes[1]
        if not same or there | {"recipes": made["recipes"]} != made:
            raise app.UsageError(
                f"{folder} holds results of another config; name a new folder."
            )
    write_text(path, json.dumps(made, indent=1) + "\n")


def _note_start(path: Path, done: int) -> None:
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


def write_text(path: Path, text: str) -> None:
    """Writes a file aside and renames it."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    aside.write_text(text)
    aside.replace(path)


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
