"""Builds the documentation site; any warning is an error.

A page of docs/ may hold a line such as `<!-- include: experiments/METHOD.md -->`, or one
with a heading, `<!-- include: WORKSPACE.md#commands -->`: the text is read from there, so
nothing is written twice. `<!-- results: low_dim -->` shows the tables of a folder of
experiments/results with the commands that computed them. Links that leave docs/ are led to the page that shows the same
thing. A script of docs/examples/ becomes a page with its text, its code, and what the
code prints and draws when it runs.

Usage: python docs/build.py FOLDER
"""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
# Where the site shows what a file of the repository holds.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "WORKSPACE.md": "extend.md",
    "experiments/METHOD.md": "method.md",
    "experiments/README.md": "results.md",
    "experiments/results": "results.md",
    **{
        f"packages/pns-{name}/README.md": f"api/pns_{name}.md"
        for name in ("bounds", "dgp", "estimate", "infer", "models")
    },
}
_INCLUDE = re.compile(r"^<!-- include: (\S+?)(?:#(\S+))? -->$", re.MULTILINE)
_RESULTS = re.compile(r"^<!-- results: (\w+) -->$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class DocsError(Exception):
    """A page that cannot be made, with the reason."""


def prepare(out: Path) -> None:
    """Writes every page to a folder; what was there before is removed."""
    shutil.rmtree(out, ignore_errors=True)
    for source in sorted(DOCS.rglob("*")):
        place = out / source.relative_to(DOCS)
        if source.suffix in {".svg", ".css"}:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)
        elif source.suffix == ".md":
            _write(place, _make_page(source, place, out))
    for script in sorted((DOCS / "examples").glob("*.py")):
        print(f"running {script.relative_to(ROOT)}", flush=True)
        command = [sys.executable, __file__, "--example", str(script), str(out)]
        subprocess.run(
            command, check=True
        )  # examples register things: one process each


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _make_page(source: Path, place: Path, out: Path) -> str:
    """Returns a page with its links led right and its includes filled in."""
    text = _relink(source.read_text(encoding="utf-8"), source, place, out)

    def fill(match: re.Match[str]) -> str:
        path = ROOT / match[1]
        if not path.is_file():
            raise DocsError(f"{source.name} includes {match[1]}, which does not exist.")
        return _relink(read_section(path, match[2]), path, place, out)

    return _RESULTS.sub(lambda match: show_results(match[1]), _INCLUDE.sub(fill, text))


def show_results(name: str) -> str:
    """Returns the tables of a folder of results, and the commands behind them."""
    folder = ROOT / "experiments" / "results" / name
    tables = sorted(folder.glob("*.md"))
    runs = sorted(folder.glob("*.runs.json"))
    if not tables or not runs:
        raise DocsError(f"experiments/results/{name} has no table or no commands.")
    commands: dict[str, None] = {}  # without repetition, in order
    for path in runs:
        for run in json.loads(path.read_text(encoding="utf-8")):
            commands[f"python experiments/{run['command']}"] = None
    parts = [
        '<div class="wide" markdown>\n',
        *(path.read_text(encoding="utf-8") for path in tables),
        "</div>\n",
        '??? note "What computed it"\n',
        "    ```",
        *(f"    {command}" for command in commands),
        "    ```",
    ]
    return "\n".join(parts)


def read_section(path: Path, anchor: str | None = None) -> str:
    """Returns the text below a heading, down to the next of its level.

    Args:
      path: a Markdown file.
      anchor: the heading as a link names it; the text below the title if None.
    """
    text = path.read_text(encoding="utf-8")
    fences = [match.span() for match in _FENCE.finditer(text)]
    headings = [
        match
        for match in re.finditer(r"^(#+) (.*)\n", text, re.MULTILINE)
        if not any(start <= match.start() < end for start, end in fences)
    ]
    for number, heading in enumerate(headings):
        if anchor is None and len(heading[1]) == 1:
            return text[heading.end() :].strip() + "\n"
        if anchor is not None and make_anchor(heading[2]) == anchor:
            ends = (
                later.start()
                for later in headings[number + 1 :]
                if len(later[1]) <= len(heading[1])
            )
            return text[heading.end() : next(ends, len(text))].strip() + "\n"
    if anchor is None:
        return text  # a table alone has no title
    raise DocsError(f"{path.relative_to(ROOT)} has no heading #{anchor}.")


