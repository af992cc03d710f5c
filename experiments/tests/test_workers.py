"""Workers: the numbers of one process, a share of the cores each, and no orphans."""

import json
import os
import signal
import subprocess
import sys

import pytest
from absl import app
from pns_experiments import compute, runner
from pns_experiments.options import Options
from pns_experiments.processes import share_cores
from watching import is_running, wait_for

PROGRAM = """
import os, signal, sys, time
# Tests in the background ignore interrupts, and so would what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
out, workers, count, pause = sys.argv[1], *map(int, sys.argv[2:5])
def work(task):
    number = task["replicate"]
    print("not valid JSON")
    open(f"{out}/pid.{os.getpid()}", "w").close()
    if os.path.exists(f"{out}/raise.{number}"):
        raise ValueError("no luck")
    if os.path.exists(f"{out}/die.{number}"):
        os.kill(os.getpid(), 9)
    time.sleep(pause)
    return {
        "value": 1 / (number + 3),
        "threads": os.environ.get("NPROC"),
        "cores": sorted(os.sched_getaffinity(0)),
        "pid": os.getpid(),
    }
from pns_experiments.runner import run_tasks
tasks = [{"replicate": i} for i in range(count)]
run_tasks(out, {"a": 1}, tasks, work, "results", workers)
print("the end")
"""


def start(folder, workers, count, pause=0):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    return subprocess.Popen(
        [*command, *map(str, (workers, count, pause))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows_of(folder):
    return runner.read_results(folder / "results.jsonl")


def workers_of(folder):
    return [int(path.suffix[1:]) for path in folder.glob("pid.*")]


needs_proc = pytest.mark.skipif(not os.path.exists("/proc"), reason="reads /proc")


@needs_proc
def test_workers_find_what_one_process_finds_and_share_the_cores(tmp_path):
    for name, workers in (("one", 1), ("two", 2)):
        printed, errors = start(tmp_path / name, workers, 8).communicate()
        assert printed.endswith("the end\n"), errors  # of the parent alone
        assert printed.count("the end") == 1
    one, two = (rows_of(tmp_path / name) for name in ("one", "two"))
    assert [(row["task"], row["value"]) for row in one] == [
        (row["task"], row["value"]) for row in two
    ]
    assert len({row["pid"] for row in one}) == 1
    shares = {tuple(cores) for cores in share_cores(2)}
    assert {tuple(row["cores"]) for row in two} <= shares
    assert all(row["threads"] == str(len(row["cores"])) for row in two)
    assert not any(is_running(pid) for pid in workers_of(tmp_path / "two"))


def test_tasks_that_fail_or_kill_their_worker_do_not_stop_the_others(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "raise.1").touch()
    (folder / "die.3").touch()
    process = start(folder, 2, 6)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "ValueError: no luck" in errors
    assert 'the worker of {"replicate": 3} died' in errors
    assert "2 of 6 tasks failed" in errors
    done = [row["task"]["replicate"] for row in rows_of(folder)]
    assert sorted(done) == [0, 2, 4, 5]
    for name in ("raise.1", "die.3"):
        (folder / name).unlink()
    process = start(folder, 2, 6)
    process.communicate()
    assert process.returncode == 0
    assert [row["task"]["replicate"] for row in rows_of(folder)] == list(range(6))


@needs_proc
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_no_worker_outlives_the_parent_and_the_run_goes_on(tmp_path, number):
    folder = tmp_path / "out"
    parent = start(folder, 2, 4, pause=60)
    assert wait_for(lambda: len(workers_of(folder)) == 2)
    workers = workers_of(folder)
    assert all(is_running(pid) for pid in workers)
    parent.send_signal(number)
    parent.communicate()
    assert wait_for(lambda: not any(is_running(pid) for pid in workers), seconds=5)
    start(folder, 2, 4).communicate()
    assert [row["task"]["replicate"] for row in rows_of(folder)] == [0, 1, 2, 3]
    starts = json.loads((folder / "results.runs.json").read_text())
    assert len(starts) == 2


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux")
@pytest.mark.parametrize(
    ("num_workers", "shares"),
    [(1, [[3, 4, 7]]), (2, [[3, 7], [4]]), (4, [[3], [4], [7], [3]])],
)
def test_cores_are_dealt_to_workers(monkeypatch, num_workers, shares):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {7, 3, 4})
    assert share_cores(num_workers) == shares


def test_times_are_not_measured_by_several_workers(tmp_path):
    with pytest.raises(app.UsageError, match="leave --workers out"):
        compute.run_study(
            compute.PRESETS["smoke"], Options(tmp_path, workers=2), lambda task: task
        )
