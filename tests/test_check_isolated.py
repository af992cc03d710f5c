"""tools/check_isolated passes a sound package and catches an undeclared dependency."""

import importlib.machinery
import importlib.util
import os
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
        # Wheels are built with the hatchling that is here, not with one fetched for each.
        env={**os.environ, "PIP_NO_BUILD_ISOLATION": "0"},  # pip reads "0" as "none"
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> subprocess.CompletedProcess:
    """One run over a package that is sound and over all that can be wrong with one."""
    folder = tmp_path_factory.mktemp("packages")
    uses_base = "from pns_base._idea import ANSWER\n"
    make_package(folder, "pns-base", [], "ANSWER = 42\n")
    make_package(folder, "pns-sound", ["pns-base>=1"], uses_base)
    make_package(folder, "pns-careless", [], uses_base)
    make_package(folder, "pns-wrong", [], "ANSWER = 41\n")
    make_package(folder, "pns-untested", [], "ANSWER = 42\n")
    (folder / "pns-untested" / "tests" / "test_idea.py").unlink()
    make_package(folder, "pns-broken", [], "ANSWER = 42\n")
    project = folder / "pns-broken" / "pyproject.toml"
    project.write_text(project.read_text().replace('version = "1.0"', ""))
    names = ("broken", "careless", "wrong", "untested", "sound")
    return check_isolated(folder, *(f"pns-{name}" for name in names))


@pytest.mark.slow
def test_a_package_is_judged_by_what_it_declares(report):
    assert report.returncode == 1, report.stdout + report.stderr
    assert "ok      pns-sound" in report.stdout
    assert "FAILED  pns-careless" in report.stdout
    assert "No module named 'pns_base'" in report.stdout


@pytest.mark.slow
def test_a_failing_and_a_missing_test_suite_are_failures(report):
    assert "FAILED  pns-wrong" in report.stdout
    assert "assert 41 == 42" in report.stdout
    assert "FAILED  pns-untested" in report.stdout
    assert "no tests ran" in report.stdout


@pytest.mark.slow
def test_a_wheel_that_does_not_build_fails_alone(report):
    assert "FAILED  pns-broken" in report.stdout
    assert "ok      pns-sound" in report.stdout


def test_an_unknown_package_is_an_error_that_lists_the_known(tmp_path):
    make_package(tmp_path, "pns-base", [], "ANSWER = 42\n")
    done = check_isolated(tmp_path, "pns-nowhere")
    assert done.returncode == 2
    assert "no such package: ['pns-nowhere']; there are ['pns-base']" in done.stderr


def test_the_lowest_versions_are_those_that_packages_declare():
    tool = ROOT / "tools" / "check_isolated"
    loader = importlib.machinery.SourceFileLoader("check_isolated", str(tool))
    spec = importlib.util.spec_from_loader("check_isolated", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    projects = {
        "pns-a": {"dependencies": ["numpy>=2.0", "pns-b>=0.1", "scipy"]},
        "pns-b": {
            "dependencies": ["numpy>=1.26"],
            "optional-dependencies": {"test": ["Scikit_Learn>=1.10", "pytest"]},
        },
        "pns-c": {"dependencies": ["scikit-learn>=1.9"]},
    }
    wanted = "numpy==2.0\nscikit-learn==1.10\n"
    assert module.lowest_versions(projects) == wanted
    declared = module.lowest_versions(module.read_projects(ROOT / "packages"))
    # pandas 2.2.0 and 2.2.1 cannot be installed beside NumPy 2.
    assert "pandas==2.2.2\n" in declared and "jax==" in declared
