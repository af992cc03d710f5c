"""Runs binaries of experiments/ and reads what they wrote."""

import json
import subprocess
import sys
from pathlib import Path

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"


def command(program, *arguments):
    """Makes the command line of a binary."""
    return [sys.executable, str(EXPERIMENTS / f"{program}.py"), *map(str, arguments)]


def run(program, *arguments):
    """Runs a binary to its end; returns what it printed."""
    done = subprocess.run(
        command(program, *arguments), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def read_rows(folder, shard="results"):
    """Reads the result lines of a run."""
    text = (folder / f"{shard}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
