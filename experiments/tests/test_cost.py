"""Time and memory of a run."""

import os
from pathlib import Path

from pns_experiments import cost
from pns_experiments.cost import peak_memory, timed


def test_a_function_is_timed_until_its_arrays_are_there(monkeypatch):
    """A clock of our own: the function ends at 5, its arrays are ready at 8."""
    clock = [2.0]
    monkeypatch.setattr(cost.time, "perf_counter", lambda: clock[0])

    def call():
        clock[0] = 5.0
        return "arrays"

    def wait(result):
        assert result == "arrays"
        clock[0] = 8.0
        return result

    monkeypatch.setattr(cost.jax, "block_until_ready", wait)
    assert timed(call) == ("arrays", 6.0)


def test_peak_memory_is_in_gb_and_never_below_what_is_held():
    """At least the memory of now, at most that of the machine; pages are counted late."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    size, all_pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    assert 0.9 * pages * size / 2**30 <= peak_memory() <= all_pages * size / 2**30
