"""Tables that are not what they are taken for are told; correct ones rarely."""

import warnings

import numpy as np
import pandas as pd
import pns_estimate as pe
import pytest
from pns_estimate.tables.preparation import prepare_tables
from pns_estimate.tables.rows import Roles
from small_tables import draw_table, fit

SETTINGS = pe.PnsEstimator("linear").get_params()


def problems(log, trial, covariates=None, **roles):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tables = {"observational": log, "experimental": trial}
        roles = Roles("x", "y", **roles)
        return prepare_tables(tables, roles, covariates, SETTINGS).problems


def draw(size, randomized, seed):
    """People whose choice, if they have one, depends on their age."""
    table = draw_table(size, True, seed)
    rng = np.random.default_rng(seed + 10_000)
    table["income"] = rng.normal(size=size)
    if not randomized:
        chance = 1 / (1 + np.exp(-(table["age"] - 45) / 10))
        table["x"] = (rng.random(size) < chance).astype(int)
    return table


def test_correct_tables_are_hardly_ever_spoken_of():
    """The test of balance speaks at 1 in 1,000, the other rules by no chance."""
    sizes = [(200, 150), (1000, 300), (3000, 3000)]
    spoken = [
        problem
        for seed in range(20)
        for sizes_of in sizes
        for problem in problems(
            draw(sizes_of[0], False, 2 * seed), draw(sizes_of[1], True, 2 * seed + 1)
        )
    ]
    assert len(spoken) <= 1, spoken  # of 60 pairs; 0.06 are expected


def test_swapped_tables_are_told():
    found = problems(draw(2000, True, 1), draw(2000, False, 2))
    assert "covariates predict the arm of the experiment" in found[0]
    assert "the tables may be swapped" in found[1]


def test_an_unbalanced_trial_beside_a_confounded_log_is_no_swap():
    found = problems(draw(2000, False, 1), draw(2000, False, 2))
    assert len(found) == 1 and "covariates predict the arm" in found[0]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_table_twice_is_an_error(seed):
    table = draw(500, True, seed)
    for other in (table, table.sample(frac=1, random_state=0)):
        with pytest.raises(pe.UserError, match="both tables hold the same rows"):
            problems(table, other)


def test_a_log_that_holds_the_trial_is_told():
    log, trial = draw(2000, False, 1), draw(1000, True, 2)
    found = problems(pd.concat([log, trial], ignore_index=True), trial)
    assert len(found) == 1
    assert "100% of the rows of the experimental table are in the obs" in found[0]
    few = ["region", "member"]  # where everybody has a twin, nothing can be said
    assert not problems(
        pd.concat([log, trial], ignore_index=True), trial[log.columns], few
    )


def test_cells_with_weights_may_recur():
    cells = pd.MultiIndex.from_product(
        [range(30), [0, 1], [0, 1]], names=["z", "x", "y"]
    )
    rng = np.random.default_rng(0)
    log, trial = (
        cells.to_frame(index=False).assign(w=rng.integers(5, 20, len(cells)))
        for _ in range(2)
    )
    assert not problems(log, trial, weights="w")


def test_tables_of_different_people_are_told():
    log, trial = draw(3000, False, 1), draw(2000, True, 2)
    found = problems(log[log["age"] < 40], trial[trial["age"] > 45])
    for name in ("observational", "experimental"):
        assert any(
            f"100% of the rows of the {name} table have almost" in f for f in found
        )
    assert all("differ most in 'age'" in f for f in found if "comparable rows" in f)
    (found,) = problems(log[log["region"] != "west"], trial)
    assert "% of the rows of the experimental table have almost no" in found
    assert "'region'" in found
    found = problems(log, trial.assign(age=trial["age"] + 20))
    assert len(found) == 2 and "'age'" in found[0]
    older = trial.sample(600, weights=trial["age"], random_state=0)
    assert not problems(log, older)  # another law, and the same people


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (lambda n, rng: np.arange(n), "looks like an identifier"),
        (lambda n, rng: rng.permutation(n) + 7, "looks like an identifier"),
        (lambda n, rng: rng.integers(10**12, 10**13, n), "looks like an identifier"),
        (
            lambda n, rng: rng.choice(["2024-01-31", "2024-02-01"], n),
            "holds dates, and each date is a category",
        ),
        (
            lambda n, rng: pd.to_datetime(rng.choice(["2024-01-31", "2024-02-01"], n)),
            "holds dates",
        ),
        (
            lambda n, rng: 20240100 + rng.integers(1, 32, n),
            "looks like dates written as numbers, such as 20240101",
        ),
        (lambda n, rng: rng.normal(size=n), None),
        (lambda n, rng: rng.integers(0, 10**6, n), None),
        (lambda n, rng: rng.integers(18, 95, n), None),
        (lambda n, rng: rng.choice(["1-2", "3-4", "5+"], n), None),
    ],
)
def test_identifiers_and_dates_are_told(column, message):
    tables = [
        draw_table(size, randomized, seed).assign(
            odd=column(size, np.random.default_rng(seed))
        )
        for size, randomized, seed in ((900, False, 1), (900, True, 2))
    ]
    found = [problem for problem in problems(*tables) if "'odd'" in problem]
    assert len(found) == (message is not None)
    assert message is None or message in found[0]


def test_columns_are_known_by_name_if_their_values_hardly_repeat():
    tables = [
        draw_table(800, randomized, seed).assign(
            user_id=np.random.default_rng(seed).integers(0, 5000, 800)
        )
        for randomized, seed in ((False, 1), (True, 2))
    ]
    assert any("'user_id' looks like an identifier" in p for p in problems(*tables))
    grouped = [table.assign(user_id=table["user_id"] % 40) for table in tables]
    assert not problems(*grouped)


def test_rare_arms_and_outcomes_are_told():
    log, trial = draw(2000, False, 1), draw(2000, True, 2)
    treated = trial[trial["x"] == 1]
    rare = pd.concat([trial[trial["x"] == 0], treated.head(12)])
    (found,) = problems(log, rare)
    assert found == "the experimental table has only 12 people with x = 1."
    seldom = trial.assign(y=0)
    seldom.loc[treated.index[:4], "y"] = 1
    found = problems(log, seldom)
    assert any("with x = 1" in p and "only 4 have y = 1" in p for p in found)
    assert any("with x = 0" in p and "only 0 have y = 1" in p for p in found)


def test_what_is_found_is_warned_of_and_kept_for_the_report(tmp_path):
    log, trial = draw(2000, False, 1), draw(2000, True, 2)
    tables = [table.assign(id=range(2000)) for table in (log, trial)]
    with pytest.warns(pe.TableWarning, match="'id' looks like an identifier"):
        estimator = fit(*tables)
    (problem,) = estimator.summary_.problems
    estimator.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    assert loaded.summary_.problems == [problem]
    loaded.report(tmp_path / "report.html", trial.assign(id=1).head(20))
    page = (tmp_path / "report.html").read_text()
    assert "The covariate &#39;id&#39; looks like an identifier" in page
