"""Tables and small fits that the tests share."""

import sys
from pathlib import Path

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
