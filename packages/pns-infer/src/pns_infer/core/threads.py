"""NumPy on all cores: it lets other threads run while it computes on an array."""

import collections
import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 4  # more would wait for each other: Python itself has one at a time


def map_threads(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Applies a function to items, as `map`, on several threads, in their order.

    Items are taken a few ahead of the results, in the thread of the caller, so that not
    all are in memory. The function computes on NumPy arrays; JAX may trace or change
    precision in its own thread, so it has no place here.
    """
    size = min(os.cpu_count() or 1, _MOST_THREADS)
    pending: collections.deque[concurrent.futures.Future[Result]] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > size:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def run_threads(function: Callable[[Item], None], items: Iterable[Item]) -> None:
    """Calls a function that fills arrays with each item, as `map_threads`."""
    for _ in map_threads(function, items):
        pass
