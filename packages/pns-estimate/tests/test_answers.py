"""Answers: each part computed once, a reason where there is none, and writers of them."""

import json
import re

import numpy as np
import pandas as pd
import pns_estimate as pe
import pns_infer as pi
import pytest
from pns_estimate._state import Compatibility, FitSummary, SourceSummary
from pns_estimate.answers.answers import Answers, Asked, Averages, Checks, Unanswered
from pns_estimate.answers.files import (
    answer_tables,
    show_averages,
    write_intervals,
    write_tables,
)
from pns_estimate.answers.population import SortedPeople
from pns_estimate.answers.subgroups import Columns
from pns_estimate.report.page import make_numbers, make_page
from pns_estimate.tables.columns import TwoValues

STEPS = ["trial alone", "frequencies of both", "both, by covariates"]


def make_summary():
    """Of a fit that never was."""
    return FitSummary(
        method="none",
        method_sentence="nothing was fitted",
        treatment=TwoValues("drug", 0, 1),
        outcome=TwoValues("death", 0, 1),
        covariates=["age"],
        tables={
            "observational": SourceSummary(40, 40.0, 0.5, 0.25, 0.5),
            "experimental": SourceSummary(20, 20.0, 0.5, 0.25, 0.5),
        },
        compatibility=Compatibility(0.5, 1, "p11 <= mu1", 0.1, -1.0),
        steps=[],
        training=[],
        held_out=[],
        reliability={},
        ece_joint=None,
        ece_mu=None,
        draw_scale=None,
        notes={},
    )


def make_ends(index, name, **columns):
    """A table of intervals from 0.125 to 0.5, with bounds from 0.25 to 0.375."""
    ends = {"lower": 0.125, "upper": 0.5, "bound_lower": 0.25, "bound_upper": 0.375}
    return pd.DataFrame({**columns, **ends}, index=pd.Index(index, name=name))


def make_up(**changes):
    """Answers of made-up records; no table, no network, no draw."""
    people = make_ends(
        ["Bo", "Ann"], None, binding_lower="0", binding_upper="mu1", is_empty=False
    ).assign(is_outside=[False, True])
    groups = {
        f"{name}_{end}": value
        for name in ("benefit", "harm")
        for end, value in make_ends([0], "x").iloc[0].items()
    }
    table = pd.DataFrame(groups, index=pd.RangeIndex(1, 6, name="group"))
    curve = make_ends(np.linspace(0, 1, 5), "share")
    parts = {
        "asked": Asked(2, 1, has_draws=True, has_population=True),
        "intervals": {"pns": people, "harm": people},
        "bands": {name: people[["lower", "is_empty"]] for name in ("pns", "harm")},
        "averages": Averages(
            pi.Difference(0.25, 0.125, 0.0, 0.5),
            {name: make_ends(STEPS, name) for name in ("pns", "harm")},
            {},
            STEPS[-1],
        ),
        "subgroups": {
            name: make_ends(["age = 1", "age = 2"], "group", people=30)
            for name in ("pns", "harm")
        },
        "subgroup_columns": Columns(["age"], []),
        "sorted_groups": SortedPeople(
            table.assign(effect=0.25, effect_error=0.125), 0.0, 0.5, 0.25, 0.25
        ),
        "value_curve": curve[["bound_lower", "bound_upper", "lower", "upper"]],
        "checks": Checks(0.5, None, False, 0.5, (0.0, 0.0), 0.5),
        "values": Unanswered("the question names no decision."),
        "decisions": Unanswered("the question names no decision."),
    }
    return Answers.from_parts(
        pe.Question(threshold=0.1), make_summary(), **{**parts, **changes}
    )


def test_files_are_written_from_records_alone(tmp_path):
    answers = make_up()
    write_intervals(tmp_path, answers)
    write_tables(tmp_path, answers)
    names = {"intervals.parquet", "intervals.csv", "averages.csv"}
    names |= {"sorted_groups.csv", "subgroups.csv"}
    assert {path.name for path in tmp_path.iterdir()} == names
    people = pd.read_csv(tmp_path / "intervals.csv", index_col="row")
    assert people.loc["Ann", "upper"] == 0.5 and people["is_outside"].tolist() == [0, 1]
    same = pd.read_parquet(tmp_path / "intervals.parquet")
    pd.testing.assert_frame_equal(same, answers.intervals["pns"])
    averages = pd.read_csv(tmp_path / "averages.csv", index_col="pns")
    assert averages.loc["both, by covariates", "lower"] == 0.125
    assert "both, by covariates 0.125 0.500" in " ".join(show_averages(answers).split())


def test_the_page_and_its_numbers_are_made_of_records_alone():
    answers = make_up()
    numbers = json.loads(json.dumps(make_numbers(answers)))
    assert numbers["surely_above"] == 2 and numbers["people"] == 2
    assert numbers["mean_width"] == {"pns": 0.375, "harm": 0.375}
    assert numbers["averages"]["harm"]["trial alone"]["upper"] == 0.5
    page = make_page(answers)
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert (
        "it brings about death = 1 for at least 12.5% and at most 50.0% of th" in text
    )
    assert "2 of 2 people exceed 0.1" in text
    assert "1 person has a covariate outside what one of the tables holds" in text


