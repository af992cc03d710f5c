"""Tables as people have them: what is taken, how it is read, what is refused."""

import numpy as np
import pandas as pd
import pns_estimate as pe
import pns_infer as pi
import pytest
from small_tables import LinearMethod, fit

GROUPED = []


class GroupedMethod(LinearMethod):
    """Keeps the groups that it was given."""

    name = "grouped"

    def deal(self, key, part, groups, recipe):
        GROUPED.append(groups)
        return super().deal(key, part, groups, recipe)


@pytest.fixture(autouse=True, scope="module")
def grouped_method():
    pe.register_method(GroupedMethod())


def test_values_with_names_need_a_reference(tables, people):
    observational, experimental = (
        table.assign(
            x=table["x"].map({0: "placebo", 1: "drug"}), y=table["y"].astype(bool)
        )
        for table in tables
    )
    with pytest.raises(pe.UserError, match="say which value of the treatment 'x'"):
        fit(observational, experimental)
    named = fit(observational, experimental, treatment_reference="placebo")
    plain = fit(*tables)
    assert named.summary_.tables == plain.summary_.tables
    pd.testing.assert_frame_equal(named.intervals(people), plain.intervals(people))
    with pytest.raises(pe.UserError, match="treatment_reference must be one of"):
        fit(observational, experimental, treatment_reference="nothing")


def test_weights_are_people(tables):
    observational, experimental = tables
    heavy = [table.assign(w=1.0 + 2.0 * table["y"]) for table in tables]
    # Weights by outcome leave the arms unlike each other, which is told.
    with pytest.warns(pi.AssignmentWarning, match="covariates predict the arm"):
        weighted = fit(*heavy, weights="w")
    happened = sum(int(table["y"].sum()) for table in tables)
    assert weighted.sample_size_ == 5_000 + 2 * happened
    # The report's shares count people as the fit does.
    share = observational["y"][observational["x"] == 1].mean()
    np.testing.assert_allclose(
        weighted.summary_.tables["observational"].outcome_treated,
        3 * share / (3 * share + 1 - share),
    )
    with pytest.raises(pe.UserError, match="must be positive numbers"):
        fit(observational.assign(w=0.0), experimental.assign(w=1.0), weights="w")


def test_sampling_weights_add_up_to_the_effective_sample_size(tables):
    """N / (1 + relative variance of the weights) is Kish's formula in another form."""
    rng = np.random.default_rng(0)
    weights = [20 * rng.gamma(4.0, 0.25, len(table)) for table in tables]
    heavy = [t.assign(w=w) for t, w in zip(tables, weights, strict=True)]
    estimator = fit(*heavy, weights="w", weights_are="sampling")
    sizes = [len(w) / (1 + w.var() / w.mean() ** 2) for w in weights]
    found = estimator.summary_.tables.values()
    np.testing.assert_allclose([t.effective_size for t in found], sizes)
    assert 0.75 * 5000 < sum(sizes) < 0.85 * 5000
    np.testing.assert_allclose(estimator.sample_size_, sum(sizes), rtol=1e-5)
    # Their scale says nothing; equal ones are no weights.
    tenth = fit(
        *(t.assign(w=t["w"] / 10) for t in heavy), weights="w", weights_are="sampling"
    )
    np.testing.assert_allclose(tenth.sample_size_, estimator.sample_size_, rtol=1e-5)
    equal = fit(
        *(t.assign(w=20.0) for t in tables), weights="w", weights_are="sampling"
    )
    assert equal.sample_size_ == 5000


