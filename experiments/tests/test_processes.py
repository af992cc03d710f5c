"""A child process ends with its parent, however that ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pns_experiments.processes import run_child

CHILD = """
import os, sys, time
from pns_experiments.processes import end_with_parent
end_with_parent()
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(60)
"""
PARENT = """
import sys
from pns_experiments.processes import run_child
run_child([sys.executable, "-c", sys.argv[1], sys.argv[2]])
"""


def wait_for(condition, seconds=20):
    for _ in range(int(seconds / 0.02)):
        if condition():
            return True
        time.sleep(0.02)
    return False


def is_running(pid):
    """Reads its state: Z has ended, and only nobody waited for it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not os.path.exists("/proc"), reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_child_outlives_a_parent_that_is_ended(tmp_path, number):
    path = tmp_path / "pid"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, str(path)], stderr=subprocess.DEVNULL
    )
    assert wait_for(lambda: path.exists() and path.read_text())
    child = int(path.read_text())
    assert is_running(child)
    parent.send_signal(number)
    parent.wait()
    assert wait_for(lambda: not is_running(child))


def test_a_child_that_watches_its_parent_ends_normally():
    code = CHILD.partition("open(")[0] + "print('done')"
    assert run_child([sys.executable, "-c", code]) == "done\n"


def test_a_child_returns_what_it_prints_and_its_failure_is_raised():
    assert (
        run_child([sys.executable, "-c", "print('one'); print('two')"]) == "one\ntwo\n"
    )
    with pytest.raises(subprocess.CalledProcessError):
        run_child([sys.executable, "-c", "raise SystemExit(3)"])
