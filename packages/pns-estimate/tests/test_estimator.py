"""The estimator: answers that fit together, invariance, and what it refuses."""

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_dgp
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm
import pytest
from small_tables import draw_table, fit, small_recipe


def test_the_names_of_covariates_are_known_after_a_fit_alone(linear, tmp_path):
    assert linear.feature_names_in_.tolist() == ["age", "member", "region"]
    linear.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == linear.summary_.covariates
    assert not hasattr(pe.PnsEstimator(), "feature_names_in_")


def test_intervals_are_aligned_and_say_what_binds(fitted, people):
    rows = people.set_index(pd.Index([f"id{i}" for i in range(len(people))]))
    answer = fitted.intervals(rows)
    assert answer.index.equals(rows.index)
    assert list(answer) == [
        "lower",
        "upper",
        "bound_lower",
        "bound_upper",
        "binding_lower",
        "binding_upper",
        "is_empty",
        "is_outside",
    ]
    assert ((answer["lower"] >= 0) & (answer["upper"] <= 1)).all()
    assert (answer["lower"] <= answer["bound_lower"]).all()
    assert (answer["bound_upper"] <= answer["upper"]).all()
    assert set(answer["binding_upper"]) <= {*pb.PNS.upper_labels, "1"}
    assert not answer["is_empty"].any() and not answer["is_outside"].any()
    narrower = fitted.intervals(rows, alpha=0.5)
    assert (narrower["upper"] - narrower["lower"]).mean() < (
        answer["upper"] - answer["lower"]
    ).mean()
    parameter = fitted.intervals(rows, target="parameter")
    assert (parameter["upper"] <= answer["upper"]).all()


@pytest.mark.parametrize("name", list(pb.ESTIMANDS))
def test_every_estimand_of_the_registry_is_answered(linear, people, name):
    estimand = pb.ESTIMANDS[name]
    answer = linear.intervals(people, estimand=name)
    assert set(answer["binding_lower"]) <= {
        *estimand.lower_labels,
        f"{estimand.floor:g}",
    }
    sharp = estimand.bounds(linear.predict(people).sampler.atoms(linear_z(linear)))
    assert np.all(answer["lower"] <= sharp.lower + 1e-6)
    assert np.all(answer["upper"] >= sharp.upper - 1e-6)
    same = linear.intervals(people, estimand=estimand)
    pd.testing.assert_frame_equal(same, answer)


def linear_z(estimator):
    prediction = estimator.predict(draw_table(40, True, 2))
    return prediction.z[prediction.place]


def test_gains_of_the_users_own_are_an_estimand(linear, people):
    """With gains 1, 0, 0, 0 the benefit is PNS; in general it lies within the gains."""
    plain = linear.intervals(people)
    as_benefit = linear.intervals(people, estimand=pb.benefit(1, 0, 0, 0))
    np.testing.assert_allclose(as_benefit["lower"], plain["lower"], atol=1e-6)
    gains = pb.benefit(100, -20, -10, -150)
    answer = linear.intervals(people, estimand=gains)
    assert answer["lower"].min() >= -150 and answer["upper"].max() <= 100
    mean = linear.average(people, estimand=gains)
    assert answer["lower"].mean() <= mean.lower <= mean.upper <= answer["upper"].mean()


def test_harm_average_band_and_threshold_agree_with_each_other(fitted, people):
    prediction = fitted.predict(people)
    pns = prediction.average()
    harm = prediction.average(estimand="harm")
    atoms = prediction.atoms()
    assert list(atoms) == ["mu0", "mu1", "p00", "p01", "p10", "p11"]
    np.testing.assert_allclose(
        atoms[["p00", "p01", "p10", "p11"]].sum(axis=1), 1, atol=1e-5
    )
    effect = (atoms["mu1"] - atoms["mu0"]).mean()
    assert pns.lower - harm.upper <= effect <= pns.upper - harm.lower
    member = people["member"].to_numpy()
    some = prediction.average(mask=member)
    same = fitted.average(people[member])
    weighted = fitted.average(people, weights=member.astype(float))
    np.testing.assert_allclose(some, same, rtol=1e-6)
    np.testing.assert_allclose(some, weighted)
    assert some.bound_lower > prediction.average(mask=~member).bound_lower
    band = prediction.band()
    points = prediction.intervals()
    assert (band["lower"] <= points["lower"] + 1e-6).all()
    assert (band["upper"] >= points["upper"] - 1e-6).all()
    one_sided = prediction.band(alpha=0.5, side="lower")
    threshold = float(one_sided["lower"].max()) / 2
    sure = prediction.threshold_set(threshold, alpha=0.5)
    np.testing.assert_array_equal(sure, one_sided["lower"] > threshold)
    assert 0 < sure.sum() < len(sure)


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


def test_a_fit_that_fails_changes_nothing(tables, people):
    estimator = fit(*tables)
    before = estimator.intervals(people)
    renamed = [t.replace({"region": {"north": "zorth"}}) for t in tables]
    with pytest.raises(pe.UserError, match="nobody with x = 0"):
        estimator.fit(renamed[0], renamed[1].assign(x=1), treatment="x", outcome="y")
    pd.testing.assert_frame_equal(estimator.intervals(people), before)