@pytest.mark.parametrize("both", [False, True])
def test_groups_may_be_in_one_table_or_in_both(tables, both):
    observational, experimental = tables
    labelled = observational.assign(home=np.arange(3000) // 3)
    if both:
        experimental = experimental.assign(home=np.arange(2000.0))
    estimator = fit(
        labelled, experimental, groups="home", method="grouped", calibrate=False
    )
    groups = GROUPED.pop()
    np.testing.assert_array_equal(groups[:3000], np.arange(3000) // 3)
    np.testing.assert_array_equal(
        groups[3000:], np.arange(2000) if both else 1000 + np.arange(2000)
    )
    assert estimator.summary_.covariates == ["age", "member", "region"]


def bad_weights_and_groups(tables):
    observational, experimental = tables

    def both(**columns):
        return tuple(t.assign(**columns) for t in tables)

    gap = observational.assign(g=np.where(np.arange(3000) < 7, np.nan, 1.0))
    return {
        "no table has the column 'g' of groups": (tables, {"groups": "g"}),
        "groups 'g' of the observational table are missing in 7 rows": (
            (gap, experimental.assign(g=1.0)),
            {"groups": "g"},
        ),
        "all people are in one group of 'g'": (both(g="x"), {"groups": "g"}),
        "must be different columns": (tables, {"groups": "x"}),
        r"\['g'\] cannot be covariates": (
            both(g=0),
            {"groups": "g", "covariates": ["age", "g"]},
        ),
        "weights 'w' of the observational table must be positive numbers": (
            both(w=-1.0),
            {"weights": "w"},
        ),
        "of the experimental table must be positive": (
            (observational.assign(w=1.0), experimental.assign(w=np.nan)),
            {"weights": "w", "weights_are": "sampling"},
        ),
        "of the observational table must be numeric": (
            both(w="much"),
            {"weights": "w"},
        ),
        "weights_are must be 'frequency' or 'sampling', got 'people'": (
            both(w=1.0),
            {"weights": "w", "weights_are": "people"},
        ),
        "weights_are='sampling' needs weights": (tables, {"weights_are": "sampling"}),
    }


@pytest.mark.parametrize("number", range(10))
def test_weights_and_groups_that_cannot_be_used_are_told(tables, number):
    message, (bad, options) = list(bad_weights_and_groups(tables).items())[number]
    with pytest.raises(pe.UserError, match=message):
        fit(*bad, **options)


def test_missing_values_and_unseen_categories_follow_the_policy(tables, people, linear):
    observational, experimental = (table.copy() for table in tables)
    observational.loc[:50, "region"] = None
    experimental["age"] = experimental["age"].astype(float)
    experimental.loc[:20, "age"] = np.nan
    with pytest.raises(pe.UserError, match="missing in 21 rows.*missing='indicator'"):
        fit(observational, experimental)
    estimator = fit(observational, experimental, missing="indicator", unseen="unknown")
    rows = people.copy()
    rows.loc[0, "region"] = "atlantis"
    rows["age"] = rows["age"].astype(float)
    rows.loc[1, "age"] = np.nan
    rows.loc[2, "age"] = 150
    answer = estimator.intervals(rows)
    assert answer["is_outside"].tolist()[:4] == [True, True, True, False]
    with pytest.raises(pe.UserError, match="not in the training.*atlantis.*unseen="):
        linear.intervals(rows.dropna().assign(age=30.0))


CHANGES = {
    "too old": (lambda table: table["age"] > 60, {}),
    "too young": (lambda table: table["age"] < 28, {}),
    "of another region": (lambda table: table["region"] == "west", {}),
    "of no age": (lambda table: table["age"].isna(), {"missing": "indicator"}),
}


@pytest.mark.filterwarnings("ignore::pns_estimate.TableWarning")
@pytest.mark.parametrize("source", [0, 1])
@pytest.mark.parametrize("change", list(CHANGES))
def test_a_person_is_outside_if_one_table_has_nobody_like_them(
    tables, people, change, source, tmp_path
):
    """Rows are taken out of one table; the other still has them."""
    is_gone, policy = CHANGES[change]
    changed = list(tables)
    if policy == {"missing": "indicator"}:
        changed = [t.assign(age=t["age"].where(t["age"] != 30)) for t in tables]
        people = people.assign(age=people["age"].where(people["age"] != 30).tolist())
        people.loc[3, "age"] = None
    gone = is_gone(people)
    assert 0 < gone.sum() < len(people)
    changed[source] = changed[source][~is_gone(changed[source])]
    estimator = fit(*changed, **policy)
    assert estimator.intervals(people)["is_outside"].tolist() == gone.tolist()
    estimator.save(tmp_path / "model")
    again = pe.PnsEstimator.load(tmp_path / "model").intervals(people)
    assert again["is_outside"].tolist() == gone.tolist()
    whole = [t.assign(age=t["age"].where(t["age"] != 30)) for t in tables]
    assert not fit(*whole, missing="indicator").intervals(people)["is_outside"].any()


def bad_tables(tables):
    observational, experimental = tables
    infinite = experimental.assign(age=experimental["age"].astype(float))
    infinite.loc[3, "age"] = np.inf
    twice = pd.concat([observational, observational[["age"]]], axis=1)
    constant = [t.assign(age=1, region="a", member=True) for t in tables]
    three = experimental.assign(x=np.arange(len(experimental)) % 3)
    return {
        "no column 'x'": (observational.drop(columns="x"), experimental),
        "treatment 'x' must have two values, got 3": (observational, three),
        "outcome 'y' must have two values, got": (
            observational.assign(y=np.linspace(0, 1, len(observational))),
            experimental,
        ),
        "nobody with x = 0": (observational, experimental[experimental["x"] == 1]),
        "observational table has no rows": (observational.iloc[:0], experimental),
        "none of the covariates varies": tuple(constant),
        "infinite values": (observational, infinite),
        "column names \\['age'\\] more than once": (twice, experimental),
        "is missing in 5 rows; drop or complete": (
            observational.assign(y=observational["y"].where(observational.index > 4)),
            experimental,
        ),
        "text such as 'old' in the observational table and numbers": (
            observational.assign(age="old"),
            experimental,
        ),
    }


@pytest.mark.parametrize("number", range(10))
def test_tables_that_cannot_be_used_are_told(tables, number):
    message, bad = list(bad_tables(tables).items())[number]
    with pytest.raises(pe.UserError, match=message):
        fit(*bad)


def test_categories_are_the_same_value_whatever_their_type(tables, people):
    """Integer codes in one table, floats in the other, text nowhere."""
    codes = {"north": 1, "south": 2, "west": 3}
    observational, experimental = (
        t.assign(region=t["region"].map(codes)) for t in tables
    )
    observational["region"] = observational["region"].astype("category")
    experimental["region"] = experimental["region"].astype(float).astype("category")
    estimator = fit(observational, experimental)
    rows = people.assign(region=people["region"].map(codes))
    whole = estimator.predict(rows.astype({"region": "category"}))
    floats = estimator.predict(
        rows.astype({"region": float}).astype({"region": "category"})
    )
    np.testing.assert_array_equal(whole.z, floats.z)
    levels = whole.z[whole.place][:, 2:]  # age, member, then one column per level
    np.testing.assert_array_equal(levels, np.eye(3)[rows["region"] - 1])


def test_an_unknown_category_is_none_of_the_known(tables, people):
    estimator = fit(*tables, unseen="unknown")
    rows = people.head(1)
    mars, north = (
        estimator.predict(rows.assign(region=r)).z[0] for r in ("mars", "north")
    )
    assert north.sum() - mars.sum() == 1 and np.count_nonzero(north != mars) == 1


@pytest.mark.filterwarnings("ignore::pns_estimate.TableWarning")
@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        # age, member, region, sex; two levels are two covariates.
        ("error", [0, 1, 2, 2, 2, 3, 4]),
        # Each with an indicator, that of a category apart from its levels.
        ("indicator", [0, 0, 1, 1, 2, 3, 3, 3, 4, 5, 6]),
    ],
)
def test_columns_of_a_category_and_of_a_number_with_gaps_belong_together(
    tables, people, missing, expected
):
    given = [t.assign(sex=np.where(t["age"] % 2, "f", "m")) for t in tables]
    rows = people.assign(sex="f", age=people["age"].astype(float))
    if missing == "indicator":
        given = [t.assign(age=t["age"].where(t["age"] != 30)) for t in given]
        rows.loc[0, ["age", "region"]] = None
    estimator = fit(*given, method="folded", missing=missing, unseen="unknown")
    covariate = estimator.population_.rows.covariate
    assert covariate.tolist() == expected
    rows.loc[1, "region"] = "atlantis"
    prediction = estimator.predict(rows)
    z = prediction.z[prediction.place]
    region = z[:, np.bincount(covariate)[covariate] == 3]
    known = np.isin(rows["region"], ["north", "south", "west"])
    np.testing.assert_array_equal(region.sum(axis=1), known)
    if missing == "indicator":
        assert z[0, :2].tolist() == [1, 0] and not z[1:, 0].any()


