"""What the READMEs print is what their code prints."""

import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
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


def summarize(folder, method):
    """Summarizes coverage and widths of a method over the worlds of a folder."""
    lines = (RESULTS / folder / "results.jsonl").read_text().splitlines()
    found = [row for row in map(json.loads, lines) if row["task"]["method"] == method]
    names = ("set_coverage", "point_coverage", "width", "oracle_width")
    return {name: np.array([row[name] for row in found]) for name in names}


@pytest.mark.parametrize(
    ("rows", "folder"),
    [
        ("2,000 + 1,000", "panel_2k"),
        ("10,000 + 5,000", "panel_10k"),
        ("50,000 + 25,000", "panel_50k"),
    ],
)
@pytest.mark.parametrize("page", [READMES[0], RESULTS / "README.md"])
def test_numbers_of_the_panel_are_those_of_its_results(rows, folder, page):
    lines = page.read_text().splitlines()
    line = next(x for x in lines if x.startswith(f"| {rows}"))
    ours, alone = (summarize(folder, m) for m in ("crossfit", "trial_alone"))
    covered, size = 100 * ours["set_coverage"], len(ours["width"])
    error = 1.96 * covered.std(ddof=1) / size**0.5
    expected = [
        rows,
        str(size),
        f"{covered.mean():.1f} ± {error:.1f}, {covered.min():.1f}",
        "{:.1f}, {:.1f}".format(
            100 * ours["point_coverage"].mean(), 100 * ours["point_coverage"].min()
        ),
        f"{ours['width'].mean():.3f}",
        f"{100 * alone['set_coverage'].mean():.1f} at {alone['width'].mean():.3f}",
        f"{ours['oracle_width'].mean():.3f}",
    ]
    assert line.replace("%", "").strip("| ").split(" | ") == expected
