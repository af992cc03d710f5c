"""What several tests of the workspace share."""

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


@pytest.fixture(scope="session")
def small_default() -> str:
    """Code to run first: the default method stacks ridge regressions alone."""
    return (
        "import pns_estimate as _pe, pns_models as _pm\n"
        "_small = _pe.CrossFitRecipe((_pm.LEARNERS['ridge'],), 2, 2)\n"
        "object.__setattr__(_pe.METHODS['crossfit'], 'recipe', _small)\n"
    )
