"""Averages, subgroups and values of the tables' people, through the front door."""

import dataclasses

import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_estimate as pe
import pns_infer as pi
import pytest
from pns_estimate.tables.preparation import compare
from small_tables import draw_table, fit


def test_an_average_without_rows_is_that_of_both_tables(folded):
    average = folded.average()
    prepared = folded.population_.prepared()
    want = pi.debiased_average(prepared.units)
    assert average == want and isinstance(average, pi.DebiasedAverage)
    assert 0 <= average.lower <= average.bound_lower
    assert average.bound_upper <= average.upper <= 1
    # Nobody is harmed in these tables, and 25% benefit: 0.4 of members, 0.1 of south.
    assert average.lower < 0.2 + 0.1 / 3 < average.upper


def test_a_source_a_mask_and_weights_choose_the_people(folded, tables):
    people = pd.concat(tables, ignore_index=True)
    young = (people["age"] < 40).to_numpy()
    by_mask = folded.average(mask=young)
    assert by_mask == folded.average(mask=lambda p: (p["age"] < 40).to_numpy())
    by_weight = folded.average(weights=3.0 * young)
    np.testing.assert_allclose(by_weight, by_mask, rtol=1e-12)
    assert by_mask != folded.average()
    trial = folded.average(source="experimental")
    units = folded.population_.prepared("experimental").units
    assert trial == pi.debiased_average(units, source="experimental")


def test_an_average_over_rows_still_rests_on_the_draws(folded, people):
    average = folded.average(people)
    assert isinstance(average, pi.AverageInterval)
    assert average == folded.predict(people).average()
    with pytest.raises(pe.UserError, match="source is for averages without rows"):
        folded.average(people, source="experimental")


def test_the_comparison_puts_counting_beside_it(folded):
    table = folded.compare_averages(estimand="harm")
    assert list(table.index) == [
        "trial alone",
        "frequencies of both",
        "both, by covariates",
    ]
    units = folded.population_.prepared().units
    counted = pi.frequency_interval(units, estimand=pb.HARM)
    assert table.loc["frequencies of both", "upper"] == counted.upper
    best = folded.average(estimand="harm")
    assert table.loc["both, by covariates", "lower"] == best.lower
    difference = folded.population_.difference()
    trial = units.is_experimental
    want = [
        np.average(units.y[arm], weights=units.weights[arm])
        for arm in (trial & (units.x == 0), trial & (units.x == 1))
    ]
    np.testing.assert_allclose(difference.estimate, want[1] - want[0])


def test_subgroups_are_levels_and_quartiles(folded, tables):
    table = folded.subgroups()
    assert table.loc["member = True", "people"] == sum(
        t["member"].sum() for t in tables
    )
    ages = [name for name in table.index if name.startswith("age")]
    assert len(ages) == 4 and table.loc[ages, "people"].sum() == 5000
    assert table.loc["member = True", "lower"] > table.loc["member = False", "lower"]
    alone = pi.debiased_average(
        row_by_row(folded.population_).prepared().units,
        member=pd.concat(tables)["region"].to_numpy() == "south",
        with_frequencies=False,
    )
    found = folded.subgroups(["region"]).loc["region = south"]
    np.testing.assert_allclose(found["bound_lower"], alone.mean_lower)


def test_a_subgroup_without_an_arm_has_no_numbers(tables):
    observational, experimental = tables
    treated = experimental["x"] == 1
    odd = experimental.assign(site=np.where(treated & (np.arange(2000) < 60), "b", "a"))
    log = observational.assign(site=np.where(np.arange(3000) % 2 == 0, "a", "b"))
    with (
        pytest.warns(pe.TableWarning),
        pytest.warns(pi.AssignmentWarning, match="covariates predict the arm"),
    ):
        estimator = fit(log, odd, method="folded")
    table = estimator.subgroups(["site"])
    assert np.isnan(table.loc["site = b", "lower"])
    assert np.isfinite(table.loc["site = a", "lower"])
    with pytest.raises(pe.UserError, match="no units in arm 0"):
        estimator.average(mask=lambda p: (p["site"] == "b").to_numpy())


def test_sorted_groups_are_a_table_with_two_tests(folded):
    found = folded.sorted_groups(4)
    assert list(found.table.index) == [1, 2, 3, 4]
    units = folded.population_.prepared().units
    want = pi.sorted_groups(units, folded.population_.rows.fold, num_groups=4)
    np.testing.assert_array_equal(found.table["harm_upper"], want.harm.upper)
    np.testing.assert_array_equal(found.table["effect"], want.effect)
    assert found.p_value == want.p_value
    assert found.effect_p_value == want.effect_p_value


def test_values_and_curve_are_in_the_users_units(folded):
    one = pe.Decision(cost=0.1)
    ten = pe.Decision((10, 0, 0, -10), cost=1.0)
    first, second = folded.value(one), folded.value(ten)
    np.testing.assert_allclose(10 * first["lower"], second["lower"])
    np.testing.assert_allclose(first["share_treated"], second["share_treated"])
    assert list(first.index) == ["rule", "treat all", "treat none"]
    curve = folded.value_curve(one)
    np.testing.assert_allclose(
        curve.loc[1.0, "bound_upper"], first.loc["treat all", "bound_upper"]
    )
    assert np.all(curve["lower"] <= curve["bound_lower"])


