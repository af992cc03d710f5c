"""The runner: a killed run continues."""

import json
import signal
import subprocess
import sys
import time

import pytest
from absl import app
from binaries import EXPERIMENTS, read_rows

sys.path.insert(0, str(EXPERIMENTS))
import runner

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


def work(task):
    return {"value": task["replicate"] ** 2}


def run(folder, count, config=None, shard="results", work=work):
    tasks = [{"replicate": i} for i in range(count)]
    runner.run_tasks(folder, config or {}, tasks, work, shard)


def numbers(folder, shard="results"):
    return [row["task"]["replicate"] for row in read_rows(folder, shard)]


def test_every_start_is_noted_with_what_was_done_before(tmp_path):
    for count in (4, 12, 12):
        run(tmp_path, count)
    starts = json.loads((tmp_path / "results.runs.json").read_text())
    assert [start["done_before"] for start in starts] == [0, 4]  # the third did nothing
    assert all("jax" in start["versions"] for start in starts)


def test_a_task_that_fails_does_not_take_the_others_with_it(tmp_path, capsys):
    def unlucky(task):
        assert task["replicate"] != 3, "no luck"
        return work(task)

    with pytest.raises(SystemExit, match='1 of 6 tasks failed.*{"replicate": 3}'):
        run(tmp_path, 6, work=unlucky)
    assert "no luck" in capsys.readouterr().err
    assert numbers(tmp_path) == [0, 1, 2, 4, 5]
    run(tmp_path, 6)
    assert numbers(tmp_path) == [0, 1, 2, 4, 5, 3]


def test_shards_leave_alone_what_is_done_and_recipes_cannot_change(tmp_path):
    run(tmp_path, 4, {"recipes": {"m": 1}}, "one")
    run(tmp_path, 6, {"recipes": {"n": 2}}, "two")
    assert numbers(tmp_path, "two") == [4, 5]
    made = json.loads((tmp_path / "config.json").read_text())
    assert made == {"recipes": {"m": 1, "n": 2}}
    for other in ({"recipes": {"m": 3}}, {"b": 1}):
        with pytest.raises(app.UsageError, match="another config"):
            run(tmp_path, 6, other, "two")


def test_a_damaged_line_in_the_middle_is_told_and_nothing_is_dropped(tmp_path):
    path = tmp_path / "results.jsonl"
    damaged = '{"task": {"replicate": 0}}\nnonsense\n{"task": {"replicate": 1}}\n'
    path.write_text(damaged)
    with pytest.raises(app.UsageError, match="line 2 of"):
        run(tmp_path, 3)
    assert path.read_text() == damaged
    with pytest.raises(app.UsageError, match="is a file; name a folder"):
        run(path, 3)
