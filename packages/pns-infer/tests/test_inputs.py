"""Several threads: the order of the items, and errors."""

import threading

import pytest
from pns_infer.core import inputs as _inputs


def test_results_come_in_the_order_of_items_from_other_threads():
    names = set()

    def square(number):
        names.add(threading.current_thread().name)
        return number**2

    found = list(_inputs.map_threads(square, range(50)))
    assert found == [number**2 for number in range(50)]
    assert names and threading.current_thread().name not in names


def test_items_are_taken_a_few_ahead():
    taken = []
    results = _inputs.map_threads(lambda item: item, map(taken.append, range(1000)))
    next(results)
    assert 0 < len(taken) < 20
    results.close()


def test_an_error_of_a_thread_is_the_callers():
    def fail(number):
        raise ValueError(f"item {number}")

    with pytest.raises(ValueError, match="item 0"):
        list(_inputs.map_threads(fail, range(3)))


def test_arrays_are_filled():
    values = [0] * 9
    list(_inputs.map_threads(lambda i: values.__setitem__(i, i), range(9)))
    assert values == list(range(9))
