"""Tables and small fits that the tests share."""

import sys
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_tables import draw_table, fit, small_recipe


@pytest.fixture(scope="session")
def tables():
    return draw_table(3000, False, 0), draw_table(2000, True, 1)


@pytest.fixture(scope="session")
def people():
    return draw_table(40, True, 2)[["age", "region", "member"]]


@pytest.fixture(scope="session")
def fitted(tables):
    """A small epinet."""
    return fit(*tables, method="epinet", recipe=small_recipe())


@pytest.fixture(scope="session")
def linear(tables):
    """A fit that took no time."""
    return fit(*tables)


@pytest.fixture(scope="session")
def folded(tables):
    """A fit that took no time and holds everybody out."""
    return fit(*tables, method="folded")


_COMPILED = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration, **_: (
        _COMPILED.append(duration)
        if event.endswith("backend_compile_duration")
        else None
    )
)


@pytest.fixture
def num_compiled():
    """Counts the programs that were compiled, or read from the cache, so far."""
    return lambda: len(_COMPILED)
