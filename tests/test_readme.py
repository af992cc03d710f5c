"""What the READMEs print is what their code prints."""

import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
READMES = sorted([ROOT / "README.md", *ROOT.glob("packages/*/README.md")])
PAGES = [
    path
    for path in sorted(ROOT.glob("docs/**/*.md"))
    if "```python" in path.read_text()
]


def code_and_output(text: str) -> tuple[str, str]:
    """Joins the Python blocks of a page, and the plain blocks that follow them."""
    pairs = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", text, flags=re.DOTALL)
    return "\n".join(code for code, _ in pairs), "".join(out for _, out in pairs)


@pytest.mark.parametrize(
    "path", [*READMES, *PAGES], ids=lambda p: str(p.relative_to(ROOT))
)
def test_examples_print_what_the_page_says(path, small_default, tmp_path):
    text = path.read_text()
    code, output = code_and_output(text)
    assert code and text.count("```python") == len(re.findall(r"```\n```\n", text))
    # A process of its own: examples register methods and estimands.
    done = subprocess.run(
        [sys.executable, "-c", small_default + code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout == output, done.stderr


PACKAGES = sorted(path.name for path in ROOT.glob("packages/*/src/*"))


@pytest.mark.parametrize("package", PACKAGES)
def test_docstring_examples_print_what_they_say(package):
    (folder,) = ROOT.glob(f"packages/*/src/{package}")
    tried = 0
    for source in sorted(folder.glob("**/*.py")):
        name = ".".join(source.relative_to(folder.parent).with_suffix("").parts)
        result = doctest.testmod(
            importlib.import_module(name.removesuffix(".__init__"))
        )
        assert result.failed == 0, name
        tried += result.attempted
    assert tried >= 4


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_has_an_example(package):
    module = importlib.import_module(package)
    functions = {
        name: value
        for name in module.__all__
        if inspect.isfunction(value := getattr(module, name))
    }
    assert functions
    parser = doctest.DocTestParser()
    without = [
        name
        for name, function in functions.items()
        if not any(example.want for example in parser.get_examples(function.__doc__))
    ]
    assert without == []


LINKED = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("experiments/*.md"),
    *ROOT.glob("packages/*/*.md"),
]


@pytest.mark.parametrize("path", LINKED, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_tools_of_a_page_exist(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text):
        if not re.match(r"[a-z]+:", target):
            found = (path.parent / target).resolve()
            if found.parent == ROOT / "docs" / "examples":
                found = found.with_suffix(
                    ".py"
                )  # the site makes the page of the script
            assert found.exists(), target
    for tool in re.findall(
        r"(?:^|`)(tools/\w+|\.ci/run)\b", path.read_text(), re.MULTILINE
    ):
        if "." not in Path(tool).name:
            assert any((ROOT / tool).parent.glob(Path(tool).name + "*")), tool


def test_two_sexes_prints_the_table_of_the_readme(run_program):
    table = run_program("two_sexes").split("\n\n", 1)[1]
    assert "[0.490, 0.490]" in table
    assert table in (ROOT / "README.md").read_text()


def test_the_two_commands_of_the_readme_exist():
    commands = re.search(
        r"## Two commands.*?```\n(.*?)```", READMES[0].read_text(), re.DOTALL
    )
    assert commands and commands[1].split() == ["tools/demo", "tools/test"]
    for command in commands[1].split():
        assert (ROOT / command).stat().st_mode & 0o111


RESULTS = ROOT / "experiments" / "results"


def test_rows_of_results_are_those_of_the_tables():
    shown = [
        line
        for line in (RESULTS / "README.md").read_text().splitlines()
        if line.startswith(
            ("| li_1 |", "| acic |", "| li:", "| bootstrap_", "| epinet")
        )
    ]
    tables = {
        line
        for path in RESULTS.glob("*/table.md")
        for line in path.read_text().splitlines()
    }
    assert len(shown) >= 10
    assert [line for line in shown if line not in tables] == []


def average(folder, method, rows):
    """Averages coverage and widths of a method over the results of a folder."""
    lines = (RESULTS / folder / "results.jsonl").read_text().splitlines()
    found = [row for row in map(json.loads, lines) if row["task"]["method"] == method]
    if rows is not None:
        sizes = ("observational", "experimental")
        found = [row for row in found if tuple(row["task"][s] for s in sizes) == rows]
    names = ("set_coverage", "width", "oracle_width")
    means = [sum(row[name] for row in found) / len(found) for name in names]
    return len(found), f"{means[0]:.1%} at {means[1]:.3f}", f"{means[2]:.3f}"


@pytest.mark.parametrize(
    ("start", "folder", "rows"),
    [
        ("Li Model 1, 15 binary", "crossfit_low_dim", None),
        ("Other members", "crossfit_members", None),
        ("Li Model 1, 5k", "crossfit_scale", (5_000, 2_500)),
        ("Li Model 1, 20k", "crossfit_scale", (20_000, 10_000)),
        ("Li Model 1, 1M", "crossfit_scale", (1_000_000, 1_000_000)),
        ("ACIC", "crossfit_high_dim", None),
    ],
)
def test_numbers_of_the_readme_are_means_of_the_results(start, folder, rows):
    (line,) = re.findall(rf"^\| {start}.*$", READMES[0].read_text(), re.MULTILINE)
    _, count, default, counting, set_width = line.strip("| ").split(" | ")
    expected = average(folder, "crossfit", rows)
    assert (int(count), default, set_width) == expected
    if "%" in counting:
        assert counting == average(folder, "frequencies", rows)[1]
    else:
        assert folder == "crossfit_high_dim"
