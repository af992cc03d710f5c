"""Freed memory goes back to the system."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from pns_models._memory import give_back_memory


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_blocks_between_others_are_given_back():
    """Every second block is freed, so that none of them ends the heap."""
    blocks = [np.ones(100_000, np.uint8) for _ in range(2000)]
    del blocks[::2]
    before = resident_bytes()
    give_back_memory()
    assert before - resident_bytes() > 0.7 * 1000 * 100_000  # whole pages alone
    assert sum(int(block[0]) for block in blocks) == 1000
