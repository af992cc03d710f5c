"""The estimator: answers, invariance, methods, saving, and what it refuses."""

import json

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_dgp
import pns_estimate as pe
import pns_infer as pi
import pytest
from pns_estimate import _estimator, _methods
from small_tables import draw_table, small_recipe


def fit(observational, experimental, **options):
    settings = {"treatment": "x", "outcome": "y"}
    keys = ("missing", "unseen", "seed", "num_draws", "calibrate", "progress")
    own = {k: options.pop(k) for k in keys if k in options}
    method = options.pop("method", "epinet")
    kind = {"epinet": "epinet", "ensemble": "ensemble"}.get(method, "anchored")
    made = pe.PnsEstimator(
        method, recipe=small_recipe(kind), **{"num_draws": 300, **own}
    )
    return made.fit(observational, experimental, **{**settings, **options})


def test_intervals_are_aligned_and_say_what_binds(fitted, people):
    rows = people.set_index(pd.Index([f"id{i}" for i in range(len(people))]))
    made = fitted.intervals(rows)
    assert made.index.equals(rows.index)
    assert list(made) == [
        "lower",
        "upper",
        "bound_lower",
        "bound_upper",
        "binding_lower",
        "binding_upper",
        "empty",
        "outside",
    ]
    assert ((made["lower"] >= 0) & (made["upper"] <= 1)).all()
    assert (made["lower"] <= made["bound_lower"]).all()
    assert (made["bound_upper"] <= made["upper"]).all()
    assert set(made["binding_upper"]) <= {*_estimator._TERMS["pns"][1], "1"}
    assert not made["empty"].any() and not made["outside"].any()
    narrower = fitted.intervals(rows, alpha=0.5)
    assert (narrower["upper"] - narrower["lower"]).mean() < (
        made["upper"] - made["lower"]
    ).mean()
    parameter = fitted.intervals(rows, target="parameter")
    assert (parameter["upper"] <= made["upper"]).all()


@pytest.mark.parametrize("estimand", ["pns", "harm", "pn", "ps"])
def test_names_of_terms_compute_the_terms(estimand):
    """Each name is an expression in the atoms; it must equal the term it names."""
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.ones(4), 50).reshape(-1, 2, 2)
    atoms = pb.Atoms(joint, pb.anchor(joint, rng.standard_normal((50, 2))))
    values = {f"p{x}{y}": joint[:, x, y] for x, y in np.ndindex(2, 2)}
    values |= {"mu0": atoms.mu[:, 0], "mu1": atoms.mu[:, 1]}
    values["py"] = joint[:, 0, 1] + joint[:, 1, 1]
    terms = _estimator.ESTIMANDS[estimand].terms(atoms)
    for names, side in zip(_estimator._TERMS[estimand], terms, strict=True):
        assert len(names) == side.shape[1]
        for name, column in zip(names, side.T, strict=True):
            named = eval(name.replace("P(y)", "py"), {}, values)
            np.testing.assert_allclose(named, column, atol=1e-12)


def test_harm_average_band_and_threshold_agree_with_each_other(fitted, people):
    pns = fitted.average(people)
    harm = fitted.average(people, estimand="harm")
    atoms = fitted.atoms(people)
    assert list(atoms) == ["mu0", "mu1", "p00", "p01", "p10", "p11"]
    np.testing.assert_allclose(
        atoms[["p00", "p01", "p10", "p11"]].sum(axis=1), 1, atol=1e-5
    )
    effect = (atoms["mu1"] - atoms["mu0"]).mean()
    assert pns.lower - harm.upper <= effect <= pns.upper - harm.lower
    member = people["member"].to_numpy()
    some = fitted.average(people, mask=member)
    same = fitted.average(people[member])
    weighted = fitted.average(people, weights=member.astype(float))
    np.testing.assert_allclose(some, same)
    np.testing.assert_allclose(some, weighted)
    assert some.estimate_lower > fitted.average(people, mask=~member).estimate_lower
    band = fitted.band(people)
    points = fitted.intervals(people)
    assert (band["lower"] <= points["lower"] + 1e-6).all()
    assert (band["upper"] >= points["upper"] - 1e-6).all()
    one_sided = fitted.band(people, alpha=0.5, side="lower")
    threshold = float(one_sided["lower"].max()) / 2
    sure = fitted.threshold_set(people, threshold, alpha=0.5)
    np.testing.assert_array_equal(sure, one_sided["lower"] > threshold)
    assert 0 < sure.sum() < len(sure)


