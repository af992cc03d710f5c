"""Runs the programs of experiments/."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"


@pytest.fixture(scope="session")
def run_program() -> Callable[..., str]:
    """Returns a function that runs a program to its end and returns what it printed."""

    def run(program: str, *arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, str(EXPERIMENTS / f"{program}.py"), *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return run
