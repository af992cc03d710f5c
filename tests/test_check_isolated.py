"""tools/check_isolated passes a sound package and catches an undeclared dependency."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0"
dependencies = {dependencies}

[project.optional-dependencies]
test = ["pytest"]

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]
"""


def make_package(folder: Path, name: str, dependencies: list[str], code: str) -> None:
    module = name.replace("-", "_")
    (folder / name / "src" / module).mkdir(parents=True)
    (folder / name / "tests").mkdir()
    (folder / name / "pyproject.toml").write_text(
        PROJECT.format(name=name, module=module, dependencies=dependencies)
    )
    (folder / name / "src" / module / "__init__.py").write_text("")
    (folder / name / "src" / module / "_idea.py").write_text(code)
    (folder / name / "tests" / "test_idea.py").write_text(
        f"from {module} import _idea\n\ndef test_idea():\n    assert _idea.ANSWER == 42\n"
    )


def check_isolated(folder: Path, *names: str) -> subprocess.CompletedProcess:
    tool = ROOT / "tools" / "check_isolated"
    return subprocess.run(
        [sys.executable, str(tool), "--packages", str(folder), *names],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_package_is_judged_by_what_it_declares(tmp_path):
    make_package(tmp_path, "pns-base", [], "ANSWER = 42\n")
    uses_base = "from pns_base._idea import ANSWER\n"
    make_package(tmp_path, "pns-sound", ["pns-base>=1"], uses_base)
    make_package(tmp_path, "pns-careless", [], uses_base)
    done = check_isolated(tmp_path, "pns-sound", "pns-careless")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ok      pns-sound" in done.stdout
    assert "FAILED  pns-careless" in done.stdout
    assert "No module named 'pns_base'" in done.stderr


@pytest.mark.slow
def test_a_failing_and_a_missing_test_suite_are_failures(tmp_path):
    make_package(tmp_path, "pns-wrong", [], "ANSWER = 41\n")
    make_package(tmp_path, "pns-untested", [], "ANSWER = 42\n")
    (tmp_path / "pns-untested" / "tests" / "test_idea.py").unlink()
    done = check_isolated(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED  pns-wrong" in done.stdout
    assert "FAILED  pns-untested" in done.stdout


@pytest.mark.slow
def test_a_wheel_that_does_not_build_fails_alone(tmp_path):
    make_package(tmp_path, "pns-base", [], "ANSWER = 42\n")
    make_package(tmp_path, "pns-broken", [], "ANSWER = 42\n")
    (tmp_path / "pns-broken" / "pyproject.toml").write_text(
        '[project]\nname = "pns-broken"\n'  # no version
    )
    done = check_isolated(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ok      pns-base" in done.stdout
    assert "FAILED  pns-broken" in done.stdout


def test_an_unknown_package_is_an_error_that_lists_the_known(tmp_path):
    make_package(tmp_path, "pns-base", [], "ANSWER = 42\n")
    done = check_isolated(tmp_path, "pns-nowhere")
    assert done.returncode == 2
    assert "no such package: ['pns-nowhere']; there are ['pns-base']" in done.stderr