@pytest.mark.slow
def test_order_of_rows_and_columns_does_not_matter(tables, people):
    observational, experimental = tables
    first = fit(observational, experimental)
    columns = fit(observational[observational.columns[::-1]], experimental)
    answer = first.intervals(people)
    pd.testing.assert_frame_equal(columns.intervals(people), answer)
    order = np.random.default_rng(0).permutation(len(people))
    permuted = first.intervals(people.iloc[order, ::-1])
    pd.testing.assert_frame_equal(
        permuted.loc[answer.index], answer, check_exact=False, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", _methods.METHODS)
def test_every_method_answers_and_survives_saving(method, tables, people, tmp_path):
    made = fit(*tables, method=method, calibrate=method in ("epinet", "ensemble"))
    folder = tmp_path / "model"
    made.save(folder)
    loaded = pe.PnsEstimator.load(folder)
    pd.testing.assert_frame_equal(
        loaded.intervals(people), made.intervals(people), check_exact=True
    )
    pd.testing.assert_frame_equal(
        loaded.atoms(people), made.atoms(people), check_exact=True
    )
    np.testing.assert_array_equal(loaded.average(people), made.average(people))
    assert loaded.compatibility() == made.compatibility()
    if method == "plug_in":
        answer = made.intervals(people)
        assert (answer["lower"] == answer["bound_lower"]).all()
        with pytest.raises(pe.UserError, match="has no band"):
            made.band(people)
    else:
        width = made.intervals(people).eval("upper - lower").mean()
        bounds = made.intervals(people).eval("bound_upper - bound_lower").mean()
        assert width > bounds + 0.01
    with pytest.raises(pe.UserError, match="exists already"):
        made.save(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.slow
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
    pd.testing.assert_frame_equal(named.intervals(people), plain.intervals(people))
    with pytest.raises(pe.UserError, match="treatment_reference must be one of"):
        fit(observational, experimental, treatment_reference="nothing")


@pytest.mark.slow
def test_weights_are_people(tables, people):
    observational, experimental = tables
    heavy = [table.assign(w=1.0 + 2.0 * table["y"]) for table in tables]
    weighted = fit(*heavy, weights="w")
    happened = sum(int(table["y"].sum()) for table in tables)
    assert weighted.num_rows_ == 5_000 + 2 * happened
    # The report's shares count people as the fit does.
    share = observational["y"][observational["x"] == 1].mean()
    np.testing.assert_allclose(
        weighted.summary_.tables["observational"]["outcome_treated"],
        3 * share / (3 * share + 1 - share),
    )
    with pytest.raises(pe.UserError, match="must be positive numbers"):
        fit(observational.assign(w=0.0), experimental.assign(w=1.0), weights="w")


@pytest.mark.slow
def test_missing_values_and_unseen_categories_follow_the_policy(tables, people):
    observational, experimental = (table.copy() for table in tables)
    observational.loc[:50, "region"] = None
    experimental["age"] = experimental["age"].astype(float)
    experimental.loc[:20, "age"] = np.nan
    with pytest.raises(pe.UserError, match="missing in 21 rows.*missing='indicator'"):
        fit(observational, experimental)
    made = fit(observational, experimental, missing="indicator", unseen="unknown")
    rows = people.copy()
    rows.loc[0, "region"] = "atlantis"
    rows["age"] = rows["age"].astype(float)
    rows.loc[1, "age"] = np.nan
    rows.loc[2, "age"] = 150
    answer = made.intervals(rows)
    assert answer["outside"].tolist()[:4] == [True, False, True, False]
    strict = fit(*tables)
    with pytest.raises(pe.UserError, match="training had not.*atlantis.*unseen="):
        strict.intervals(rows.dropna().assign(age=30.0))


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
        r"columns \['member'\] are in one table only": (
            observational.drop(columns="member"),
            experimental,
        ),
        "none of the covariates varies": tuple(constant),
        "infinite values": (observational, infinite),
        "column names \\['age'\\] more than once": (twice, experimental),
        "is missing in 5 rows; drop or complete": (
            observational.assign(y=observational["y"].where(observational.index > 4)),
            experimental,
        ),
        "numbers in one table and text": (
            observational.assign(age="old"),
            experimental,
        ),
        "too few people": (observational.iloc[:5], experimental.iloc[:4]),
    }


@pytest.mark.parametrize("number", range(12))
def test_tables_that_cannot_be_used_are_told(tables, number):
    message, bad = list(bad_tables(tables).items())[number]
    with pytest.raises(pe.UserError, match=message):
        fit(*bad)


def test_questions_that_cannot_be_answered_are_told(fitted, people, tmp_path):
    for alpha in (0, 1, -0.1, float("nan")):
        with pytest.raises(pe.UserError, match=r"alpha must lie in \(0, 1\)"):
            fitted.intervals(people, alpha=alpha)
    with pytest.raises(pe.UserError, match="no column 'age'"):
        fitted.intervals(people.drop(columns="age"))
    with pytest.raises(pe.UserError, match="'age' of the prediction table must hold"):
        fitted.intervals(people.assign(age="young"))
    with pytest.raises(pe.UserError, match="estimand must be one of"):
        fitted.intervals(people, estimand="ate")
    with pytest.raises(pe.UserError, match=r"call fit\(\.\.\.\) first"):
        pe.PnsEstimator().intervals(people)
    with pytest.raises(pe.UserError, match="method must be one of"):
        pe.PnsEstimator("forest").fit(people, people, treatment="x", outcome="y")
    with pytest.raises(pe.UserError, match="mask must be 40 booleans"):
        fitted.average(people, mask=[True])
    with pytest.raises(pe.UserError, match="not all 0"):
        fitted.average(people, mask=np.zeros(40, bool))
    with pytest.raises(pe.UserError, match=r"too few.*num_draws"):
        fitted.intervals(people, alpha=0.001)


def test_folders_that_are_no_model_are_told(fitted, tmp_path):
    with pytest.raises(pe.UserError, match="holds no model"):
        pe.PnsEstimator.load(tmp_path)
    fitted.save(tmp_path / "old")
    card = json.loads((tmp_path / "old" / "estimator.json").read_text())
    card["format"] = 99
    (tmp_path / "old" / "estimator.json").write_text(json.dumps(card))
    with pytest.raises(pe.UserError, match="is in format 99"):
        pe.PnsEstimator.load(tmp_path / "old")
    fitted.save(tmp_path / "cut")
    arrays = next((tmp_path / "cut" / "network" / "arrays").rglob("d/*"))
    arrays.write_bytes(arrays.read_bytes()[:20])
    with pytest.raises(pe.UserError, match="holds an incomplete model"):
        pe.PnsEstimator.load(tmp_path / "cut")
    fitted.save(tmp_path / "less")
    text = (tmp_path / "less" / "estimator.json").read_text()
    (tmp_path / "less" / "estimator.json").write_text(text[: len(text) // 2])
    with pytest.raises(pe.UserError, match="or an incomplete one"):
        pe.PnsEstimator.load(tmp_path / "less")


@pytest.mark.slow
def test_tables_that_contradict_each_other_are_found():
    observational, experimental = draw_table(4000, False, 3), draw_table(3000, True, 4)
    observational["y"] = 1  # everybody who chose had the outcome
    experimental["y"] = (experimental.index % 10 == 0).astype(int)
    made = fit(observational, experimental).compatibility()
    assert made["p_value"] < 0.001 and made["slack"] < 0
    fine = fit(draw_table(4000, False, 3), draw_table(3000, True, 4)).compatibility()
    assert fine["p_value"] > 0.05 and fine["strata"] > 1


@pytest.mark.slow
def test_the_front_door_covers_the_truth():
    """A model of the Li family that nothing was tuned on; 500 people."""
    model = pns_dgp.random_li_model(991)
    frames = []
    for number, regime, n in (
        (0, "observational", 20_000),
        (1, "experimental", 10_000),
    ):
        sample = model.sample(jax.random.key(number), n, regime)
        frame = pd.DataFrame(np.asarray(sample.z).astype(int)).add_prefix("z")
        frames.append(frame.assign(x=np.asarray(sample.x), y=np.asarray(sample.y)))
    made = pe.PnsEstimator(progress=False, num_draws=1000)
    made.fit(*frames, treatment="x", outcome="y")
    population = model.sample_population(jax.random.key(2), 500)
    truth = model.oracle(population.z)
    rows = pd.DataFrame(np.asarray(population.z).astype(int)).add_prefix("z")
    scores = pi.score_intervals(made.intervals(rows), truth.pns, truth.interval)
    assert scores.point_coverage > 0.9
    assert scores.set_coverage > 0.85
    assert scores.width < 0.9


@pytest.mark.slow
def test_categories_are_the_same_value_whatever_their_type(tables, people):
    """Integer codes in one table, floats in the other, text nowhere."""
    codes = {"north": 1, "south": 2, "west": 3}
    observational, experimental = (
        t.assign(region=t["region"].map(codes)) for t in tables
    )
    observational["region"] = observational["region"].astype("category")
    experimental["region"] = experimental["region"].astype(float).astype("category")
    made = fit(observational, experimental)
    (region,) = [c for c in made.encoder_.covariates if c.column == "region"]
    assert region.levels == ("1", "2", "3")
    rows = people.assign(region=people["region"].map(codes))
    whole = made.intervals(rows.astype({"region": "category"}))
    floats = made.intervals(
        rows.astype({"region": float}).astype({"region": "category"})
    )
    pd.testing.assert_frame_equal(whole, floats)


@pytest.mark.slow
def test_a_fit_that_fails_changes_nothing(tables, people):
    made = fit(*tables)
    before = made.intervals(people)
    renamed = [t.replace({"region": {"north": "zorth"}}) for t in tables]
    with pytest.raises(pe.UserError, match="nobody with x = 0"):
        made.fit(renamed[0], renamed[1].assign(x=1), treatment="x", outcome="y")
    pd.testing.assert_frame_equal(made.intervals(people), before)


@pytest.mark.slow
def test_an_unknown_category_is_not_the_first_one(tables, people):
    made = fit(*tables, unseen="unknown")
    rows = people.head(1)
    mars, north = (made.atoms(rows.assign(region=r)) for r in ("mars", "north"))
    assert not np.allclose(mars, north)


@pytest.mark.slow
def test_booleans_with_gaps_and_time_stamps_are_numbers(tables, people):
    observational, experimental = (table.copy() for table in tables)
    observational["member"] = observational["member"].astype("boolean")
    experimental["member"] = experimental["member"].astype(object)
    experimental.loc[:10, "member"] = None
    start = 1_700_000_000
    for table in (observational, experimental):
        table["age"] = start + table["age"]
    made = fit(observational, experimental, missing="indicator")
    rows = people.assign(age=start + people["age"], member=None)
    assert np.isfinite(made.intervals(rows)["lower"]).all()
    z, _ = made.encoder_.encode(rows, "prediction")
    assert len(np.unique(z[:, 1])) == len(np.unique(rows["age"]))
    assert np.isfinite(made.intervals(made._population.head(20))["upper"]).all()


@pytest.mark.slow
def test_roles_do_not_overlap_and_settings_may_be_numpy(tables, people, tmp_path):
    for roles in ({"outcome": "x"}, {"weights": "x"}):
        with pytest.raises(pe.UserError, match="must be different columns"):
            fit(*tables, **roles)
    with pytest.raises(pe.UserError, match="covariates must be a list"):
        fit(*tables, covariates="age")
    numbered = [t.assign(x=t["x"] + 1) for t in tables]
    made = fit(*numbered, treatment_reference=numbered[0]["x"].min(), seed=np.int64(3))
    made.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.intervals(people), made.intervals(people))


def test_weights_of_groups_are_checked(fitted, people):
    for bad in (np.ones(40), np.ones((2, 3)), np.zeros((1, 40)), -np.ones((1, 40))):
        with pytest.raises(pe.UserError, match="num_groups, 40"):
            fitted.average_groups(people, bad)
    with pytest.raises(pe.UserError, match="weights must be 40 numbers"):
        fitted.average(people, weights=np.ones(6))
    with pytest.raises(pe.UserError, match="target must be"):
        fitted.intervals(people, target="point")
    with pytest.raises(pe.UserError, match="must be a DataFrame or a path"):
        fitted.intervals(None)
