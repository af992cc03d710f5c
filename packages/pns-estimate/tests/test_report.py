"""The report: complete, self-contained, escaped; every number is that of the estimator."""

import dataclasses
import html
import io
import json
import re
import urllib.parse

import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_estimate as pe
import pns_infer as pi
import pytest
from pns_estimate import _state
from pns_estimate._unit import make_unit
from pns_estimate.answers import answers as _answers
from pns_estimate.report import fit as _report_fit
from pns_estimate.report import html as _html
from pns_estimate.report import people as _report_people
from pns_estimate.report.page import make_page, write_numbers, write_report
from small_tables import draw_table, fit, small_recipe

EFFECT = pb.Estimand(
    name="effect",
    sentence="What the treatment adds to the probability of the outcome.",
    lower_labels=["mu1 - mu0"],
    upper_labels=["mu1 - mu0"],
    lower_matrix=[[1, -1, 0, 0, 0, 0]],
    lower_offset=[0],
    upper_matrix=[[1, -1, 0, 0, 0, 0]],
    upper_offset=[0],
    floor=-1.0,
)
SECTIONS = [
    "In short",
    "On average",
    "Subgroups",
    "Person by person",
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


def words_of(path):
    """Returns what a reader sees, in one line."""
    text = re.sub(
        r"<(style|script|svg).*?</\1>", " ", path.read_text(), flags=re.DOTALL
    )
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_the_page_is_complete_and_needs_no_network(page, fitted, people):
    text = page.read_text()
    assert re.findall(r"<h2>(.*?)</h2>", text) == SECTIONS
    assert set(re.findall(r"https?://[^/]+", text)) == {"http://www.w3.org"}  # names
    assert text.count("<svg") == 9 and "<img" not in text and "src=" not in text
    names = re.findall(r' id="([^"]+)"', text)
    assert len(set(names)) == len(names)
    mean = fitted.average(people)
    assert f"{100 * mean.lower:.1f}% to {100 * mean.upper:.1f}%" in text
    assert "region = south" in text and "member = True" in text
    group = fitted.average(people, mask=(people["region"] == "south").to_numpy())
    assert f"{100 * group.lower:.1f}% to {100 * group.upper:.1f}%" in text


def test_the_foot_says_how_the_page_was_made(page):
    foot = words_of(page).split("Made on ")[1]
    assert re.match(r"\d{4}-\d\d-\d\d by pns-estimate \d", foot)
    assert "Method: epinet" in foot and "Seed: 0." in foot
    assert "Rows: 3,000 in the log, 2,000 in the trial." in foot


def test_the_opening_gives_the_trials_effect_and_what_the_log_added(
    linear, folded, tables, people, tmp_path
):
    trial = tables[1]
    rate = [trial.loc[trial["x"] == arm, "y"].mean() for arm in (0, 1)]
    size = [(trial["x"] == arm).sum() for arm in (0, 1)]
    error = np.sqrt(sum(r * (1 - r) / n for r, n in zip(rate, size, strict=True)))
    found = {}
    for name, estimator in (("linear", linear), ("folded", folded)):
        path = tmp_path / f"{name}.html"
        estimator.report(
            path, people, alpha=0.1, summary_path=tmp_path / "summary.json"
        )
        found[name] = json.loads((tmp_path / "summary.json").read_text())
        effect = found[name]["effect"]
        np.testing.assert_allclose(effect["estimate"], rate[1] - rate[0], atol=1e-9)
        # A caution for rare outcomes adds less than a hundredth to the error.
        np.testing.assert_allclose(effect["standard_error"], error, rtol=0.01)
        text = words_of(path)
        assert f"y = 1 happened to {100 * rate[1]:.1f}% with x = 1" in text
        low, high = (rate[1] - rate[0] + s * 1.645 * error for s in (-1, 1))
        shown = re.search(r"90% interval \+([\d.]+) to \+([\d.]+)", text).groups()
        np.testing.assert_allclose(
            [float(v) for v in shown], [100 * low, 100 * high], atol=0.15
        )
        wide = found[name]["averages"]["pns"]["trial alone"]
        share = f"{100 * wide['lower']:.1f}% to {100 * wide['upper']:.1f}%"
        assert f"among the same people: x = 1 brings about y = 1 for {share}" in text
    # From shares alone, as of a loaded model, or from rows: the same trial.
    for step in ("trial alone", "frequencies of both"):
        np.testing.assert_allclose(
            *(list(found[n]["averages"]["pns"][step].values()) for n in found),
            atol=2e-4,
        )
    both = folded.compare_averages(0.1)
    width = 100 * (both["upper"] - both["lower"])
    if width["both, by covariates"] < width["trial alone"] - 0.05:
        expected = f"{width['both, by covariates']:.1f} points wide instead of"
    else:
        expected = "Nothing for “brings about”"
    assert expected in words_of(tmp_path / "folded.html")


def test_many_people_of_a_kind_make_few_rows(linear):
    tables = {
        name: dataclasses.replace(entry, effective_size=1e7 + 0.5)
        for name, entry in linear.summary_.tables.items()
    }
    summary = dataclasses.replace(linear.summary_, tables=tables)
    units = _answers.counted_units(summary)
    assert len(units.x) <= 160_000
    np.testing.assert_allclose(units.weights.sum(), 2e7 + 1)


@pytest.mark.parametrize(
    ("outcome_is_bad", "expected", "absent"),
    [
        (None, "x = 1 brings about y = 1 for", r"\(benefit\)|\(harm\)|harm:|benefit:"),
        (True, "harm: x = 1 causes y = 1", "brings about"),
        (False, "benefit: x = 1 brings about y = 1", "causes"),
    ],
)
def test_words_follow_the_outcome(
    folded, people, tmp_path, outcome_is_bad, expected, absent
):
    folded.report(tmp_path / "r.html", people, outcome_is_bad=outcome_is_bad)
    text = words_of(tmp_path / "r.html")
    assert expected in text and not re.search(absent, text.replace("because", ""))
    assert ("benefit: x = 1 prevents y = 1" in text) == (outcome_is_bad is True)


def test_estimand_target_and_alpha_reach_every_number(folded, people, tmp_path):
    settings = {"alpha": 0.2, "target": "parameter", "estimand": "ps"}
    folded.report(
        tmp_path / "r.html", people, summary_path=tmp_path / "s.json", **settings
    )
    found = json.loads((tmp_path / "s.json").read_text())
    for name in ("ps", "pns", "harm"):
        table = folded.intervals(people, **{**settings, "estimand": name})
        width = (table["upper"] - table["lower"]).clip(lower=0).mean()
        np.testing.assert_allclose(found["mean_width"][name], width)
        average = folded.average(alpha=0.2, estimand=name)
        shown = found["averages"][name]["both, by covariates"]
        np.testing.assert_allclose(shown["upper"], average.upper)
    text = words_of(tmp_path / "r.html")
    assert "covers the person's true value with 80% probability" in text
    assert "95%" not in text and "would x = 1 suffice for y = 1 (PS)" in text
    groups = folded.subgroups(alpha=0.2, estimand="ps").loc["region = south"]
    assert f"{100 * groups.lower:.1f}% to {100 * groups.upper:.1f}%" in text
    with pytest.raises(pe.UserError, match="threshold must be at least 0 and below 1"):
        folded.report(tmp_path / "r.html", people, threshold=1.0)


def test_everybody_counts_in_the_curve_and_above_the_threshold(folded, tmp_path):
    many = draw_table(6000, True, 3)[["age", "region", "member"]]
    folded.report(
        *(tmp_path / "r.html", many),
        threshold=0.2,
        summary_path=tmp_path / "s.json",
    )
    above = int(folded.threshold_set(many, 0.2).sum())
    found = json.loads((tmp_path / "s.json").read_text())
    assert 0 < above < 6000
    assert found["surely_above"] == above and found["people"] == 6000
    text = words_of(tmp_path / "r.html")
    assert f"{above:,} of 6,000 people exceed 0.2" in text
    assert "The page itself holds 5,000 of 6,000 people" in text
    held = held_by(tmp_path / "r.html")
    assert len(held["rows"]) == 5000 and held["rows"][-1] == "5999"
    curve = held["estimands"][0]["curve"]
    assert curve["values"][20] == 0.2 and curve["people"][20] == above
    assert curve["people"][60] == int(folded.threshold_set(many, 0.6).sum())


def held_by(path):
    """Returns what the page holds for its script."""
    pattern = r'<script type="application/json" id="held">(.*?)</script>'
    return json.loads(re.search(pattern, path.read_text(), re.DOTALL)[1])


def test_the_ends_of_neighbors_are_summarized_from_everybody():
    lower = np.random.default_rng(0).permutation(1000) / 1000
    intervals = pd.DataFrame({"lower": lower, "upper": 1 - lower / 2})
    intervals = intervals.assign(bound_lower=lower, bound_upper=1 - lower)
    below, above = _report_people.sorted_ends(intervals)
    assert len(below) == 100 and below["middle"].is_monotonic_increasing
    np.testing.assert_allclose(below["middle"], (np.arange(100) + 0.45) / 100)
    np.testing.assert_allclose(above["middle"], 1 - below["middle"] / 2)
    np.testing.assert_allclose(above["bound"], 1 - below["middle"])
    assert (above["low"] < above["middle"]).all()


def test_few_people_are_drawn_by_name_and_many_are_not(folded, people, tmp_path):
    folded.report(tmp_path / "few.html", people.head(3))
    folded.report(tmp_path / "many.html", people)
    assert "A line per person, named by row" in words_of(tmp_path / "few.html")
    assert "A line per person" not in words_of(tmp_path / "many.html")


def test_symbols_of_probabilities_are_explained_wherever_they_are_shown(
    folded, people, tmp_path
):
    folded.report(tmp_path / "r.html", people)
    assert not re.search(r"\bmu[01]\b|\bp[01][01]\b", words_of(tmp_path / "r.html"))
    terms = held_by(tmp_path / "r.html")["estimands"][0]["terms"]
    assert "mu1 - mu0" in terms
    assert terms["mu1 - mu0"] == (
        "[chance of y = 1 if assigned x = 1] − [chance of y = 1 if assigned x = 0]"
    )


def test_tables_can_be_downloaded_from_the_page(folded, people, tmp_path):
    folded.report(tmp_path / "r.html", people, decision=pe.Decision())
    links = dict(
        re.findall(r'download="(.*?)" href="(.*?)"', (tmp_path / "r.html").read_text())
    )
    assert set(links) == {
        *("averages.csv", "sorted_groups.csv", "subgroups.csv", "values.csv")
    }
    head, _, text = html.unescape(links["subgroups.csv"]).partition(",")
    assert head == "data:text/csv;charset=utf-8"
    table = pd.read_csv(io.StringIO(urllib.parse.unquote(text)))
    expected = folded.subgroups(estimand="harm")
    found = table[table["estimand"] == "harm"].set_index("group")
    np.testing.assert_allclose(found["upper"], expected["upper"])


def test_problems_of_the_tables_are_among_the_numbers(linear, people, tmp_path):
    problem = "the tables look swapped"
    for problems in ([], [problem]):
        summary = dataclasses.replace(linear.summary_, problems=problems)
        paths = tmp_path / f"{len(problems)}.html", tmp_path / f"{len(problems)}.json"
        answers = dataclasses.replace(linear.answers(people), summary=summary)
        write_report(paths[0], answers)
        write_numbers(paths[1], answers)
        assert json.loads(paths[1].read_text())["problems"] == problems
        opening = words_of(paths[0]).split("In short")[0]
        assert ("The tables look swapped" in opening) == bool(problems)


def make_profile():
    """Three points; of the log two have strength 64, of the trial each has its own."""
    fields = [0.5] * 3, [64.0, 64, 2048], [32.0, 128, 4096], [0.25, 0.5, 0.25]
    settings = (*fields, [1.0] * 3, [1.0] * 3)
    return pi.ResidualProfile(
        pi.ResidualSettings(*(np.array(field) for field in settings)),
        weight=np.array([0.2, 0.5, 0.3]),
        log_likelihood=np.log([0.2, 0.5, 0.3]),
        rare_size=0.0,
    )


def test_the_weights_of_the_residual_are_shown_as_marginals(monkeypatch):
    marginals = _state._residual(make_profile())
    for part in marginals.values():
        np.testing.assert_allclose(sum(part.weight), 1)
    assert marginals["observational_strength"].values == [64, 2048]
    np.testing.assert_allclose(marginals["observational_strength"].weight, [0.7, 0.3])
    np.testing.assert_allclose(marginals["observational_share"].weight, [0.5, 0.5])
    figures = []
    monkeypatch.setattr(
        _report_fit,
        "svg",
        lambda figure, label: figures.append(figure) or _html.svg(figure, label),
    )
    found = _report_fit.residual_section(marginals)
    # Bars of the log and of the trial, each beside the value that the axis names.
    ticks = [label.get_text() for label in figures[0].axes[0].get_xticklabels()]
    assert ticks == ["32", "64", "128", "2,048", "4,096"]
    bars = [
        {ticks[round(bar.get_x() + bar.get_width() / 2)]: bar.get_height() for bar in c}
        for c in figures[0].axes[0].containers
    ]
    assert bars[0] == pytest.approx({"64": 0.7, "2,048": 0.3})
    assert bars[1] == pytest.approx({"32": 0.2, "128": 0.5, "4,096": 0.3})
    worth = "64 to 2,048 people of the log and 32 to 4,096 people of the trial"
    assert len(figures) == 2 and found["worth"] == worth
    assert re.search(r'aria-label="([^"]*)"', found["worth_figure"])[1].endswith(worth)
    assert found["share"] == "25% to 50% (log) and 100% (trial)"


def test_the_page_shows_the_residual_of_its_fit_and_none_without(page, fitted, linear):
    assert "model beside people with the same covariates" in page.read_text()
    profile = fitted.summary_.residual
    assert all(abs(sum(part.weight) - 1) < 1e-9 for part in profile.values())
    assert linear.summary_.residual is None


def test_text_of_users_is_escaped(tables, tmp_path):
    evil = "<script>alert(1)</script>"
    observational, experimental = (
        t.rename(columns={"region": evil}).assign(**{evil: lambda t: t[evil] + "<b>&"})
        for t in tables
    )
    fit(observational, experimental).report(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert evil not in text and "<b>&" not in text
    assert "&lt;script&gt;" in text and "south&lt;b&gt;&amp;" in text


def test_a_plug_in_fit_says_that_it_promises_nothing(tables, people, tmp_path):
    plug_in = fit(*tables, method="plug_in", recipe=small_recipe("anchored"))
    plug_in.report(tmp_path / "r.html", people)
    text = (tmp_path / "r.html").read_text()
    assert "promise no coverage" in text and "Who surely exceeds" not in text


def test_a_loaded_model_needs_people(fitted, people, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    with pytest.raises(pe.UserError, match="give rows to report on"):
        loaded.report(tmp_path / "r.html")
    loaded.report(tmp_path / "r.html", people)
    fitted.report(tmp_path / "same.html", people)
    assert (tmp_path / "r.html").read_text() == (tmp_path / "same.html").read_text()


def test_people_with_missing_values_are_reported_on(tables, tmp_path):
    observational, experimental = (table.copy() for table in tables)
    observational.loc[:50, "region"] = None
    estimator = fit(observational, experimental, missing="indicator")
    rows = pd.DataFrame(
        {"age": [30, 40], "region": [None, "west"], "member": [True, False]}
    )
    estimator.report(tmp_path / "r.html", rows)
    assert "member = True" in (tmp_path / "r.html").read_text()


def test_the_page_of_held_out_people_has_groups_and_a_decision(
    folded, people, tmp_path
):
    decision = pe.Decision((1, 0, 0, -1), cost=0.05, budget=0.4)
    folded.report(tmp_path / "r.html", people, decision=decision)
    text = (tmp_path / "r.html").read_text()
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings[:6] == [
        *("In short", "On average", "Sorted by prediction", "Subgroups"),
        *("Whom to treat", "Person by person"),
    ]
    shown = words_of(tmp_path / "r.html")
    average = folded.average()
    assert f"at least {100 * average.lower:.1f}% and at most" in shown
    assert "“treat” and “do not” are said of each person separately" in shown
    counted = folded.compare_averages().loc["frequencies of both"]
    assert f"{100 * counted.lower:.1f}% to {100 * counted.upper:.1f}%" in shown
    value = folded.value(decision).loc["rule"]
    assert f"{value.lower:.4g} to {value.upper:.4g}" in shown
    curve = folded.value_curve(decision)
    np.testing.assert_allclose(
        held_by(tmp_path / "r.html")["value"]["upper"], curve["upper"], atol=1e-6
    )


@pytest.mark.parametrize("outcome_is_bad", [False, True])
def test_without_gains_the_rate_of_the_outcome_is_shown_by_share_treated(
    folded, people, tmp_path, outcome_is_bad
):
    folded.report(tmp_path / "r.html", people, outcome_is_bad=outcome_is_bad)
    assert "<h2>If only some are treated</h2>" in (tmp_path / "r.html").read_text()
    held = held_by(tmp_path / "r.html")["value"]
    effect = folded.compare_averages(estimand=EFFECT).loc["both, by covariates"]
    # If everybody is treated the rate changes by the treatment's effect.
    assert held["share"][-1] == 1 and held["lower"][0] == held["upper"][0] == 0
    middle = (held["bound_lower"][-1] + held["bound_upper"][-1]) / 2
    bounds = 50 * (effect.bound_lower + effect.bound_upper)
    assert middle == pytest.approx(bounds, abs=0.5)
    assert all(a <= b for a, b in zip(held["lower"], held["upper"], strict=True))
    if outcome_is_bad:  # those come first for whom most outcomes are prevented
        prevented = folded.value_curve(pe.Decision((-1, 0, 0, 1)))
        np.testing.assert_allclose(held["lower"], -100 * prevented["upper"], atol=1e-5)


def test_the_profile_of_the_draws_is_explained(linear, people, tmp_path):
    profile = _state.DrawScale(
        best=1.5,
        interval=[1.2, 1.8],
        draw_scales=[1.0, 1.5, 2.0],
        log_likelihood=[-3.0, -1.0, -2.0],
    )
    summary = dataclasses.replace(linear.summary_, draw_scale=profile)
    answers = dataclasses.replace(linear.answers(people), summary=summary)
    (tmp_path / "r.html").write_text(make_page(answers))
    text = words_of(tmp_path / "r.html")
    assert (
        "The best is 1.50; factors between the lines, 1.20 to 1.80, do nearly" in text
    )
    assert "each factor of the draws explains" in (tmp_path / "r.html").read_text()


def test_a_person_without_a_number_leaves_the_data_readable():
    table = pd.DataFrame({"lower": [0.12345, np.nan], "upper": [1.0, 1.0]})
    table = table.assign(bound_lower=0.0, bound_upper=1.0, is_outside=[False, True])
    table = table.assign(binding_lower="0", binding_upper="1")
    columns = _report_people._columns(table)
    assert columns["lower"] == [0.1234, None] and columns["is_outside"] == [0, 1]
    json.dumps(columns, allow_nan=False)


def test_tables_that_contradict_each_other_are_told_of_first(folded, people, tmp_path):
    summary = dataclasses.replace(
        folded.summary_,
        compatibility=dataclasses.replace(folded.compatibility(), p_value=1e-4),
    )
    for name, found in (("odd", summary), ("sound", folded.summary_)):
        answers = dataclasses.replace(folded.answers(people), summary=found)
        write_report(tmp_path / f"{name}.html", answers)
        opening = words_of(tmp_path / f"{name}.html").split("In short")[0]
        assert ("The two tables contradict each other" in opening) == (name == "odd")
    assert "(p < 0.001, " in words_of(tmp_path / "odd.html")
    text = words_of(tmp_path / "sound.html")
    seen = 100 * folded.compatibility().detectable
    assert f"finds an inequality that fails by {seen:.1f} points in every" in text
    assert "found no contradiction between the two tables; that does not prove" in text


def test_tables_too_small_for_the_test_say_so(folded, people, tmp_path):
    found = dataclasses.replace(folded.compatibility(), detectable=1.2)
    summary = dataclasses.replace(folded.summary_, compatibility=found)
    answers = dataclasses.replace(folded.answers(people), summary=summary)
    write_report(tmp_path / "r.html", answers)
    assert "too small for this test" in words_of(tmp_path / "r.html")


def test_text_of_users_is_escaped_in_subgroups_figures_and_data(tables, tmp_path):
    evil = "</script><script>$a_1$"
    odd = [t.rename(columns={"region": evil, "y": "<i>y"}) for t in tables]
    rows = odd[0].head(40).set_axis([f"</script>{i}" for i in range(40)])
    estimator = fit(*odd, method="folded", outcome="<i>y")
    estimator.report(tmp_path / "r.html", rows)
    text = (tmp_path / "r.html").read_text()
    assert "<script>$" not in text and "&lt;script&gt;$a_1$ = south" in text
    assert text.count("</script>") == 2 and "<i>" not in text
    assert held_by(tmp_path / "r.html")["rows"][7] == "</script>7"


def test_parts_that_cannot_be_given_say_why_in_their_place(
    folded, people, tmp_path, monkeypatch
):
    def refuse(name):
        found = getattr(pe.Population, name)

        def answer(self, *arguments, **options):
            if name != "comparison" or arguments[1].name == "pn":
                raise pe.UserError(f"too few for {name}.")
            return found(self, *arguments, **options)

        monkeypatch.setattr(pe.Population, name, answer)

    for name in ("comparison", "value", "value_curve"):
        refuse(name)
    options = {"estimand": "pn", "summary_path": tmp_path / "summary.json"}
    folded.report(tmp_path / "r.html", people, decision=pe.Decision(), **options)
    shown = words_of(tmp_path / "r.html")
    assert "The average of pn is not given: too few for comparison." in shown
    assert "The value of the rule is not given: too few for value." in shown
    assert "Not given: too few for value_curve." in shown
    numbers = json.loads((tmp_path / "summary.json").read_text())
    assert numbers["averages"]["pn"] == {"not_given": "too few for comparison."}
    assert len(numbers["sorted_groups"]) == 5 and "“treat” and" in shown


def test_the_people_asked_about_have_an_average_of_their_own(folded, tables, tmp_path):
    trial = tables[1].drop(columns=["x", "y"])
    older = trial[trial["age"] > 50]
    own = folded.average(source="experimental")
    rough = folded.average(older)
    for rows, average, step in (
        (trial, own, "these people, by covariates"),
        (older, rough, "these people, by draws"),
        (None, None, None),
    ):
        path = tmp_path / "r.html"
        folded.report(path, rows, summary_path=tmp_path / "s.json")
        found = json.loads((tmp_path / "s.json").read_text())["averages"]["pns"]
        opening = words_of(path).split("In short")[1].split("Ranges are")[0]
        if average is None:
            assert "people asked about" not in opening and len(found) == 3
            continue
        np.testing.assert_allclose(found[step]["upper"], average.upper)
        share = f"{100 * average.lower:.1f}% to {100 * average.upper:.1f}%"
        assert f"Among the {len(rows):,} people asked about" in opening
        assert f"(the rows given): it brings about y = 1 for {share} of" in opening
        assert ("rough" in opening) == (step == "these people, by draws")
        both = folded.average()
        assert f"at least {100 * both.lower:.1f}% and at most" in opening


LABELS = {
    "treatment_label": "e-mail <b>",
    "outcome_label": "a visit & more",
    "unit": "client<i>/client<i>s",
    "gains_in": "$ & €",
}


def test_labels_unit_and_money_are_used_and_escaped(folded, people, tmp_path):
    path = tmp_path / "labels.html"
    decision = pe.Decision(cost=0.25)
    folded.report(path, people, decision, outcome_is_bad=False, **LABELS)
    page, words = path.read_text(), words_of(path)
    for raw in ("e-mail <b>", "client<i>", "a visit & more", "$ & €"):
        assert raw not in page
    assert "Does e-mail <b> make the difference for a visit & more?" in words
    assert "with no e-mail <b>" in words
    assert "Every number here includes all 40 client<i>s." in words
    assert "1 $ & € for one who responds only if treated" in words
    assert "cost 0.25 $ & €" in words
    assert "$ & € per client<i> over treating" not in words  # the note has it so:
    assert "Value per client<i> over treating nobody, in $ & €." in words
    assert not re.search(r"\b(x|y) = [01]\b", words)
    plain = tmp_path / "plain.html"
    folded.report(plain, people, decision, outcome_is_bad=False)
    ours = {"people.csv", "people-csv"}
    left = set(re.findall(r"\S*\b[Pp](?:eople|erson)\b\S*", words))
    assert {word.rstrip(".,:;") for word in left} <= ours
    assert "Download people.csv" in words
    assert words_of(plain).count("people") > 10


@pytest.mark.parametrize(
    ("unit", "text", "written"),
    [
        (
            "customer",
            "A person, two people. People!",
            "A customer, two customers. Customers!",
        ),
        ("account", "a person's row", "an account's row"),
        ("company", "people.csv of people", "people.csv of companies"),
        ("child/children", "People and a person", "Children and a child"),
        ("visit", "num_people #person people-csv 'people'", None),
        (None, "a person", "a person"),
    ],
)
def test_a_unit_stands_for_people_where_the_word_is_ours(unit, text, written):
    if written is None:
        written = "num_people #person people-csv 'visits'"
    assert make_unit(unit)(text) == written


def test_labels_are_one_short_line(folded, people, tmp_path):
    for name in LABELS:
        for wrong in ("", "  ", "a\nb", "x" * 61, 3):
            with pytest.raises(pe.UserError, match=f"{name} must be one line"):
                folded.report(tmp_path / "no.html", people, **{name: wrong})
    assert not (tmp_path / "no.html").exists()
