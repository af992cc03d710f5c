"""A child process whose life is tied to that of its parent."""

import os
import subprocess
import threading
from collections.abc import Sequence


def run_child(command: Sequence[str]) -> str:
    """Runs a program that calls `end_with_parent`; returns what it printed.

    The program's standard input is a pipe that nothing is written to. It closes when this
    process ends, however it ends.
    """
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None  # a pipe, as asked for
        printed = process.stdout.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return printed


def end_with_parent() -> None:
    """Ends this process as soon as its standard input is closed."""

    def wait() -> None:
        # Not sys.stdin, whose lock this thread would hold while the program ends.
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