def test_booleans_with_gaps_and_time_stamps_are_numbers(tables, people):
    observational, experimental = (table.copy() for table in tables)
    observational["member"] = observational["member"].astype("boolean")
    experimental["member"] = experimental["member"].astype(object)
    experimental.loc[:10, "member"] = None
    start = 1_700_000_000
    for table in (observational, experimental):
        table["age"] = start + table["age"]
    estimator = fit(observational, experimental, missing="indicator")
    rows = people.assign(age=start + people["age"], member=None)
    prediction = estimator.predict(rows)
    assert np.isfinite(prediction.intervals()["lower"]).all()
    assert len(np.unique(prediction.z[:, 1])) == len(np.unique(rows["age"]))
    population = estimator._sample.head(20)
    assert np.isfinite(estimator.intervals(population)["upper"]).all()


def test_roles_do_not_overlap_and_settings_may_be_numpy(tables, people, tmp_path):
    for roles in ({"outcome": "x"}, {"weights": "x"}):
        with pytest.raises(pe.UserError, match="must be different columns"):
            fit(*tables, **roles)
    with pytest.raises(pe.UserError, match="covariates must be a list"):
        fit(*tables, covariates="age")
    numbered = [t.assign(x=t["x"] + 1) for t in tables]
    estimator = fit(
        *numbered, treatment_reference=numbered[0]["x"].min(), seed=np.int64(3)
    )
    estimator.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.intervals(people), estimator.intervals(people))


