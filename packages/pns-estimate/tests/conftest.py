"""Tables and one small fit that the tests share."""

import sys
from pathlib import Path

import pns_estimate as pe
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_tables import draw_table, small_recipe


@pytest.fixture(scope="session")
def tables():
    return draw_table(3000, False, 0), draw_table(2000, True, 1)


@pytest.fixture(scope="session")
def people():
    return draw_table(40, True, 2)[["age", "region", "member"]]


@pytest.fixture(scope="session")
def fitted(tables):
    made = pe.PnsEstimator("epinet", recipe=small_recipe(), num_draws=300)
    return made.fit(*tables, treatment="x", outcome="y")
