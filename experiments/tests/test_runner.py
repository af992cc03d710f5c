"""The runner: a killed run continues."""

import json
import signal
import subprocess
import sys
import time

import pytest
from absl import app
from pns_experiments import runner

SLOW_TASKS = """
import time
from pns_experiments.runner import run_tasks
def work(task):
    time.sleep(0.1)
    return {{"value": task["replicate"] ** 2}}
run_tasks({out!r}, {{"a": 1}}, [{{"replicate": i}} for i in range(12)], work)
"""


def test_a_run_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path):
    code = SLOW_TASKS.format(out=str(tmp_path))
    path = tmp_path / "results.jsonl"
    killed = 0
    for _ in range(30):
        process = subprocess.Popen([sys.executable, "-c", code])
        goal = len(path.read_text().splitlines()) + 4 if path.exists() else 4
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
    rows = runner.read_results(path)
    assert [row["task"]["replicate"] for row in rows] == list(range(12))
    assert [row["value"] for row in rows] == [i**2 for i in range(12)]


def work(task):
    return {"value": task["replicate"] ** 2}


def run(folder, count, config=None, shard="results", work=work):
    tasks = [{"replicate": i} for i in range(count)]
    runner.run_tasks(folder, config or {}, tasks, work, shard)


def numbers(folder, shard="results"):
    rows = runner.read_results(folder / f"{shard}.jsonl")
    return [row["task"]["replicate"] for row in rows]


def test_every_start_is_noted_with_what_was_done_before(tmp_path):
    for count in (4, 12, 12):
        run(tmp_path, count)
    starts = json.loads((tmp_path / "results.runs.json").read_text())
    assert [start["done_before"] for start in starts] == [0, 4]  # the third did nothing
    assert all("jax" in start["versions"] for start in starts)


def test_a_task_that_fails_does_not_stop_the_others(tmp_path, capsys):
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
    written = json.loads((tmp_path / "config.json").read_text())
    assert written == {"recipes": {"m": 1, "n": 2}}
    for other in ({"recipes": {"m": 3}}, {"b": 1}):
        with pytest.raises(app.UsageError, match="another config"):
            run(tmp_path, 6, other, "two")


def test_a_damaged_line_in_the_middle_raises_and_nothing_is_dropped(tmp_path):
    path = tmp_path / "results.jsonl"
    damaged = '{"task": {"replicate": 0}}\nnonsense\n{"task": {"replicate": 1}}\n'
    path.write_text(damaged)
    with pytest.raises(
        app.UsageError, match="line 2 of .* is not valid JSON; fix or delete it"
    ):
        run(tmp_path, 3)
    assert path.read_text() == damaged
    with pytest.raises(app.UsageError, match="is a file; name a folder"):
        run(path, 3)


def test_a_folder_of_an_earlier_version_continues(tmp_path):
    run(tmp_path, 2, {"study": "bias", "seed": 1})
    (tmp_path / "config.json").write_text('{"program": "bias", "seed": 1}')
    run(tmp_path, 3, {"study": "bias", "seed": 1})
    assert numbers(tmp_path) == [0, 1, 2]
    with pytest.raises(app.UsageError, match="another config"):
        run(tmp_path, 3, {"study": "compute", "seed": 1})
