"""The page that maps labels of the paper to its numbers, and to our code."""

import functools
import importlib
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LABEL = re.compile(r"\b(?:alg|app|eq|fig|sec|tab|thm):[A-Za-z0-9:_-]*[A-Za-z0-9]")
THEOREMS = {"assumption", "corollary", "lemma", "proposition", "remark", "theorem"}


def mapped() -> dict[str, tuple[str, str]]:
    """Reads the table: number and code by label."""
    rows = {}
    for line in (ROOT / "docs" / "paper.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and LABEL.fullmatch(cells[0].strip("`")):
            rows[cells[0].strip("`")] = (cells[1], cells[3])
    return rows


@functools.cache
def texts() -> dict[Path, str]:
    """Everything of ours that may cite the paper."""
    paths = [
        *ROOT.glob("*.md"),
        *ROOT.glob("experiments/*.[mp][dy]"),
        *ROOT.glob("experiments/src/**/*.py"),
        *ROOT.glob("packages/*/*.md"),
        *ROOT.glob("packages/*/src/**/*.py"),
        *ROOT.glob("packages/*/tests/**/*.py"),
    ]
    return {path: path.read_text(encoding="utf-8") for path in paths}


def test_every_label_that_we_cite_is_on_the_page():
    known = mapped()
    cited = {
        (label, path.name)
        for path, text in texts().items()
        for label in LABEL.findall(re.sub(r"app: \w", "", text))
    }
    assert len(cited) > 30
    # app:dgp is the common beginning of two labels.
    assert {pair for pair in cited if pair[0] not in known} <= {
        pair for pair in cited if pair[0] == "app:dgp"
    }


def test_what_the_page_names_in_our_code_exists():
    named = 0
    for _, code in mapped().values():
        for module, name in re.findall(r"`(pns_\w+)\.(\w+)`", code):
            assert name in importlib.import_module(module).__all__, name
            named += 1
        for path in re.findall(r"`(experiments/\w+\.py)`", code):
            assert (ROOT / path).exists()
            named += 1
    assert named > 25


def test_numbers_beside_labels_elsewhere_are_those_of_the_page():
    known, found = mapped(), 0
    number = re.compile(r"((?:Table|Figure|Algorithm) \d+) \((\w+:[\w-]+)\)")
    for path, text in texts().items():
        for words, label in number.findall(text):
            assert known[label][0] == words, path
            found += 1
    assert found > 8


def number_labels(source: str) -> dict[str, str]:
    """Numbers the labels of a LaTeX source as LaTeX does."""
    text = re.sub(r"(?<!\\)%.*", "", source.partition(r"\begin{document}")[2])
    token = re.compile(
        r"\\(?P<appendix>appendix)\b|\\(?P<section>(?:sub)*section)\{"
        r"|\\begin\{(?P<begin>[\w*]+)\}|\\end\{(?P<end>[\w*]+)\}"
        r"|\\label\{(?P<label>[^}]*)\}|(?P<newline>\\\\)|\\(?P<no>nonumber|notag)\b"
        r"|\\(?P<caption>caption)\b"
    )
    depth, is_appendix, current = [0, 0, 0], False, ""
    count = dict.fromkeys(("Equation", "Table", "Figure", "Algorithm", "theorem"), 0)
    inside: list[str] = []
    found = {}

    def place() -> list[str]:
        first = chr(64 + depth[0]) if is_appendix else str(depth[0])
        return [first, *(str(part) for part in depth[1:] if part)]

    for match in token.finditer(text):
        kind, value = match.lastgroup, match[match.lastgroup or 0]
        in_rows = bool(inside) and inside[-1] in {"align", "gather"}
        if kind == "appendix":
            depth, is_appendix = [0, 0, 0], True
        elif kind == "section":
            level = value.count("sub")
            depth = [*depth[:level], depth[level] + 1, *[0] * (2 - level)]
            count["theorem"] *= level > 0
            current = f"{'Appendix' if is_appendix else 'Section'} {'.'.join(place())}"
        elif kind == "begin":
            inside.append(value)
            if value in {"equation", "align", "gather"}:
                count["Equation"] += 1
                current = f"Equation {count['Equation']}"
            elif value in THEOREMS:
                count["theorem"] += 1
                current = f"{value.title()} {place()[0]}.{count['theorem']}"
        elif kind == "end":
            while inside and inside.pop() != value:
                pass
        elif kind in {"newline", "no"} and in_rows:
            count["Equation"] += 1 if kind == "newline" else -1
            current = f"Equation {count['Equation']}"
        elif kind == "caption":
            floats = ("table", "figure", "algorithm")
            name = next(
                word for e in reversed(inside) for word in floats if e.startswith(word)
            ).title()
            count[name] += 1
            current = f"{name} {count[name]}"
        elif kind == "label":
            found[value] = current
    return found


def test_labels_are_numbered_as_latex_does():
    source = r"""\begin{document}\section{A}\begin{align}a\nonumber\\b\label{eq:b}\end{align}
    \subsection{B}\label{sec:b}\appendix\section{C}\begin{lemma}\end{lemma}
    \begin{theorem}\label{thm:c}\end{theorem}\begin{equation}\label{eq:c}\end{equation}
    \begin{table*}\caption{T}\label{tab:t}\end{table*}"""
    assert number_labels(source) == {
        "eq:b": "Equation 1",
        "sec:b": "Section 1.1",
        "thm:c": "Theorem A.2",
        "eq:c": "Equation 2",
        "tab:t": "Table 1",
    }


def test_numbers_title_and_authors_are_those_of_the_source():
    default = ROOT.parent / "shared" / "paper.tex"
    path = Path(os.environ.get("PNS_PAPER", default))
    if not path.is_file():
        pytest.skip("the paper's source is not here; PNS_PAPER names it")
    source = path.read_text(encoding="utf-8")
    numbers = number_labels(source)
    assert {label: number for label, (number, _) in mapped().items()} == {
        label: numbers[label] for label in mapped()
    }
    title = re.search(r"\\title\{(.*?)\}", source)
    assert title
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    for text in (page.replace("\n> ", " "), re.sub(r"\s+", " ", citation)):
        assert title[1] in text
        for family in ("Patil", "Tang", "Aoki", "Guelman"):
            assert family in text and family in source
