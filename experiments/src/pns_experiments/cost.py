"""What a run takes: time and memory."""

import resource
import time
from collections.abc import Callable
from typing import TypeVar

import jax

Result = TypeVar("Result")


def timed(function: Callable[[], Result]) -> tuple[Result, float]:
    """Calls a function; returns its result, once computed, and the seconds it took."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result, time.perf_counter() - start


def peak_memory() -> float:
    """Returns the peak resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
