"""Laws over the eight response-type cells, from which tests derive compatible atoms."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # test files share helpers

settings.register_profile("workspace", deadline=None, derandomize=True)
settings.load_profile("workspace")


@pytest.fixture
def cells() -> np.ndarray:
    """Random laws q[row, x, y0, y1]; about half have empty cells."""
    rng = np.random.default_rng(20)
    weights = rng.gamma(0.7, size=(500, 2, 2, 2))
    weights[250:] *= rng.random((250, 2, 2, 2)) < 0.5
    weights[weights.sum((1, 2, 3)) == 0] = 1.0
    return weights / weights.sum((1, 2, 3), keepdims=True)