def test_each_person_gets_a_recommendation(folded, people):
    found = folded.decide(people, pe.Decision((2, -1, 0, -2), 0.1, budget=0.5))
    gain = pi.net_benefit((2, -1, 0, -2), 0.1)
    table = folded.intervals(people, estimand=gain)
    np.testing.assert_array_equal(found["lower"], table["lower"])
    sure = found["recommendation"] == "treat"
    np.testing.assert_array_equal(sure, table["lower"] > 0)
    assert found["treat"].sum() <= 20 and found.index.equals(people.index)


def test_clusters_of_the_tables_enter_the_variance(tables):
    """Three copies of each person, told to be one household, say no more than one."""
    one = fit(*(t.head(600) for t in tables), method="folded").average()
    copies = [
        pd.concat([t.head(600).assign(home=prefix + np.arange(600))] * 3)
        for t, prefix in zip(tables, (0, 10_000), strict=True)
    ]
    many = fit(*copies, method="folded", groups="home").average()
    np.testing.assert_allclose(
        many.standard_error_lower, one.standard_error_lower, rtol=0.1
    )


def test_a_table_of_counts_is_the_table_of_its_people(tables):
    """Weights that are frequencies: rows with the same values are merged."""
    some = [t.drop(columns="age").head(1500) for t in tables]
    merged = [t.groupby(list(t.columns)).size().reset_index(name="w") for t in some]
    one = fit(*some, method="folded")
    two = fit(*merged, method="folded", weights="w")
    first, second = (
        pi.trial_difference(each.population_.prepared().units) for each in (one, two)
    )
    np.testing.assert_allclose(first, second, rtol=0.02)
    np.testing.assert_allclose(
        one.compare_averages().loc["frequencies of both"],
        two.compare_averages().loc["frequencies of both"],
        atol=0.003,
    )


def row_by_row(population):
    """Returns the same people with no rows merged."""
    tables, read = population.tables, population.tables.read
    rows = read.rows.take(read.place)._replace(weights=read.weights, copies=read.copies)
    chance = np.zeros(len(read.rows.z))
    chance[read.rows.is_trial] = tables.trial.probability
    probability = chance[read.place][rows.is_trial]
    tables = tables._replace(
        read=read._replace(rows=rows, place=np.arange(len(rows.z))),
        trial=tables.trial._replace(probability=probability),
        comparison=compare(rows),
    )
    atoms = pb.Atoms(*(part[read.place] for part in population.atoms))
    return dataclasses.replace(population, tables=tables, atoms=atoms)


@pytest.mark.parametrize("column", [None, "frequency", "sampling", "chance"])
def test_rows_that_agree_are_averaged_as_one(tables, column):
    """Whatever is asked, the answer is that of the rows."""
    rng = np.random.default_rng(0)
    values, options = {
        None: (lambda n: 1, {}),
        "frequency": (lambda n: rng.integers(1, 4, n), {"weights": "odd"}),
        "sampling": (
            lambda n: rng.choice([0.5, 1.0, 2.0], n),
            {"weights": "odd", "weights_are": "sampling"},
        ),
        "chance": (lambda n: rng.choice([0.45, 0.55], n), {"assignment": "odd"}),
    }[column]
    given = [t.drop(columns="age").assign(odd=values(len(t))) for t in tables]
    estimator = fit(*given, method="folded", covariates=["region", "member"], **options)
    people = estimator.population_
    by_row = row_by_row(people)
    assert 2 * people.prepared().units.num_rows < by_row.prepared().units.num_rows
    assert by_row.prepared().units.num_rows == 5000
    some = np.arange(5000) % 7 == 0  # some of the rows that agree, but not all
    for ask in (
        lambda p: p.average(),
        lambda p: p.average(mask=lambda z: z["member"].to_numpy()),
        lambda p: p.average(mask=some, estimand="harm"),
        lambda p: p.average(weights=1.0 + some, source="observational"),
        lambda p: p.comparison(),
        lambda p: p.difference(),
        lambda p: p.subgroups(),
        lambda p: p.sorted_groups(3).table,
        lambda p: p.value(pe.Decision(cost=0.1, budget=0.4)),
        lambda p: p.value_curve(),
    ):
        found, want = ask(people), ask(by_row)
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-9)


