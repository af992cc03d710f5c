"""The documentation site: it builds without a warning, and its commands run."""

import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from pns_estimate.report.fit import RESIDUAL_LABELS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGES = [
    path.parent.name.replace("-", "_")
    for path in ROOT.glob("packages/*/pyproject.toml")
]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Builds the site."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [
            sys.executable,
            *["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"],
            folder,
        ],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # about the theme's successor
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stderr == ""
    return folder


class Page(HTMLParser):
    """Collects what a page links to, what it loads, and its anchors."""

    def __init__(self, text: str):
        """Reads the page."""
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.add(values.get("id") or "")
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif values.get("src"):
            self.loaded.append(values["src"])
        elif tag == "link" and values.get("rel") in {"stylesheet", "icon"}:
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    """Every page of the site but the one for addresses that do not exist."""
    paths = set(site.rglob("*.html")) - {site / "404.html"}
    return {path: Page(path.read_text(encoding="utf-8")) for path in paths}


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_api_reference(site, package):
    text = (site / "api" / f"{package}.html").read_text(encoding="utf-8")
    names = importlib.import_module(package).__all__
    assert len(names) > 10
    assert [name for name in names if f'id="{package}.{name}"' not in text] == []
    assert "&gt;&gt;&gt; " not in re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL)


@pytest.mark.slow
def test_links_lead_to_pages_and_headings_that_exist(pages):
    internal = 0
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            found = (path.parent / target).resolve() if target else path
            found = found / "index.html" if found.is_dir() else found
            assert found.exists(), f"{path.name} links to {link}"
            if anchor and found in pages and not anchor.startswith("__"):
                assert anchor in pages[found].anchors, f"{path.name} links to {link}"
            internal += 1
    assert internal > 100


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(pages):
    for path, page in pages.items():
        assert page.loaded
        for address in page.loaded:
            if not address.startswith("data:"):
                assert (path.parent / address.partition("?")[0]).exists(), address


@pytest.mark.slow
def test_the_command_of_the_first_page_writes_the_files_it_lists(
    small_default, tmp_path
):
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    tables = text[text.index("```python\n") + 10 :].partition("```")[0]
    found = re.search(r"```bash\npns-estimate (.*?)```", text, re.DOTALL)
    assert found
    arguments = shlex.split(found[1].replace("\\\n", " "))
    run = f"_command.run(['pns-estimate', *{arguments!r}])"
    for code in (
        tables,
        f"{small_default}from pns_estimate.command import main as _command\n{run}",
    ):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
    section = text[text.index("| file |") :].partition("\n\n")[0]
    listed = {
        name
        for line in section.splitlines()[2:]
        for name in re.findall(r"`([\w.]+)`", line.split("|")[1])
    }
    assert listed == {path.name for path in (tmp_path / "run").iterdir()}
    intervals = pd.read_csv(tmp_path / "run" / "intervals.csv")
    assert intervals["lower"][0] > 0.3 > intervals["upper"][1]


def text_of(site: Path, name: str) -> str:
    """Returns a page of the site without its markup."""
    page = (site / name).read_text(encoding="utf-8")
    return re.sub(r"<[^>]*>", "", page.partition("<article")[2]).replace("&#39;", "'")


@pytest.mark.slow
def test_examples_show_what_they_printed_and_drew(site):
    sexes = text_of(site, "examples/two_sexes.html")
    assert "benefit among men: 0.490 to 0.490" in sexes
    assert "harm among women: 0.000 to 0.000" in sexes
    assert "men: at least P(y) - mu0, at most mu1" in sexes
    own = text_of(site, "examples/own_draws.html")
    for name, truth in (("Ann", 0.4), ("Bo", 0.0)):
        found = re.search(rf"{name}: ([\d.]+) to ([\d.]+)", own)
        assert found and float(found[1]) <= truth <= float(found[2]) < 0.8
    trial = text_of(site, "examples/marketing_trial.html")
    assert re.search(r"visit with the e-mail, 16\.\d% without", trial)
    assert "invented customers" in trial and "both, by covariates" in trial
    assert (site / "examples" / "marketing_trial_1.svg").stat().st_size > 5000


