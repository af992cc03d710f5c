"""Watches processes that a test started."""

import time
from pathlib import Path


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