def test_a_stratified_assignment_is_a_column(tables):
    rng = np.random.default_rng(0)
    log, trial = draw_table(3000, False, 0), draw_table(2000, True, 1)
    chance = np.where(trial["member"], 0.7, 0.3)
    kept = rng.random(2000) < np.where(trial["x"] == 1, chance, 1 - chance)
    stratified = trial.assign(chance=chance)[kept]
    estimator = fit(log, stratified, method="folded", assignment="chance")
    check = estimator.population_.tables.trial
    assert check.balance.p_value > 0.001
    read = estimator.population_.tables.read
    place = read.place[3000:] - (~read.rows.is_trial).sum()
    np.testing.assert_array_equal(check.probability[place], stratified["chance"])
    assert "chance" not in estimator.summary_.covariates
    with pytest.warns(pe.TableWarning), pytest.warns(pi.AssignmentWarning):
        fit(log, stratified.drop(columns="chance"), method="folded")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (0.9, "assignment contradicts the data"),
        (1.5, "strictly between 0 and 1"),
        ("chance", "no column 'chance' of assignment"),
        ("region", "must be numeric"),
    ],
)
def test_bad_assignments_are_told_before_any_training(tables, assignment, message):
    with pytest.raises(pe.UserError, match=message):
        fit(*tables, method="folded", assignment=assignment)


def test_what_needs_the_tables_people_says_so(linear, folded, people, tmp_path):
    for estimator in (linear, None):
        if estimator is None:
            folded.save(tmp_path / "model")
            estimator = pe.PnsEstimator.load(tmp_path / "model")
        for ask in ("average", "subgroups", "sorted_groups", "value"):
            with pytest.raises(pe.UserError, match="give rows to average over"):
                getattr(estimator, ask)()
        assert not estimator.has_population
        estimator.average(people)


def test_bad_questions_end_in_one_sentence(folded, people):
    for call, message in (
        (lambda: folded.average(source="trial"), "source must be 'both'"),
        (lambda: folded.average(mask=np.ones(3, bool)), "mask must be 5000 booleans"),
        (lambda: folded.average(weights=np.ones(3)), "weights must be 5000 numbers"),
        (lambda: folded.average(mask=np.zeros(5000, bool)), "subgroup is empty"),
        (lambda: folded.average(alpha=2), "alpha must lie in"),
        (lambda: folded.average(estimand="luck"), "estimand must be one of"),
        (lambda: folded.subgroups(["height"]), "are not covariates of the fit"),
        (lambda: folded.sorted_groups(1), "num_groups must be at least 2"),
        (lambda: folded.value(pe.Decision((1, 2))), "gains must be four numbers"),
        (lambda: folded.value(pe.Decision(budget=2)), "budget must be a share"),
        (
            lambda: folded.decide(people, pe.Decision((1,))),
            "gains must be four numbers",
        ),
        (
            lambda: folded.decide(people, pe.Decision(criterion="hope")),
            "criterion must be one of",
        ),
    ):
        with pytest.raises(pe.UserError, match=message):
            call()


def test_a_covariate_that_is_whole_in_one_table_and_not_in_the_other_is_one(tables):
    log, trial = (t.assign(child=t["age"] % 2) for t in tables)
    one = fit(log, trial.assign(child=trial["child"].astype(float)), method="folded")
    table = one.subgroups(["child"])
    assert table.index.tolist() == ["child = 0", "child = 1"]
    assert table["people"].sum() == 5000


def test_no_usable_subgroup_is_one_sentence(tables):
    log, trial = tables
    log, trial = log.assign(site="log"), trial.assign(site="trial")
    with pytest.warns(pe.TableWarning):
        estimator = fit(log, trial, method="folded")
    with pytest.raises(pe.UserError, match="no subgroup has people of the log"):
        estimator.subgroups(["site"])


def test_the_trial_alone_is_its_own_people_unweighted_whatever_the_log(tables):
    """Logs of other people move a step of its own, and not the trial."""
    log, trial = tables
    chance = (log["age"] - 15) / 60
    older = log[np.random.default_rng(0).random(len(log)) < chance]
    like, other = fit(log, trial, method="folded"), fit(older, trial, method="folded")
    assert other.population_.prepared().units.ratio is not None
    assert "trial, reweighted" not in like.compare_averages().index
    for estimand in ("pns", "harm"):
        one, two = (e.compare_averages(estimand=estimand) for e in (like, other))
        pd.testing.assert_series_equal(one.loc["trial alone"], two.loc["trial alone"])
        assert two.index.tolist()[:2] == ["trial alone", "trial, reweighted"]
        moved = two.loc["trial, reweighted"] - two.loc["trial alone"]
        assert moved.abs().max() > 1e-4
    # Of the trial's own people nothing is moved.
    own = other.compare_averages(source="experimental")
    assert "trial, reweighted" not in own.index
    np.testing.assert_array_equal(
        own.loc["trial alone"], other.compare_averages().loc["trial alone"]
    )
    rates = [trial.loc[trial["x"] == arm, "y"].mean() for arm in (0, 1)]
    bounds = pb.experimental_only_bounds(np.array(rates))
    found = other.compare_averages().loc["trial alone"]
    np.testing.assert_allclose(
        found[["bound_lower", "bound_upper"]], bounds, atol=0.003
    )
    # The trial's own effect is never below the lower end of what it causes.
    assert found["lower"] <= rates[1] - rates[0]
