"""A study whose fits are shared by two processes: the rows of one, written once."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pns_experiments import runner

PROGRAM = Path(__file__).parents[1] / "benchmark.py"


def start(out, *flags):
    command = [sys.executable, str(PROGRAM), "--preset=smoke", "--methods=crossfit"]
    return subprocess.Popen(
        [*command, f"--out={out}", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows_of(folder):
    rows = runner.read_results(folder / "results.jsonl")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


@pytest.mark.slow
def test_two_processes_write_the_rows_of_one(tmp_path):
    alone = start(tmp_path / "one")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        job = (f"--coordinator_address=127.0.0.1:{probe.getsockname()[1]}",)
    job += ("--num_processes=2",)
    # Each gets a folder of its own: the second may not see the first one's disk.
    both = [start(tmp_path / f"{i}", *job, f"--process_id={i}") for i in (0, 1)]
    said = [process.communicate() for process in (alone, *both)]
    assert [process.returncode for process in (alone, *both)] == [0, 0, 0], said
    want, found = rows_of(tmp_path / "one"), rows_of(tmp_path / "0")
    assert want and [row["task"] for row in found] == [row["task"] for row in want]
    for one, two in zip(want, found, strict=True):
        numbers = {k: v for k, v in one.items() if isinstance(v, float)}
        assert numbers == pytest.approx({k: two[k] for k in numbers}, abs=0.02)
    assert "crossfit" in said[1][0]  # its report
    assert not (tmp_path / "1").exists() and "crossfit" not in said[2][0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--process_id=0"], "give all three"),
        (["--distributed", "--workers=2"], "choose one"),
    ],
)
def test_flags_that_do_not_fit_together_are_told(tmp_path, flags, message):
    process = start(tmp_path / "out", *flags)
    said = "".join(process.communicate())
    assert process.returncode == 1 and message in said
    assert not (tmp_path / "out").exists()
