"""A child process ends with its parent, however that ends."""

import os
import signal
import subprocess
import sys

import pytest
from pns_experiments.processes import run_child
from watching import is_running, wait_for

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
