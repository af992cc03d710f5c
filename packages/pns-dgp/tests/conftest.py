"""Public data sets, where they are on this machine; tests that need them skip otherwise."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def public_data() -> Path:
    """The folder that PNS_DATA names, by default shared/data beside the clone."""
    # packages/pns-dgp/tests in a clone; the tests may also run from elsewhere.
    above = [*Path(__file__).resolve().parents][4:5]
    beside = above[0] / "shared" / "data" if above else Path("nowhere")
    folder = Path(os.environ.get("PNS_DATA", beside))
    if not folder.is_dir():
        pytest.skip("the public data sets are not here; PNS_DATA names their folder")
    return folder