def test_the_counts_of_the_two_sexes_are_the_same_everywhere():
    found = [
        re.findall(r"^(?:CHOSE|ASSIGNED) = .*$", path.read_text(), re.MULTILINE)
        for path in (
            ROOT / "experiments" / "two_sexes.py",
            DOCS / "examples" / "two_sexes.py",
            DOCS / "figures.py",
        )
    ]
    assert len(found[0]) == 2 and found[0] == found[1] == found[2]


@pytest.mark.slow
def test_the_marketing_trial_runs_on_the_public_file(tmp_path):
    folder = Path(os.environ.get("PNS_DATA", ROOT.parent / "shared" / "data"))
    csv = folder / "hillstrom" / "hillstrom.csv.gz"
    if not csv.is_file():
        pytest.skip("the public data sets are not here; PNS_DATA names their folder")
    done = subprocess.run(
        [sys.executable, str(DOCS / "examples" / "marketing_trial.py")],
        env={**os.environ, "HILLSTROM_CSV": str(csv), "MPLBACKEND": "svg"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Hillstrom's customers 64000" in done.stdout
    assert "18.3% visit with the e-mail, 10.6% without" in done.stdout


def test_the_page_about_the_report_names_its_headings_and_bars():
    report = ROOT / "packages/pns-estimate/src/pns_estimate/report"
    templates = "".join(path.read_text() for path in report.glob("templates/*.html"))
    headings = re.findall(r"<(?:h[2-4]|caption)>([^<{]+)</", templates)
    assert len(headings) > 10
    page = " ".join((DOCS / "report.md").read_text().lower().split())
    shown = [*headings, *RESIDUAL_LABELS.values()]
    assert [name for name in shown if name.lower() not in page] == []


@pytest.mark.slow
def test_every_folder_of_results_is_shown(site):
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- results: (\w+) -->", page)
    folders = [
        p.name for p in (ROOT / "experiments" / "results").iterdir() if p.is_dir()
    ]
    assert sorted(shown) == sorted(folders)
    text = text_of(site, "results.html")
    assert text.count("python experiments/") >= len(folders)


@pytest.mark.slow
def test_pictures_are_what_the_script_draws(tmp_path):
    """The same words and shapes; numbers within a hundredth of a point."""
    subprocess.run(
        [sys.executable, str(DOCS / "figures.py"), str(tmp_path)], check=True
    )
    drawn = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    kept = {path.name: path.read_text() for path in (DOCS / "figures").glob("*.svg")}
    assert set(drawn) == set(kept) and len(kept) == 5
    number = re.compile(r"-?\d+\.\d+")
    for name, text in kept.items():
        assert number.sub("", text) == number.sub("", drawn[name]), name
        values = [np.array(number.findall(each), float) for each in (text, drawn[name])]
        np.testing.assert_allclose(*values, atol=0.01, err_msg=name)


@pytest.fixture(scope="module")
def hooks():
    """The module docs/hooks.py."""
    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "hooks.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_out_of_the_documentation_lead_to_the_page_that_shows_the_same(hooks):
    text = "[a](../packages/pns-infer/README.md#x), [b](../experiments/METHOD.md)"
    code = "\n```\n[e](../f.md)\n```\n"
    found = hooks.relink(text + code, "method.md")
    assert found == "[a](api/pns_infer.md), b" + code
    assert hooks.relink("[a](../../LICENSE)", "api/pns_dgp.md") == "a (`LICENSE`)"
    figure = "experiments/results/bias/bias.svg"
    assert hooks.relink(f"![a](../{figure})", "results.md") == f"![a](files/{figure})"


def test_what_a_page_cannot_show_or_link_to_is_an_error(hooks):
    with pytest.raises(hooks.PluginError, match=r"links to \.\./absent\.md"):
        hooks.relink("[a](../absent.md)", "index.md")
    with pytest.raises(hooks.PluginError, match="results/nowhere has no table"):
        hooks.show_results("nowhere")


def test_scripts_split_into_text_and_code(hooks):
    script = '"""Title."""\n\n# %% [markdown]\n# # Head\n#\n# Text.\n\n# %%\nx = 1\n\n# %%\ny\n'
    assert hooks.split_cells(script) == [
        (True, "# Head\n\nText.\n"),
        (False, "x = 1\n"),
        (False, "y\n"),
    ]
