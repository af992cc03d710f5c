"""What MkDocs does for this site beyond its plugins; mkdocs.yml names this file.

A page of docs/ may hold a line such as `<!-- results: low_dim -->`, which shows the
tables of a folder of experiments/results with the commands that computed them. Links
that leave docs/ lead to the page that shows the same thing. A script of docs/examples/
becomes a page with its text, its code, and what the code prints and draws when it runs.

Usage, in a process of its own: python docs/hooks.py SCRIPT FOLDER
"""

import contextlib
import io
import json
import os
import posixpath
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

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
_RESULTS = re.compile(r"^<!-- results: (\w+) -->$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the figures of experiments/results and the pages of the examples."""
    for path in sorted((ROOT / "experiments" / "results").rglob("*.svg")):
        name = f"files/{path.relative_to(ROOT).as_posix()}"
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for script in sorted((DOCS / "examples").glob("*.py")):
        with tempfile.TemporaryDirectory() as folder:
            # Examples register methods and estimands: a process for each.
            run = [sys.executable, __file__, str(script), folder]
            done = subprocess.run(run, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PluginError(f"{script.name} failed:\n{done.stderr}")
            for path in sorted(Path(folder).iterdir()):
                name, content = f"examples/{path.name}", path.read_bytes()
                files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(
    markdown: str, *, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Shows results, and leads links that leave docs/ to pages of the site."""
    del config, files
    markdown = _RESULTS.sub(lambda match: show_results(match[1]), markdown)
    return relink(markdown, page.file.src_uri)


def show_results(name: str) -> str:
    """Returns the tables of a folder of results, and the commands behind them."""
    folder = ROOT / "experiments" / "results" / name
    tables = sorted(folder.glob("*.md"))
    runs = sorted(folder.glob("*.runs.json"))
    if not tables or not runs:
        raise PluginError(f"experiments/results/{name} has no table or no commands.")
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


def relink(text: str, page: str) -> str:
    """Leads the links of a page that leave docs/ to what the site shows of them."""

    def lead(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        found = Path(os.path.normpath((DOCS / page).parent / target.partition("#")[0]))
        if re.match(r"[a-z]+:|#", target) or found.is_relative_to(DOCS):
            return match[0]  # MkDocs checks it
        if not found.exists():
            raise PluginError(f"docs/{page} links to {target}: no such file.")
        name = found.relative_to(ROOT).as_posix()
        place = f"files/{name}" if mark else PAGES.get(name)
        if place is None:
            return f"{words} (`{name}`)"
        if place == page:
            return words
        return f"{mark}[{words}]({posixpath.relpath(place, posixpath.dirname(page))})"

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
    """Runs a script cell by cell in an empty folder and writes its page and figures."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    names: dict = {"__name__": "__main__"}
    parts, figures = [], 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for is_text, body in split_cells(script.read_text(encoding="utf-8")):
            if is_text:
                parts.append(body)
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
                title = plt.figure(number).get_label() or "What the code above draws"
                plt.figure(number).savefig(out / name, bbox_inches="tight")
                parts.append(f"![{title}]({name})\n")
            plt.close("all")
    parts.append(
        f"---\n\nThis page is the script `{script.relative_to(ROOT)}`, run while "
        "the site was built.\n"
    )
    (out / f"{script.stem}.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    render_example(Path(sys.argv[1]), Path(sys.argv[2]).resolve())