def test_shared_columns_are_covariates_and_others_are_named_in_one_line(tables):
    observational, experimental = tables
    left = observational.drop(columns="member").assign(note="a", Member=1)
    with pytest.warns(pe.TableWarning) as caught:
        estimator = fit(left, experimental)
    (told,) = [str(warning.message) for warning in caught]
    assert told == (
        "left out, because the other table lacks them: 'note', 'Member' of the "
        "observational table; 'member' of the experimental table."
    )
    assert estimator.summary_.covariates == ["age", "region"]
    named = fit(left, experimental, covariates=["age", "region"])  # nothing is told
    rows = experimental.head(20)
    pd.testing.assert_frame_equal(named.intervals(rows), estimator.intervals(rows))
    assert estimator.summary_.problems == []  # the assumptions are not in doubt


def test_without_covariates_the_answer_is_that_of_frequencies(tables, tmp_path):
    """The trial's difference and the bounds of counts, which need no model."""
    counted = [table[["x", "y"]] for table in tables]
    estimator = fit(*counted, method="crossfit", calibrate=True)
    log, trial = counted
    mu0, mu1 = trial.groupby("x")["y"].mean()
    answer = estimator.intervals(trial.head(3))
    assert len(answer) == 3 and (answer.nunique(dropna=False) == 1).all()
    found = estimator.atoms(trial.head(1)).iloc[0]
    joint = log.groupby(["x", "y"]).size() / len(log)
    np.testing.assert_allclose(found["mu1"] - found["mu0"], mu1 - mu0, atol=2e-3)
    np.testing.assert_allclose(found["p11"], joint[1, 1], atol=2e-3)
    steps = estimator.compare_averages()
    ends = steps.loc[["frequencies of both", "both, by covariates"]]
    np.testing.assert_allclose(*ends.to_numpy(), atol=1e-3)  # critical values vary
    # A person's interval is the population's, or a little wider.
    assert answer["lower"].iloc[0] <= ends["lower"].iloc[0] + 0.005
    assert abs(answer["lower"].iloc[0] - ends["lower"].iloc[0]) < 0.02
    assert abs(answer["upper"].iloc[0] - ends["upper"].iloc[0]) < 0.02
    estimator.report(tmp_path / "report.html", trial.head(3))
    assert "Covariates: none." in (tmp_path / "report.html").read_text()
    none = fit(*tables, method="crossfit", calibrate=True, covariates=[])
    pd.testing.assert_frame_equal(none.intervals(trial.head(3)), answer)


