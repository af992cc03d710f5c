"""WORKSPACE.md against the tree: arrows, declared dependencies, versions."""

import ast
import functools
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


def drawn_packages(root: Path) -> dict[str, tuple[str, set[str]]]:
    """Reads name, version and permitted imports from the table in WORKSPACE.md."""
    drawn = {}
    for line in (root / "WORKSPACE.md").read_text().splitlines():
        columns = [column.strip() for column in line.strip("|").split("|")]
        if re.fullmatch(r"pns-\w+", columns[0]) and len(columns) == 4:
            name, version, arrows, _ = columns
            drawn[name] = (version, {a.strip() for a in arrows.split(",")} - {""})
    return drawn


def projects(root: Path) -> dict[str, dict]:
    """Reads the [project] table of every package."""
    paths = root.glob("packages/*/pyproject.toml")
    return {p.parent.name: tomllib.loads(p.read_text())["project"] for p in paths}


def imported_modules(folder: Path) -> set[str]:
    """Collects the top-level names of all absolute imports below a folder."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.split(".")[0])
    beside = {path.stem for path in folder.glob("*.py")}  # tests share helpers
    return names - set(sys.stdlib_module_names) - beside


@functools.cache
def providers() -> Mapping[str, list[str]]:
    """Maps modules to the distributions that provide them; slow, so asked once."""
    return importlib.metadata.packages_distributions()


def distribution_names(module: str) -> set[str]:
    """Names the distributions that provide a module (jax: jax; absl: absl-py)."""
    if module.startswith("pns_"):
        return {module.replace("_", "-")}
    known = providers().get(module, [module])
    return {str(canonicalize_name(name)) for name in known}


def requirement_names(requirements: list[str]) -> set[str]:
    return {str(canonicalize_name(Requirement(r).name)) for r in requirements}


def complaints(root: Path) -> list[str]:
    """Lists every disagreement between WORKSPACE.md, declarations and imports."""
    found = []
    drawn, actual = drawn_packages(root), projects(root)
    if set(drawn) != set(actual):
        found.append(f"WORKSPACE.md lists {sorted(drawn)}, there are {sorted(actual)}")
    for name in set(drawn) & set(actual):
        version, arrows = drawn[name]
        project = actual[name]
        if project["version"] != version:
            found.append(f"{name} is {project['version']}, WORKSPACE.md says {version}")
        declared = requirement_names(project.get("dependencies", []))
        extras = project.get("optional-dependencies", {})
        for_tests = declared | requirement_names(extras.get("test", [])) | {name}
        for folder, allowed in (("src", declared | {name}), ("tests", for_tests)):
            for module in imported_modules(root / "packages" / name / folder):
                if not distribution_names(module) & allowed:
                    found.append(f"{name}/{folder} imports {module}, not declared")
        in_house = {d for d in for_tests - {name} if d.startswith("pns-")}
        if in_house != arrows:
            found.append(
                f"{name} declares {sorted(in_house)}, WORKSPACE.md draws an arrow to "
                f"{sorted(arrows)}"
            )
    return found


def test_the_workspace_is_as_drawn():
    assert drawn_packages(ROOT), "the table in WORKSPACE.md was not found"
    assert complaints(ROOT) == []


def test_experiments_declare_what_they_import_and_no_package_imports_them():
    project = tomllib.loads((ROOT / "experiments" / "pyproject.toml").read_text())
    declared = requirement_names(project["project"]["dependencies"])
    for_tests = declared | requirement_names(
        project["project"]["optional-dependencies"]["test"]
    )
    for folder, allowed in (("src", declared), ("tests", for_tests)):
        for module in imported_modules(ROOT / "experiments" / folder):
            names = distribution_names(module) - {"pns-experiments"}
            assert not names or names & allowed, f"experiments/{folder}: {module}"
    for package in (ROOT / "packages").iterdir():
        assert "pns_experiments" not in imported_modules(package), package.name


def test_every_package_is_complete():
    for project in (ROOT / "packages").glob("*/pyproject.toml"):
        package = project.parent
        module = package.name.replace("-", "_")
        for part in (
            "pyproject.toml",
            "README.md",
            "CHANGELOG.md",
            "LICENSE",
            f"src/{module}/__init__.py",
            f"src/{module}/py.typed",
            "tests",
        ):
            assert (package / part).exists(), f"{package.name} has no {part}"
        version = projects(ROOT)[package.name]["version"]
        changes = (package / "CHANGELOG.md").read_text()
        assert f"\n## {version}\n" in changes and "\n## Unreleased\n" in changes


def test_bounds_depend_on_numpy_alone():
    assert requirement_names(projects(ROOT)["pns-bounds"]["dependencies"]) == {"numpy"}


def test_third_party_versions_are_pinned_by_name_and_version_only():
    lines = (ROOT / "tools" / "constraints.txt").read_text().splitlines()
    pinned = {str(canonicalize_name(Requirement(line).name)) for line in lines}
    for line in lines:
        assert re.fullmatch(r"[\w.-]+==[\w.]+", line), line
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())
    direct = requirement_names(wanted["dependency-groups"]["dev"])
    for project in projects(ROOT).values():
        direct |= requirement_names(project.get("dependencies", []))
        for extra in project.get("optional-dependencies", {}).values():
            direct |= requirement_names(extra)
    assert {name for name in direct if not name.startswith("pns-")} <= pinned


@pytest.fixture
def small_workspace(tmp_path: Path) -> Path:
    """A right workspace of two packages, for tests that spoil one thing each."""
    table = "| pns-a | 0.1.0 | | x |\n| pns-b | 0.2.0 | pns-a | y |\n"
    (tmp_path / "WORKSPACE.md").write_text(table)
    for name, version, dependencies, code in (
        ("pns-a", "0.1.0", ["numpy"], "import json\nimport numpy\n"),
        ("pns-b", "0.2.0", ["pns-a>=0.1"], "from pns_a import thing\n"),
    ):
        folder = tmp_path / "packages" / name
        module = folder / "src" / name.replace("-", "_")
        module.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\nversion = "{version}"\n'
            f"dependencies = {dependencies}\n"
        )
        (module / "__init__.py").write_text(code)
    assert complaints(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    ("path", "old", "new", "complaint"),
    [
        (
            "packages/pns-a/src/pns_a/__init__.py",
            "import json",
            "def late():\n    from pns_b import other",
            "pns-a/src imports pns_b, not declared",
        ),
        (
            "packages/pns-a/src/pns_a/__init__.py",
            "import json",
            "import absl.flags",
            "pns-a/src imports absl, not declared",
        ),
        (
            "packages/pns-a/pyproject.toml",
            "['numpy']",
            "['numpy', 'pns-b']",
            "pns-a declares ['pns-b'], WORKSPACE.md draws an arrow to []",
        ),
        (
            "packages/pns-a/pyproject.toml",
            "dependencies = ['numpy']",
            "dependencies = ['numpy']\noptional-dependencies.test = ['pns-b']",
            "pns-a declares ['pns-b'], WORKSPACE.md draws an arrow to []",
        ),
        (
            "WORKSPACE.md",
            "| 0.2.0 |",
            "| 0.2.1 |",
            "pns-b is 0.2.0, WORKSPACE.md says 0.2.1",
        ),
        ("WORKSPACE.md", "| pns-a | 0.1.0 | | x |\n", "", "WORKSPACE.md lists"),
    ],
)
def test_each_disagreement_is_noticed(small_workspace, path, old, new, complaint):
    file = small_workspace / path
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    assert any(found.startswith(complaint) for found in complaints(small_workspace))


def test_hosted_checks_call_the_tools_of_this_workspace():
    """Every command of the workflow and every hook exists, and options are known ones."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    commands = [
        step["run"]
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    assert len(commands) == 3
    for command in commands:
        assert (ROOT / command.split()[1]).is_file()
    versions = workflow["jobs"]["isolated"]["strategy"]["matrix"]["versions"]
    helped = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "check_isolated"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "{" + ",".join(versions) + "}" in helped.replace("\n", "")
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    assert hooks == [".venv/bin/ruff format", ".venv/bin/ruff check"]
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        fields = yaml.safe_load(form.read_text())
        assert fields["name"] and fields["description"] and fields["body"]