def test_questions_that_cannot_be_answered_are_told(linear, people):
    for alpha in (0, 1, -0.1, float("nan")):
        with pytest.raises(pe.UserError, match=r"alpha must lie in \(0, 1\)"):
            linear.intervals(people, alpha=alpha)
    with pytest.raises(pe.UserError, match="no column 'age'"):
        linear.intervals(people.drop(columns="age"))
    with pytest.raises(pe.UserError, match="'age' of the prediction table must hold"):
        linear.intervals(people.assign(age="young"))
    with pytest.raises(pe.UserError, match=r"estimand must be one of \['pns', 'harm'"):
        linear.intervals(people, estimand="ate")
    with pytest.raises(pe.NotFittedError, match=r"call fit\(\.\.\.\) first"):
        pe.PnsEstimator().intervals(people)
    with pytest.raises(pe.UserError, match="method must be one of"):
        pe.PnsEstimator("forest").fit(people, people, treatment="x", outcome="y")
    with pytest.raises(pe.UserError, match="mask must be 40 booleans"):
        linear.average(people, mask=[True])
    with pytest.raises(pe.UserError, match="not all 0"):
        linear.average(people, mask=np.zeros(40, bool))
    with pytest.raises(pe.UserError, match=r"too few.*num_draws"):
        linear.intervals(people, alpha=0.001)
    for bad in (np.ones(40), np.ones((2, 3)), np.zeros((1, 40)), -np.ones((1, 40))):
        with pytest.raises(pe.UserError, match="num_groups, 40|not all 0"):
            linear.average_groups(people, bad)
    with pytest.raises(pe.UserError, match="weights must be 40 numbers"):
        linear.average(people, weights=np.ones(6))
    with pytest.raises(pe.UserError, match="target must be"):
        linear.intervals(people, target="point")
    with pytest.raises(pe.UserError, match="must be a DataFrame or a path"):
        linear.intervals(None)


def test_tables_that_contradict_each_other_are_found():
    observational, experimental = draw_table(4000, False, 3), draw_table(3000, True, 4)
    observational["y"] = 1  # everybody who chose had the outcome
    experimental["y"] = (experimental.index % 10 == 0).astype(int)
    with pytest.warns(pe.TableWarning, match="contradict each other"):
        found = fit(observational, experimental).compatibility()
    assert found.p_value < 0.001 and found.slack < 0
    fine = fit(draw_table(4000, False, 3), draw_table(3000, True, 4)).compatibility()
    assert fine.p_value > 0.05 and fine.strata > 1


def draw_boundary(rng, size, randomized, shift):
    """Nobody who would not choose the treatment would gain by it: p11 = mu1 for all."""
    z = rng.normal(size=(size, 5)) + shift
    treated = 1 / (1 + np.exp(-0.2 * z.sum(axis=1)))
    gains = 1 / (1 + np.exp(-0.8 * z.sum(axis=1)))
    chooses = rng.random(size) < treated
    x = np.where(randomized, rng.random(size) < 0.5, chooses)
    y = np.where(x, chooses & (rng.random(size) < gains), rng.random(size) < 0.5)
    return pd.DataFrame(z, columns=list("abcde")).assign(x=x * 1, y=y * 1)


@pytest.mark.parametrize("how", ["shifted", "sampled"])
def test_compatible_tables_are_not_refused_for_their_covariates_or_weights(how):
    """At 5%, three or more of eight are refused once in 170 times.

    Without the overlap weights the shifted tables are refused 8 of 8 times, and so are
    the others if their weights count as people.
    """
    refused = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        shift = 0.5 * (how == "shifted")
        tables = [
            draw_boundary(rng, 8000, randomized, shift * (not randomized))
            for randomized in (False, True)
        ]
        options = {}
        if how == "sampled":
            tables = [t.assign(w=20 * rng.gamma(2, 0.5, len(t))) for t in tables]
            options = {"weights": "w", "weights_are": "sampling"}
        refused += fit(*tables, **options).compatibility().p_value <= 0.05
    assert refused < 3


def test_too_few_people_are_told_by_the_network(tables):
    observational, experimental = tables
    with (
        pytest.warns(pe.TableWarning, match="has only"),
        pytest.raises(pe.UserError, match="too few people"),
    ):
        fit(
            observational.iloc[:5],
            experimental.iloc[:4],
            method="epinet",
            recipe=small_recipe(),
        )


@pytest.mark.slow
def test_the_front_door_covers_the_truth():
    """A model of the Li family that nothing was tuned on; 500 people, fewer learners."""
    model = pns_dgp.random_li_model(991)
    frames = []
    for number, source, n in (
        (0, "observational", 20_000),
        (1, "experimental", 10_000),
    ):
        sample = model.sample(jax.random.key(number), n, source)
        frame = pd.DataFrame(np.asarray(sample.z).astype(int)).add_prefix("z")
        frames.append(frame.assign(x=np.asarray(sample.x), y=np.asarray(sample.y)))
    learners = tuple(pm.LEARNERS[name] for name in ("ridge", "trees"))
    recipe = pe.CrossFitRecipe(learners, members_per_fold=2)
    estimator = pe.PnsEstimator(recipe=recipe, progress=False, num_draws=1000)
    estimator.fit(*frames, treatment="x", outcome="y")
    population = model.sample_population(jax.random.key(2), 500)
    truth = model.oracle(population.z)
    rows = pd.DataFrame(np.asarray(population.z).astype(int)).add_prefix("z")
    scores = pi.score_intervals(estimator.intervals(rows), truth.pns, truth.interval)
    assert scores.point_coverage > 0.9
    assert scores.set_coverage > 0.85
    assert scores.width < 0.9
