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
    assert "it brings about death = 1 for at least 12.5% and at most 50.0%" in text
    assert "2 of 2 people exceed 0.1" in text
    assert "1 person has a covariate outside what one of the tables holds" in text


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
