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


def labels(count, size, rng):
    """Texts of which each occurs often, and in one table alone."""
    return rng.choice([f"h{i}" for i in rng.integers(0, 10**9, count)], size)


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
        (lambda n, rng: rng.integers(0, 10**6, 150)[rng.integers(0, 150, n)], "groups"),
        (lambda n, rng: labels(90, n, rng), "an identifier of groups"),
        (lambda n, rng: np.round(rng.lognormal(9, 1, n), -2), None),
        (lambda n, rng: rng.integers(0, 2000, n), None),
        (lambda n, rng: rng.choice([f"site {i}" for i in range(60)], n), None),
    ],
)
def test_identifiers_and_dates_are_told(column, message):
    tables = [
        draw_table(size, randomized, seed).assign(
            odd=column(size, np.random.default_rng(seed))
        )
        for size, randomized, seed in ((900, False, 1), (900, True, 2))
    ]
    found = [p for p in problems(*tables) if p.startswith("the covariate 'odd'")]
    assert len(found) == (message is not None)
    assert message is None or message in found[0]


def test_text_that_hardly_repeats_is_an_identifier():
    tables = [draw_table(120, randomized, 1 + randomized) for randomized in (0, 1)]
    names = [[f"p{i}" for i in range(start, start + 90)] for start in (0, 90)]
    small = [
        t.head(90).assign(name=name) for t, name in zip(tables, names, strict=True)
    ]
    assert any(
        "'name' looks like an identifier: its val" in p for p in problems(*small)
    )
    large = [draw_table(300, r, r).assign(name=range(300)) for r in (0, 1)]
    large = [t.assign(name=t["name"].astype(str)) for t in large]
    with pytest.raises(
        pe.UserError, match="300 different values, as an identifier has"
    ):
        problems(*large)


def draw_few(size, randomized, seed, kind):
    """Tables in which many rows are equal, or none."""
    rng = np.random.default_rng(seed)
    table = draw(size, randomized, seed)
    if kind == "two binary":
        return table.assign(z=rng.random(size) < 0.3)[["z", "member", "x", "y"]]
    if kind == "six binary":
        z = rng.random((size, 6)) < [0.1, 0.3, 0.5, 0.5, 0.7, 0.9]
        return pd.concat([pd.DataFrame(z).add_prefix("z"), table[["x", "y"]]], axis=1)
    if kind == "rounded":
        z = np.round(rng.normal(size=(size, 2)), 1)
        return pd.concat([pd.DataFrame(z).add_prefix("z"), table[["x", "y"]]], axis=1)
    if kind == "zeros and incomes":
        income = np.where(rng.random(size) < 0.6, 0, np.round(rng.lognormal(size=size)))
        return table[["x", "y"]].assign(income=income, z=rng.integers(0, 9, size))
    return table


KINDS = ["two binary", "six binary", "rounded", "zeros and incomes", "continuous"]


@pytest.mark.parametrize("kind", KINDS)
def test_equal_rows_of_independent_people_are_not_spoken_of(kind):
    """Two rules for each table, with a false alarm in at most 1 of 1,000 tables each.

    Of 40 pairs of tables at most 0.16 are expected to be spoken of.
    """
    spoken = [
        problem
        for seed in range(20)
        for size in (150, 1500)
        for problem in problems(
            *(draw_few(size, r, 2 * seed + r, kind) for r in (False, True))
        )
        if "groups" in problem
    ]
    assert not spoken


# Of two binary covariates, twice: eight numbers of outcomes may be even by chance.
@pytest.mark.parametrize(
    ("kind", "times"), [(k, 5) for k in KINDS] + [(k, 2) for k in KINDS[1:]]
)
def test_copied_rows_are_told_with_what_to_do(kind, times):
    log, trial = (draw_few(600, r, r, kind) for r in (False, True))
    copied = [pd.concat([t] * times, ignore_index=True) for t in (log, trial)]
    found = problems(*copied)[:2]  # before what rests on independent rows
    assert [
        name in problem
        for name, problem in zip(("observational", "experimental"), found, strict=True)
    ] == [True, True]
    assert f"{times} times" in found[0]
    (found,) = [p for p in problems(log, copied[1]) if "name a column of groups" in p]
    assert "experimental" in found
    person = np.tile(np.arange(600), times)
    named = [t.assign(person=person + 600 * i) for i, t in enumerate(copied)]
    spoken = problems(*named, groups="person")
    assert not any("name a column of groups" in p for p in spoken)


def test_rows_of_which_some_are_copied_are_told():
    log, trial = draw(1000, False, 1), draw(1000, True, 2)
    log = pd.concat([log, log.head(600)])
    (found,) = problems(log, trial)
    assert found.startswith("in the observational table 6")
    assert "different rows occur exactly 2 times each" in found


def test_a_blocked_trial_of_equal_blocks_is_not_taken_for_copies():
    """Forty trials; the numbers of rows in blocks and arms are all alike."""
    block = np.repeat(np.arange(16), 100)
    arm = np.tile(np.repeat([0, 1], 50), 16)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        log, trial = (
            pd.DataFrame({"z": block, "x": x, "y": (rng.random(1600) < 0.4) * 1})
            for x in ((rng.random(1600) < 0.5) * 1, arm)
        )
        assert not any("groups" in p for p in problems(log, trial))


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


def test_tables_that_contradict_each_other_are_warned_of_by_fit():
    log, trial = draw_table(2000, False, 1), draw_table(2000, True, 2)
    never = trial.assign(y=trial["y"] * (np.arange(2000) % 5 == 0))
    with pytest.warns(pe.TableWarning, match="contradict each other"):
        fit(log, never)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(log, trial)


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