@pytest.mark.parametrize("written", ["text", "words", "booleans", "floats"])
def test_zero_and_one_are_understood_however_a_table_writes_them(
    tables, people, written
):
    """One table has whole numbers, the other what its file format made of them."""
    write = {
        "text": lambda values: values.astype(int).astype(str),
        "words": lambda values: values.astype(bool).map({True: "True", False: "False"}),
        "booleans": lambda values: values.astype(bool),
        "floats": lambda values: values.astype(float).astype(str),
    }[written]
    observational, experimental = (t.assign(member=t["member"] * 1) for t in tables)
    odd = observational.assign(
        **{column: write(observational[column]) for column in ("x", "y", "member")}
    )
    plain, mixed = fit(observational, experimental), fit(odd, experimental)
    assert mixed.summary_.tables == plain.summary_.tables
    rows = people.assign(member=write(people["member"]))
    pd.testing.assert_frame_equal(mixed.intervals(rows), plain.intervals(people))
    groups = plain.predict(people).subgroups().reset_index(drop=True)
    found = mixed.predict(rows).subgroups().reset_index(drop=True)  # False is no 0
    pd.testing.assert_frame_equal(found, groups)
    both = fit(odd, experimental.assign(x=write(experimental["x"])))
    assert both.summary_.treatment.one == 1
    named = fit(odd, experimental, treatment_reference="0")
    assert named.summary_.tables == plain.summary_.tables


def test_values_that_differ_between_tables_are_named_with_their_table(tables):
    observational, experimental = tables
    words = observational["x"].map({0: "no", 1: "yes"})
    with pytest.raises(pe.UserError) as caught:
        fit(observational.assign(x=words), experimental)
    assert str(caught.value) == (
        "the treatment 'x' must have the same two values in both tables; the "
        "observational table has 'no' and 'yes', the experimental table has 0 and 1: "
        "write them alike."
    )
    flags = observational["member"].map({False: "no", True: "yes"})
    with pytest.raises(pe.UserError) as caught:
        fit(observational.assign(member=flags), experimental)
    assert str(caught.value) == (
        "the covariate 'member' holds text such as 'no' in the observational table and "
        "numbers in the experimental table; write it alike in both, or leave it out of "
        "covariates."
    )


@pytest.mark.parametrize(
    "write",
    [
        lambda days: days,
        lambda days: days.dt.tz_localize("Europe/Paris"),
        lambda days: days.dt.date,
        lambda days: days.dt.strftime("%d/%m/%Y"),
        lambda days: days.dt.strftime("%Y-%m-%dT%H:%M:%S"),
        lambda days: days.dt.strftime("%d %b %Y"),
        lambda days: days.dt.strftime("%B %d, %Y"),
    ],
)
def test_dates_are_called_dates(tables, write):
    days = [
        pd.Series(pd.Timestamp("2023-01-01") + pd.to_timedelta(t.index % 365, "D"))
        for t in tables
    ]
    dated = [t.assign(joined=write(d)) for t, d in zip(tables, days, strict=True)]
    with pytest.raises(pe.UserError) as caught:
        fit(*dated)
    assert str(caught.value) == (
        "the covariate 'joined' holds dates; give a number in its place, such as days "
        "since a first date, or leave it out of covariates."
    )
    with pytest.raises(pe.UserError, match="'joined' holds dates; give a number"):
        fit(dated[0], tables[1].assign(joined=days[1].dt.day_of_year))
    with pytest.raises(pe.UserError) as caught:
        fit(*dated, outcome="joined", covariates=["age"])
    assert str(caught.value) == (
        "the outcome 'joined' of the observational table holds dates; give a column of "
        "two values, such as whether it happened."
    )
