"""Several processes on the loopback address: one result, one writer, no hang."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pns_models as pm
import pytest

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parent / "fit_in_processes.py"


@pytest.fixture
def start():
    """Starts processes with one device each; those left at the end are killed."""
    started = []

    def start_one(*arguments):
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(PROGRAM.parent)},
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        if not process.stderr.closed:
            process.communicate()


def start_two(start, folder, num_steps, checkpoint_dir=""):
    """Starts two processes that share a fit, each with a file of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [
        start(folder / f"{i}.npz", checkpoint_dir, num_steps, port, 2, i)
        for i in range(2)
    ]


def read(path):
    with np.load(path) as found:
        return found["raw"]


def test_if_a_process_dies_the_other_says_so(start, tmp_path):
    checkpoints = tmp_path / "runs"
    survivor, victim = start_two(start, tmp_path, 500_000, checkpoints)
    first = checkpoints / "learner_0_1" / "steps"
    wait_for(lambda: first.is_dir() and any(p.name.isdigit() for p in first.iterdir()))
    victim.kill()
    victim.communicate()
    lost = "LostProcessError: another process of this run has ended"
    assert any(lost in line for line in survivor.stderr)


def test_two_processes_go_on_from_their_checkpoint_to_the_result_of_one(
    start, tmp_path
):
    checkpoints, steps = tmp_path / "runs", 20
    two = start_two(start, tmp_path, steps, checkpoints)
    first = checkpoints / "learner_0_1" / "steps"
    wait_for(lambda: first.is_dir() and any(p.name.isdigit() for p in first.iterdir()))
    for process in two:
        process.kill()
        process.communicate()
    alone = start(tmp_path / "alone.npz", "", steps)
    for process in (*start_two(start, tmp_path, steps, checkpoints), alone):
        _, said = process.communicate()
        assert process.returncode == 0, said
    z = np.eye(3, dtype=np.float32)
    saved = [
        pm.Stack.load(tmp_path / f"{name}.npz.stack").answer(z) for name in (0, "alone")
    ]
    for two_found, one_found in zip(*saved, strict=True):
        np.testing.assert_allclose(two_found, one_found, atol=1e-5)
    for name in ("0.npz", "1.npz"):
        want = read(tmp_path / "alone.npz")
        np.testing.assert_allclose(read(tmp_path / name), want, atol=1e-6)


def wait_for(is_there):
    for _ in range(2400):
        if is_there():
            return
        time.sleep(0.05)
    pytest.fail("training did not start")