def read_opening(**changes):
    """Returns what "In short" says, as one line."""
    text = re.sub(r"<[^>]+>", "", make_page(make_up(**changes)))
    return " ".join(text.split("In short")[1].split("Ranges are 95%")[0].split())


def change_averages(answers, **changes):
    """Averages of which the steps have other ends: names, with "_" for spaces."""
    found = {n: t.copy() for n, t in answers.averages.by_estimand.items()}
    for table in found.values():
        for step, (lower, upper) in changes.items():
            row = {"lower": lower, "upper": upper, "bound_lower": lower}
            table.loc[step.replace("_", " ")] = {**row, "bound_upper": upper}
    return answers.averages._replace(by_estimand=found)


def test_each_sentence_of_the_opening_names_its_people():
    averages = change_averages(make_up(), these_people__by_covariates=(0.2, 0.3))
    tables = {
        name: table.rename(index=lambda step: step.replace("  by", ", by"))
        for name, table in averages.by_estimand.items()
    }
    text = read_opening(averages=averages._replace(by_estimand=tables))
    for said in (
        "In the trial, among its own people (20 rows): death = 1 happened to 50.0%",
        "From the trial alone, among the same people: drug = 1 brings",
        "From both tables, among the people of both (60 rows): it brings",
        "What the log added, among the people of both tables.",
        "asked about (the rows given): it brings about death = 1 for 20.0% to 30.0% of",
        "Sorting the people of both tables by how strongly",
    ):
        assert said in text, text
    assert "by draws" not in text
    assert "people asked about" not in read_opening()  # a sample of both tables


def test_the_last_fifth_is_praised_only_if_a_test_rejects():
    groups = make_up().sorted_groups
    table = groups.table.assign(effect=[0.1, 0.1, 0.2, 0.2, 0.3])
    for p_value, effect_p, rising, praised in (
        (0.56, 0.3, True, False),
        (0.01, 0.3, True, True),
        (0.56, 0.01, True, True),
        (0.56, 0.01, False, False),
    ):
        effects = table["effect"].to_numpy()[:: 1 if rising else -1]
        people = groups._replace(
            table=table.assign(effect=effects),
            p_value=p_value,
            effect_p_value=effect_p,
        )
        text = read_opening(sorted_groups=people)
        assert ("The last fifth of the people" in text) == praised
        assert ("is not confirmed" in text) != praised
        assert ("the other way around" in text) == (not rising)
        assert praised or f"p = {p_value}" in text


def test_the_log_is_said_to_add_something_only_if_it_does():
    for ends, said in (
        ((0.2, 0.4), "is 20.0 points wide instead of 37.5."),
        ((0.125, 0.5), "is 37.5 points wide with the log and without it."),
        ((0.1, 0.5), "wider, because it takes the best of more estimated bounds"),
        ((0.5, 0.3), "the lower end lies above the upper one"),
    ):
        averages = change_averages(make_up())
        for table in averages.by_estimand.values():
            table.loc["both, by covariates", ["lower", "upper"]] = ends
        text = read_opening(averages=averages)
        assert said in text
        assert ("no possible value (the ends cross: 50.0% and 30.0%)" in text) == (
            ends[0] > ends[1]
        )


def test_an_effect_is_possible_or_said_to_be_unknown():
    groups = make_up().sorted_groups
    table = groups.table.assign(effect=0.03, effect_error=[0.05, 0.1, 0.3, 0.55, 0.65])
    page = make_page(make_up(sorted_groups=groups._replace(table=table, p_value=0.01)))
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "±" not in text
    assert "+3.0 (-6.8 to +12.8)" in text and "+3.0 (-100.0 to +100.0)" not in text
    assert "+3.0 (-55.8 to +61.8)" in text
    assert "with its 95% interval: too little data." in text


def test_a_part_that_cannot_be_given_says_why_and_the_rest_is_there(tmp_path):
    reason = "group 5 has no rows of the untreated arm."
    answers = make_up(
        sorted_groups=Unanswered(reason),
        value_curve=Unanswered(reason),
        subgroups=Unanswered("there is no covariate to make subgroups of."),
    )
    page = make_page(answers)
    assert page.count(f"Not given: {reason}") == 2
    assert "Not given: there is no covariate" in page and "Person by person" in page
    assert make_numbers(answers)["sorted_groups"] == {"not_given": reason}
    write_tables(tmp_path, answers)
    assert f"no sorted_groups.csv: {reason}" in show_averages(answers)
    assert [path.name for path in tmp_path.iterdir()] == ["averages.csv"]


def test_without_the_people_of_the_tables_there_are_no_files_of_them(linear, people):
    decision = pe.Decision()
    answers = linear.answers(people, decision=decision)
    assert set(answer_tables(answers)) == {"decisions"}
    assert (
        isinstance(answers.sorted_groups, Unanswered) and show_averages(answers) == ""
    )
    pd.testing.assert_frame_equal(
        answers.subgroups["harm"], linear.predict(people).subgroups(estimand="harm")
    )


def test_a_question_is_checked_when_it_is_asked(folded, people):
    for question, message in (
        (pe.Question(alpha=2), "alpha must lie in"),
        (pe.Question(threshold=1), "threshold must be"),
    ):
        with pytest.raises(pe.UserError, match=message):
            folded.answers(people, question)
    with pytest.raises(pe.UserError, match="gains must be four numbers"):
        folded.answers(people, decision=pe.Decision((1, 2)))