def make_anchor(heading: str) -> str:
    """Names a heading as links do: lower case, hyphens, no punctuation."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def _relink(text: str, source: Path, place: Path, out: Path) -> str:
    """Leads relative links outside code to pages of the site."""

    def lead(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        found = (source.parent / path).resolve()
        if found.suffix == ".md" and found.is_relative_to(DOCS / "examples"):
            found = found.with_suffix(".py")  # the page is made from the script
        if not found.exists():
            raise DocsError(
                f"{source.relative_to(ROOT)} links to {target}: no such file."
            )
        if found.is_relative_to(DOCS):
            if found.suffix == ".py" and found.parent.name == "examples":
                found = found.with_suffix(".md")
            page = out / found.relative_to(DOCS)
        elif mark:
            page = out / "files" / found.relative_to(ROOT)
            page.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, page)
        elif (name := found.relative_to(ROOT).as_posix()) in PAGES:
            page, anchor = out / PAGES[name], ""
            if page == place:
                return words
        else:
            return f"{words} (`{name}`)"
        relative = os.path.relpath(page, place.parent)
        return f"{mark}[{words}]({relative}{'#' * bool(anchor)}{anchor})"

    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(lead, part) for part in parts[::2]]
    return "".join(parts)


def split_cells(code: str) -> list[tuple[bool, str]]:
    """Splits a script at its `# %%` lines; True marks text, without its `# `."""
    cells = []
    for part in re.split(r"^# %%", code, flags=re.MULTILINE)[1:]:
        kind, _, body = part.partition("\n")
        is_text = kind.strip() == "[markdown]"
        if is_text:
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        cells.append((is_text, body.strip() + "\n"))
    return cells


def render_example(script: Path, out: Path) -> None:
    """Runs a script cell by cell in an empty folder and writes its page."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    place = out / "examples" / f"{script.stem}.md"
    names: dict = {"__name__": "__main__"}
    parts, figures = [], 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for is_text, body in split_cells(script.read_text(encoding="utf-8")):
            if is_text:
                parts.append(_relink(body, script, place, out))
                continue
            parts.append(f"```python\n{body}```\n")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(body, script.name, "exec"), names)  # noqa: S102, ours
            if printed.getvalue():
                parts.append(f"```{{.text .output}}\n{printed.getvalue()}```\n")
            for number in plt.get_fignums():
                figures += 1
                name = f"{script.stem}_{figures}.svg"
                place.parent.mkdir(parents=True, exist_ok=True)
                title = plt.figure(number).get_label() or "What the code above draws"
                plt.figure(number).savefig(place.parent / name, bbox_inches="tight")
                parts.append(f"![{title}]({name})\n")
            plt.close("all")
    parts.append(
        f"---\n\nThis page is the script `{script.relative_to(ROOT)}`, run while "
        "the site was built.\n"
    )
    _write(place, "\n".join(parts))


def build(site: Path) -> None:
    """Builds the site from pages that are made aside."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "docs"
        prepare(pages)
        config = load_config(
            str(ROOT / "mkdocs.yml"),
            docs_dir=str(pages),
            site_dir=str(site),
            strict=True,
        )
        config.plugins.on_startup(command="build", dirty=False)
        try:
            build(config)
        finally:
            config.plugins.on_shutdown()


def main(arguments: list[str]) -> None:
    """Builds the site, or makes the page of one example in a process of its own."""
    if arguments[:1] == ["--example"]:
        render_example(Path(arguments[1]), Path(arguments[2]))
    elif len(arguments) == 1:
        build(Path(arguments[0]).resolve())
    else:
        raise DocsError("usage: python docs/build.py FOLDER")


if __name__ == "__main__":
    # The theme's advertisement of its successor is no warning of ours.
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    try:
        main(sys.argv[1:])
    except DocsError as error:
        sys.exit(f"docs/build.py: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the example has said why
