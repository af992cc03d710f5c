"""Subgroups: every person in one group of each column."""

import json

import numpy as np
import pandas as pd
import pns_estimate as pe
import pytest
from pns_estimate.answers.subgroups import choose_columns, find_subgroups
from small_tables import draw_table, fit


def choose(people, score=None):
    score = np.zeros(len(people)) if score is None else score
    return choose_columns(people, score)


def test_groups_of_a_column_share_out_everybody_with_a_value():
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "age": rng.integers(18, 90, 300).astype(float),
            "site": rng.choice(["a", "b", None], 300),
            "few": pd.array(rng.choice([1, 2, pd.NA], 300), dtype="Int64"),
            "skewed": np.where(rng.random(300) < 0.6, 0.0, rng.random(300)),
        }
    )
    groups = find_subgroups(people, people.columns)
    for column in people.columns:
        members = [g.member for g in groups if g.name.startswith(f"{column} ")]
        total = np.sum(members, axis=0)
        np.testing.assert_array_equal(total, people[column].notna().astype(int))
    names = [group.name for group in groups]
    assert "site = a" in names and "few = 2" in names


def test_names_and_constants_make_no_groups_unless_they_are_asked_for():
    people = pd.DataFrame(
        {"name": [f"p{i}" for i in range(30)], "one": 1.0, "sex": ["f", "m"] * 15}
    )
    assert choose(people) == (["sex"], ["name"])  # nothing to say of a constant
    assert len(find_subgroups(people, ["name"])) == 20  # 19 names and the rest
    with pytest.raises(pe.UserError, match="no covariate to make subgroups of"):
        find_subgroups(people[["one"]], choose(people[["one"]]).chosen)


def test_of_very_many_covariates_those_that_tell_most_come_first_and_all_others_are_named():
    """Fifteen of fifty make sixty groups; three of them decide the score."""
    rng = np.random.default_rng(1)
    people = pd.DataFrame(rng.integers(0, 4, (2000, 50))).add_prefix("z")
    score = people["z7"] + (people["z30"] == 2) - 0.5 * people["z49"]
    chosen, left_out = choose(people, score.to_numpy())
    assert len(chosen) == 15 and len(find_subgroups(people, chosen)) == 60
    assert {"z7", "z30", "z49"} <= set(chosen)
    assert sorted(chosen + left_out) == sorted(people.columns)
    assert chosen == sorted(chosen, key=lambda name: int(name[1:]))
    numbers = pd.DataFrame(rng.normal(size=(500, 20))).add_prefix("z")
    assert len(choose(numbers).chosen) == 15  # four quarters each


def test_rare_categories_are_pooled_and_share_out_everybody():
    rng = np.random.default_rng(0)
    site = rng.choice([f"s{i}" for i in range(40)], 4000, p=np.arange(1, 41) / 820)
    people = pd.DataFrame({"site": site})
    groups = find_subgroups(people, ["site"], least=15)
    assert len(groups) == 20 and groups[-1].name == "site = other (21 values)"
    np.testing.assert_array_equal(np.sum([g.member for g in groups], axis=0), 1)
    few = pd.DataFrame({"site": ["a"] * 50 + ["b"] * 30 + ["c"] * 3 + ["d"] * 2})
    names = [g.name for g in find_subgroups(few, ["site"], least=15)]
    assert names == ["site = a", "site = b", "site = other (2 values)"]
    names = [g.name for g in find_subgroups(few.head(83), ["site"], least=15)]
    assert names[-1] == "site = c"  # a single one is not pooled with anything
    copies = np.where(few["site"] == "d", 20.0, 1.0)
    names = [g.name for g in find_subgroups(few, ["site"], copies, least=15)]
    assert names[-1] == "site = d" and "site = c" in names


@pytest.fixture(scope="module")
def wide():
    """A fit with thirty covariates that have nothing to do with anything."""
    rng = np.random.default_rng(3)
    return fit(
        *(
            draw_table(1200, r, r).join(
                pd.DataFrame(rng.normal(size=(1200, 30))).add_prefix("z")
            )
            for r in (False, True)
        ),
        method="folded",
    )


def test_columns_without_subgroups_are_named_on_the_page_and_in_python(wide, tmp_path):
    chosen, left_out = wide.population_.choose_columns()
    assert len(chosen) < 20 and len(chosen) + len(left_out) == 33
    with pytest.warns(UserWarning, match=f"subgroups leave out {left_out[0]}, "):
        table = wide.subgroups()
    assert len(table) <= 60
    wide.report(tmp_path / "r.html", summary_path=tmp_path / "s.json")
    page = (tmp_path / "r.html").read_text()
    assert f"{len(left_out)} columns make no groups here:" in page
    assert ", ".join(left_out[:10]) in page
    found = json.loads((tmp_path / "s.json").read_text())["subgroup_columns"]
    assert found == {"chosen": chosen, "left_out": left_out}
    wide.report(tmp_path / "named.html", subgroups=[left_out[0], "region"])
    page = (tmp_path / "named.html").read_text()
    assert f"{left_out[0]} from" in page and "make no groups here" not in page
    assert "member = True" not in page
    with pytest.raises(
        pe.UserError, match=r"subgroups: \['height'\] are not covariates"
    ):
        wide.report(tmp_path / "r.html", subgroups=["height"])


def test_groups_come_in_their_natural_order():
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "z10": rng.integers(0, 2, 60),
            "z2": [f"week {n}" for n in rng.permutation(np.repeat([1, 2, 10], 20))],
        }
    )
    names = [g.name for g in find_subgroups(people, choose(people).chosen)]
    assert names == [
        *("z2 = week 1", "z2 = week 2", "z2 = week 10", "z10 = 0", "z10 = 1")
    ]
    named = [group.name for group in find_subgroups(people, ["z10", "z2"])]
    assert named[:2] == ["z10 = 0", "z10 = 1"]  # as asked for
