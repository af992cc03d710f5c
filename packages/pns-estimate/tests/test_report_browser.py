"""The report in a real browser: what is shown, and what sliders, tables and search do."""

import importlib.resources
import json
import re
import urllib.parse
from xml.etree import ElementTree

import pns_estimate as pe
import pypdf
import pytest
from browser import CHROMIUM, Browser
from small_tables import draw_table, fit

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="NOT TESTED: no Chromium here, so nobody looked at the report; install it "
    "(Debian: apt-get install chromium)",
)
WINDOWS = [{"width": 1280}, {"width": 390}, {"width": 1280, "dark": True}]


@pytest.fixture(scope="module")
def people():
    return draw_table(120, True, 2)[["age", "region", "member"]]


@pytest.fixture(scope="module")
def estimator(tables):
    return fit(*tables, method="folded")


@pytest.fixture(scope="module")
def page(estimator, people, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    estimator.report(path, people, decision=pe.Decision(), threshold=0.1)
    return path


@pytest.fixture(scope="module")
def few(fitted, people, tmp_path_factory):
    """Without the tables' people, and with an interval for each person by name."""
    path = tmp_path_factory.mktemp("few") / "report.html"
    fitted.report(path, people.head(5), outcome_is_bad=True)
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


def text_of(browser, selector):
    return browser.run(f"document.querySelector({json.dumps(selector)}).textContent")


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("name", ["page", "few"])
def test_the_page_fits_the_window_and_anybody_can_use_it(
    browser, request, window, name
):
    browser.complaints.clear()
    browser.open(request.getfixturevalue(name), **window)
    shown, room = browser.run("[document.documentElement.scrollWidth, innerWidth]")
    assert shown <= room
    axe = importlib.resources.files("axe_core_python") / "axe.min.js"
    browser.run(axe.read_text() + "; null")
    found = browser.run(
        "axe.run().then(({violations, passes}) => [violations, passes])"
    )
    assert [(v["id"], [n["html"] for n in v["nodes"]]) for v in found[0]] == []
    checked = {rule["id"] for rule in found[1]}
    assert {"color-contrast", "label", "svg-img-alt", "heading-order"} <= checked
    assert browser.complaints == []  # no error in the script, nothing from the network


def test_figures_take_the_colors_of_the_window(browser, page):
    ink = []
    for dark in (False, True):
        browser.open(page, dark=dark)
        color = "getComputedStyle(document.querySelector('svg [style*=\"--ink\"]'))"
        fill = browser.run(f"{color}.fill + {color}.stroke")
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        ink.append((fill, paper))
        black = browser.run(
            "[...document.querySelectorAll('svg path, svg use')].filter((shape) =>"
            " !shape.closest('defs, clipPath') &&"
            " getComputedStyle(shape).fill === 'rgb(0, 0, 0)').length"
        )
        assert black == 0  # black letters cannot be read on a dark page
    assert ink[0][0] != ink[1][0] and ink[0][1] == "rgb(255, 255, 255)" != ink[1][1]


def test_the_slider_counts_who_surely_exceeds(browser, page, estimator, people):
    browser.open(page)
    answer = "#threshold-pns + .threshold-answer"
    above = int(estimator.threshold_set(people, 0.1).sum())
    assert text_of(browser, answer) == f"{above} of 120 people surely exceed 0.1."
    for _ in range(3):
        browser.press("#threshold-pns", "ArrowLeft", 37)
    assert text_of(browser, answer).endswith("surely exceed 0.07.")
    value = "document.querySelector('#threshold-pns').ariaValueText"
    assert browser.run(value) == "0.07"
    shown = browser.run(
        "[...Array(101).keys()].map((place) => {"
        " const slider = document.querySelector('#threshold-pns'); slider.value = place;"
        " slider.dispatchEvent(new Event('input'));"
        " return parseInt(slider.nextElementSibling.textContent) })"
    )
    lower = estimator.band(people, side="lower")["lower"].to_numpy()
    counts = [(lower > place / 100).sum() for place in range(101)]
    assert shown == counts and len(set(counts)) > 5


def test_the_slider_of_the_share_treated_tells_its_value(browser, page, estimator):
    browser.open(page)
    curve = estimator.value_curve(pe.Decision())
    browser.press("#share-treated", "End", 35)
    last = curve.iloc[-1]
    shown = [
        float(number)
        for number in re.findall(
            r"-?\d[\d.]*\d(?=[ )])", text_of(browser, "#share-answer").split("worth")[1]
        )
    ]
    assert shown == pytest.approx(
        [last.lower, last.upper, last.bound_lower, last.bound_upper], rel=1e-3
    )
    browser.press("#share-treated", "Home", 36)
    assert text_of(browser, "#share-answer").startswith("Treating 0.0% is worth 0 to 0")


def test_tables_are_sorted_by_number_and_by_name(browser, page, estimator):
    browser.open(page)
    table = "[...document.querySelectorAll('table')].find((t) => t.caption.textContent"
    table += " === 'Averages of subgroups')"
    column = "[...rows].map((row) => row.cells[0].textContent)"
    names = f"(({{tBodies: [{{rows}}]}}) => {column})({table})"
    natural = browser.run(names)
    assert natural == list(estimator.subgroups().index)
    press = f"{table}.tHead.rows[0].cells[%d].firstChild.click()"
    lower = estimator.subgroups()["lower"].to_dict()
    browser.run(press % 2)
    ordered = [lower[name] for name in browser.run(names)]
    assert ordered == sorted(ordered) and len(set(ordered)) > 2
    assert browser.run(f"{table}.tHead.rows[0].cells[2].ariaSort") == "ascending"
    browser.run(press % 2)
    assert [lower[name] for name in browser.run(names)] == ordered[::-1]
    browser.run(press % 0)
    assert browser.run(names)[0] == "age above 32 to 45"


def test_one_estimand_can_be_chosen(browser, page):
    browser.open(page)
    visible = "[...document.querySelectorAll('.view')].filter((v) => !v.hidden)"
    names = f"{visible}.map((v) => v.dataset.name)"
    assert browser.run(names) == ["pns", "harm"]
    browser.run(
        "(() => { const s = document.querySelector('#estimand'); s.value = 'harm';"
        " s.dispatchEvent(new Event('input')) })()"
    )
    assert browser.run(names) == ["harm"]


def test_one_person_is_found_with_interval_and_binding_terms(
    browser, page, estimator, people
):
    browser.open(page)
    browser.type("#row", "11")
    found = text_of(browser, "#person")
    for estimand in ("pns", "harm"):
        row = estimator.intervals(people, estimand=estimand).loc[11]
        # The page rounds to four digits first, so the last digit shown may differ.
        low, high = re.search(
            ("brings about" if estimand == "pns" else "prevents")
            + r" y = 1: ([\d.]+)% to ([\d.]+)%\.",
            found,
        ).groups()
        assert float(low) == pytest.approx(100 * row.lower, abs=0.051)
        assert float(high) == pytest.approx(100 * row.upper, abs=0.051)
    assert "The upper end comes from: " in found and "if assigned x = 1]" in found
    assert "more rows would remove up to" in found
    row = estimator.intervals(people).loc[11]
    left, width = browser.run(
        "(({style}) => [style.left, style.width].map(parseFloat))"
        "(document.querySelector('#person .bar i'))"
    )
    assert left == pytest.approx(100 * row.lower, abs=0.01)
    assert left + width == pytest.approx(100 * row.upper, abs=0.01)
    browser.type("#row", "x")
    assert text_of(browser, "#person") == "No row 11x on this page."
    csv = browser.run(
        "(() => { const link = document.querySelector('#people-csv');"
        " link.addEventListener('click', (e) => e.preventDefault()); link.click();"
        " return fetch(link.href).then((r) => r.text()) })()"
    ).splitlines()
    assert csv[0].startswith("row,estimand,lower,upper") and len(csv) == 1 + 2 * 120
    row = estimator.intervals(people).loc[7]
    assert csv[8].startswith(f'"7",pns,"{round(row.lower, 4):g}"')


def test_everything_reads_without_script(browser, page):
    browser.open(page, script=False)
    controls = "[...document.querySelectorAll('.control')].map((c) => c.offsetHeight)"
    assert set(browser.run(controls)) == {0}
    assert browser.run("document.querySelectorAll('.view:not([hidden])').length") == 2
    link = browser.run("document.querySelector('a[download]').href")
    assert urllib.parse.unquote(link).startswith("data:text/csv;charset=utf-8,step,")
    assert "people exceed 0.1" in " ".join(text_of(browser, "main").split())


@pytest.mark.slow
def test_no_heading_is_the_last_line_of_a_printed_page(browser, page, tmp_path):
    browser.open(page, dark=True)
    headings = browser.run(
        "[...document.querySelectorAll('h1, h2, h3, h4')].filter((h) =>"
        " !h.closest('.control')).map((h) => h.textContent)"
    )
    for height in (
        8,
        8.7,
        9.4,
        10.1,
        11,
        11.7,
    ):  # so that every heading comes near an end
        browser.print(tmp_path / "report.pdf", height)
        pages = [
            " ".join(sheet.extract_text().split())
            for sheet in pypdf.PdfReader(tmp_path / "report.pdf").pages
        ]
        assert len(pages) > 4 and "Person by person" in " ".join(pages)
        assert "Surely above" not in " ".join(pages)  # nobody moves a slider on paper
        last = [h for h in headings for text in pages if text.endswith(h)]
        assert last == []


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_every_figure_is_saved_on_white_with_its_title(browser, page, kind):
    browser.open(page, width=1280, dark=True)
    figures = browser.run("document.querySelectorAll('figure > svg').length")
    wanted = (
        "[...document.querySelectorAll('.download button')]"
        f".filter((each) => each.textContent === '{kind.upper()}')"
    )
    assert browser.run(f"{wanted}.length") == figures > 3
    name, found = browser.run(
        "new Promise((resolve) => {"
        "  HTMLAnchorElement.prototype.click = function () {"
        "    fetch(this.href).then((file) => file.arrayBuffer()).then((bytes) =>"
        "      resolve([this.download, [...new Uint8Array(bytes)]])); };"
        f"  {wanted}[0].click(); }})"
    )
    title = browser.run(
        "document.querySelector('figure > svg').getAttribute('aria-label')"
    )
    assert name.endswith(f".{kind}") and name[:8] == title[:8].lower().replace(" ", "-")
    if kind == "png":
        width = int.from_bytes(bytes(found[16:20]), "big")
        assert bytes(found[:4]) == b"\x89PNG" and width == 3 * 432
        return
    drawing = ElementTree.fromstring(bytes(found))
    texts = [e.text for e in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert " ".join(texts) == title
    assert drawing[0].attrib["fill"] == "#fff" and b"var(" not in bytes(found)
