"""Folders that several test files read."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def experiments() -> Path:
    """The folder of the programs, with the committed results."""
    return Path(__file__).resolve().parent.parent
