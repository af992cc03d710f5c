"""Compiled programs: where they are kept, and when they are not."""

import os
import subprocess
import sys

import pytest

COMPILE = "import jax\nprint(jax.jit(lambda x: 2 * x + 1)(3.0))"
# All warnings are errors, but for those of others about each other.
WARNINGS = ("-W", "error", "-W", "ignore::DeprecationWarning")
USE = "import pns_estimate as pe\nprint(pe.use_compilation_cache())\n"


def run(code, **environment):
    """Runs code in a new process; returns the lines it printed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, *WARNINGS, "-c", code],
        env={**kept, **{k: str(v) for k, v in environment.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("7.0\n")
    return done.stdout.splitlines()


def programs(folder):
    return list(folder.rglob("jit*lambda*"))


def test_programs_are_kept_in_the_users_cache_folder(tmp_path):
    where, _ = run(USE + COMPILE, XDG_CACHE_HOME=tmp_path)
    assert where.startswith(str(tmp_path / "pns-estimate" / "compiled"))
    assert programs(tmp_path)


def test_an_import_keeps_nothing(tmp_path):
    run(
        "import pns_estimate as pe\npe.PnsEstimator\n" + COMPILE,
        XDG_CACHE_HOME=tmp_path,
    )
    assert not (tmp_path / "pns-estimate").exists() and not programs(tmp_path)


def test_a_folder_of_the_users_own_is_respected(tmp_path):
    own, other = tmp_path / "own", tmp_path / "other"
    settings = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0}
    where, _ = run(
        USE + COMPILE, XDG_CACHE_HOME=other, JAX_COMPILATION_CACHE_DIR=own, **settings
    )
    assert where == str(own) and programs(own) and not other.exists()


@pytest.mark.parametrize("reason", ["switched off", "not writable"])
def test_without_a_cache_programs_run_all_the_same(tmp_path, reason):
    settings = {"XDG_CACHE_HOME": tmp_path / "cache"}
    if reason == "switched off":
        settings["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    else:
        settings["XDG_CACHE_HOME"].write_text("a file, not a folder")
    where, _ = run(USE + COMPILE, **settings)
    assert where == "None" and not programs(tmp_path)
