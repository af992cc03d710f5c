"""The report: complete, self-contained, escaped, and readable in a browser."""

import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pns_estimate as pe
import pns_infer as pi
import pytest
from pns_estimate import _html, _report_residual, _summary
from small_tables import fit, small_recipe

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
SECTIONS = [
    "On average",
    "Person by person",
    "Subgroups",
    "Who surely exceeds",
    "The data",
    "Do the tables fit together?",
    "The fit",
    "What the numbers assume",
]


@pytest.fixture(scope="module")
def page(fitted, people, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    fitted.report(path, people)
    return path


def test_the_page_is_complete_and_needs_no_network(page, fitted, people):
    text = page.read_text()
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert [h.split(" 0.25")[0] for h in headings] == SECTIONS
    assert set(re.findall(r"https?://[^/]+", text)) == {"http://www.w3.org"}  # names
    assert text.count("<svg") == 6 and "<img" not in text and "<script" not in text
    mean = fitted.average(people)
    assert f"{100 * mean.lower:.1f}% to {100 * mean.upper:.1f}%" in text
    assert "region = south" in text and "member = True" in text
    group = fitted.average(people, mask=(people["region"] == "south").to_numpy())
    assert f"{100 * group.lower:.1f}% to {100 * group.upper:.1f}%" in text


def make_profile():
    """Three points; of the log two have strength 64, of the trial each has its own."""
    fields = [0.5] * 3, [64.0, 64, 2048], [32.0, 128, 4096], [1.0, 1.3, 1.0]
    settings = (*fields, [1.0] * 3, [1.0] * 3)
    return pi.ResidualProfile(
        pi.ResidualSettings(*(np.array(field) for field in settings)),
        weight=np.array([0.2, 0.5, 0.3]),
        log_likelihood=np.log([0.2, 0.5, 0.3]),
        rare_size=0.0,
    )


def test_the_weights_of_the_residual_are_shown_as_marginals(monkeypatch):
    marginals = _summary._residual(make_profile())
    for part in marginals.values():
        np.testing.assert_allclose(sum(part["weight"]), 1)
    assert marginals["observational_strength"]["values"] == [64, 2048]
    np.testing.assert_allclose(
        marginals["observational_strength"]["weight"], [0.7, 0.3]
    )
    np.testing.assert_allclose(
        marginals["observational_temperature"]["weight"], [0.5, 0.5]
    )
    figures = []
    monkeypatch.setattr(
        _report_residual,
        "svg",
        lambda figure, label: figures.append(figure) or _html.svg(figure, label),
    )
    text = _report_residual.residual(marginals)
    # Bars of the log and of the trial, each beside the value that the axis names.
    ticks = [label.get_text() for label in figures[0].axes[0].get_xticklabels()]
    assert ticks == ["32", "64", "128", "2,048", "4,096"]
    bars = [
        {ticks[round(bar.get_x() + bar.get_width() / 2)]: bar.get_height() for bar in c}
        for c in figures[0].axes[0].containers
    ]
    assert bars[0] == pytest.approx({"64": 0.7, "2,048": 0.3})
    assert bars[1] == pytest.approx({"32": 0.2, "128": 0.5, "4,096": 0.3})
    labels = re.findall(r"<svg role='img' aria-label='(.*?)'", text)
    worth = "64 to 2,048 people of the log and 32 to 4,096 people of the trial"
    assert len(labels) == len(figures) == 2 and labels[0].endswith(worth)
    assert f"its word counts as much as {worth}." in text
    assert "multiplied by 1 to 1.3 (log) and 1 (trial)" in text
    assert "http://" not in re.sub(r"http://www\.w3\.org", "", text)


def test_the_page_shows_the_residual_of_its_fit_and_none_without(page, fitted, linear):
    assert "model beside people with the same covariates" in page.read_text()
    profile = fitted.summary_.residual
    assert all(abs(sum(part["weight"]) - 1) < 1e-9 for part in profile.values())
    assert linear.summary_.residual is None


def test_text_of_users_is_escaped(tables, tmp_path):
    evil = "<script>alert(1)</script>"
    observational, experimental = (
        t.rename(columns={"region": evil}).assign(**{evil: lambda t: t[evil] + "<b>&"})
        for t in tables
    )
    fit(observational, experimental).report(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "<script" not in text and "<b>&" not in text
    assert "&lt;script&gt;" in text and "south&lt;b&gt;&amp;" in text


def test_a_plug_in_fit_says_that_it_promises_nothing(tables, people, tmp_path):
    plug_in = fit(*tables, method="plug_in", recipe=small_recipe("anchored"))
    plug_in.report(tmp_path / "r.html", people)
    text = (tmp_path / "r.html").read_text()
    assert "promise no coverage" in text and "surely" not in text


def test_a_loaded_model_needs_people(fitted, people, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    with pytest.raises(pe.UserError, match="give rows to report on"):
        loaded.report(tmp_path / "r.html")
    loaded.report(tmp_path / "r.html", people)
    fitted.report(tmp_path / "same.html", people)
    assert (tmp_path / "r.html").read_text() == (tmp_path / "same.html").read_text()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_shows_the_page_without_sideways_scrolling(page, width, tmp_path):
    probe = tmp_path / "probe.html"
    script = (
        "<script>document.title = JSON.stringify([document.documentElement.scrollWidth,"
        " innerWidth, document.querySelectorAll('svg').length])</script>"
    )
    probe.write_text(page.read_text().replace("</body>", script + "</body>"))
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},900",
    ]
    shot = tmp_path / "shot.png"
    subprocess.run(
        [*command, f"--screenshot={shot}", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert shot.stat().st_size > 20_000
    dom = subprocess.run(
        [*command, "--dump-dom", probe.as_uri()],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    shown, window, drawings = map(
        int, re.search(r"<title>\[(\d+),(\d+),(\d+)\]", dom).groups()
    )
    assert shown <= window and drawings == 6


def test_people_with_missing_values_are_reported_on(tables, tmp_path):
    observational, experimental = (table.copy() for table in tables)
    observational.loc[:50, "region"] = None
    estimator = fit(observational, experimental, missing="indicator")
    rows = pd.DataFrame(
        {"age": [30, 40], "region": [None, "west"], "member": [True, False]}
    )
    estimator.report(tmp_path / "r.html", rows)
    assert "member = True" in (tmp_path / "r.html").read_text()


def test_the_page_of_held_out_people_opens_with_a_summary_in_plain_words(
    folded, people, tmp_path
):
    decision = pe.Decision((1, 0, 0, -1), cost=0.05, budget=0.4)
    folded.report(tmp_path / "r.html", people, decision=decision)
    text = (tmp_path / "r.html").read_text()
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings[:2] == ["In short", "On average"]
    assert {"Sorted by predicted benefit", "Subgroups", "Whom to treat"} < set(headings)
    average = folded.average()
    assert f"At least {100 * average.lower:.1f}%" in text
    counted = folded.compare_averages().loc["frequencies of both"]
    assert f"{100 * counted.lower:.1f}% to {100 * counted.upper:.1f}%" in text
    value = folded.value(decision).loc["rule"]
    assert f"{value.lower:.4g} to {value.upper:.4g}" in text
    assert text.count("<svg") == 6 and "<script" not in text


def test_text_of_users_is_escaped_in_subgroups_and_figures(tables, tmp_path):
    evil = "<script>$a_1$"
    odd = [t.rename(columns={"region": evil}) for t in tables]
    fit(*odd, method="folded").report(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "<script" not in text and "&lt;script&gt;$a_1$ = south" in text
