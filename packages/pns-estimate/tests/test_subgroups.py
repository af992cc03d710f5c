"""Subgroups: every person in one group of each column."""

import numpy as np
import pandas as pd
import pns_estimate as pe
import pytest
from pns_estimate.answers.subgroups import find_subgroups


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
    groups = find_subgroups(people)
    for column in people.columns:
        members = [g.member for g in groups if g.name.startswith(f"{column} ")]
        total = np.sum(members, axis=0)
        np.testing.assert_array_equal(total, people[column].notna().astype(int))
    names = [group.name for group in groups]
    assert "site = a" in names and "few = 2" in names


def test_names_columns_and_constants_are_left_out_unless_asked_for():
    people = pd.DataFrame(
        {"name": [f"p{i}" for i in range(20)], "one": 1.0, "sex": ["f", "m"] * 10}
    )
    assert [g.name for g in find_subgroups(people)] == ["sex = f", "sex = m"]
    assert len(find_subgroups(people, ["name"])) == 20
    with pytest.raises(pe.UserError, match="no covariate to make subgroups of"):
        find_subgroups(people[["one"]])


def test_very_many_covariates_make_sixty_groups_at_most():
    rng = np.random.default_rng(1)
    people = pd.DataFrame(rng.integers(0, 4, (200, 50))).add_prefix("z")
    assert len(find_subgroups(people)) == 60


def test_groups_come_in_their_natural_order():
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "z10": rng.integers(0, 2, 60),
            "z2": [f"week {n}" for n in rng.permutation(np.repeat([1, 2, 10], 20))],
        }
    )
    names = [group.name for group in find_subgroups(people)]
    assert names == [
        *("z2 = week 1", "z2 = week 2", "z2 = week 10", "z10 = 0", "z10 = 1")
    ]
    named = [group.name for group in find_subgroups(people, ["z10", "z2"])]
    assert named[:2] == ["z10 = 0", "z10 = 1"]  # as asked for
