"""Runs a list of tasks, one result line each; a killed run continues where it was.

Results are JSON lines, appended and flushed one by one. A task is a flat dict that names
it (setting, method, replicate, ...); a task whose name is in the file is done. Beside the
results lies what made them: the resolved config, and for every start of the program its
command, versions, commit and device.
"""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
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
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def run_tasks(
    folder: str | os.PathLike,
    config: dict[str, Any],
    tasks: list[Task],
    work: Callable[[Task], dict[str, Any]],
    shard: str = "results",
    settings: dict[str, Any] | None = None,
) -> None:
    """Does the tasks that are not done yet.

    Args:
      folder: where results and config lie.
      config: the program, and everything that decides a result beside the task; a
        folder with another config is refused.
      tasks: flat and JSON-able, each naming itself.
      work: maps a task to its result.
      shard: name of the results file, for work shared among machines.
      settings: more to note beside the results, such as recipes in full.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _write_config(folder, config)
    path = folder / f"{shard}.jsonl"
    rows = read_results(path)
    _drop_cut_line(path, rows)
    done = {_name(row["task"]) for row in rows}
    left = [task for task in tasks if _name(task) not in done]
    if not left:
        return
    _note_start(folder / f"{shard}.runs.json", len(rows), settings)
    start = time.monotonic()
    for number, task in enumerate(left):
        begun = time.monotonic()
        row = {"task": task, **work(task)}
        row["seconds"] = round(time.monotonic() - begun, 2)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        pace = (time.monotonic() - start) / (number + 1)
        print(
            f"[{number + 1}/{len(left)}] {_name(task)}: {row['seconds']:.0f} s, "
            f"{pace * (len(left) - number - 1) / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
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
    plain = json.loads(json.dumps(config))
    if not path.exists():
        write_text(path, json.dumps(plain, indent=1) + "\n")
    elif json.loads(path.read_text()) != plain:
        raise app.UsageError(
            f"{folder} holds results of another config; name a new folder."
        )


def _note_start(path: Path, done: int, settings: dict[str, Any] | None) -> None:
    """Adds what runs from here on, after `done` results of the shard."""
    starts = json.loads(path.read_text()) if path.exists() else []
    starts.append(
        {
            "done_before": done,
            "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "versions": {name: importlib.metadata.version(name) for name in PACKAGES}
            | {"jax": jax.__version__, "python": platform.python_version()},
            "commit": _commit(),
            "device": f"{jax.default_backend()}, {len(os.sched_getaffinity(0))} cores",
            "settings": settings or {},
        }
    )
    write_text(path, json.dumps(starts, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file aside and renames it."""
    aside = path.with_name(path.name + ".part")
    aside.write_text(text)
    aside.replace(path)


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
