"""The runner: a killed run continues."""

import json
import signal
import subprocess
import sys
import time

from binaries import EXPERIMENTS, read_rows

SLOW_TASKS = """
import sys, time
sys.path.insert(0, {folder!r})
from runner import run_tasks
def work(task):
    time.sleep(0.2)
    return {{"value": task["replicate"] ** 2}}
run_tasks({out!r}, {{"a": 1}}, [{{"replicate": i}} for i in range(12)], work)
"""


def test_a_run_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path):
    code = SLOW_TASKS.format(folder=str(EXPERIMENTS), out=str(tmp_path))
    path = tmp_path / "results.jsonl"
    killed = 0
    for _ in range(30):
        process = subprocess.Popen([sys.executable, "-c", code])
        goal = len(path.read_text().splitlines()) + 3 if path.exists() else 3
        while process.poll() is None:
            if path.exists() and len(path.read_text().splitlines()) >= goal:
                process.send_signal(signal.SIGKILL)
                killed += 1
            time.sleep(0.02)
        if process.returncode == 0:
            break
        with path.open("a") as file:
            file.write('{"task": {"replic')  # as a kill in the middle of a write would
    assert killed >= 2
    rows = read_rows(tmp_path)
    assert [row["task"]["replicate"] for row in rows] == list(range(12))
    assert [row["value"] for row in rows] == [i**2 for i in range(12)]


def test_every_start_is_noted_with_what_was_done_before(tmp_path):
    code = SLOW_TASKS.format(folder=str(EXPERIMENTS), out=str(tmp_path))
    for tasks in (4, 12, 12):
        few = code.replace("range(12)", f"range({tasks})").replace("0.2", "0")
        subprocess.run([sys.executable, "-c", few], check=True)
    starts = json.loads((tmp_path / "results.runs.json").read_text())
    assert [start["done_before"] for start in starts] == [0, 4]  # the third did nothing
    assert all("jax" in start["versions"] for start in starts)
