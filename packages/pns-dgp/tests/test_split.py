"""The confounded split: what it must preserve, and what it must change."""

import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_dgp
import pytest
from pns_dgp import _split
from pns_dgp._split import compare_kept_with_dropped
from scipy import stats


def make_trial(n: int = 60_000, treated: float = 0.3) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    c = rng.integers(0, 4, n)
    z = rng.normal(size=n) + 0.5 * c
    x = (rng.random(n) < treated).astype(int)
    p = 0.2 + 0.15 * c + 0.1 * x * (c > 1)
    return pd.DataFrame(
        {
            "x": x,
            "y": (rng.random(n) < p).astype(int),
            "c": c,
            "z": z,
            "kind": np.where(z > 0, "high", "low"),
        }
    )


def steep(hidden: pd.DataFrame) -> np.ndarray:
    return 0.1 + 0.2 * hidden["c"].to_numpy()


@pytest.fixture(scope="module")
def trial() -> pd.DataFrame:
    return make_trial()


@pytest.fixture(scope="module")
def split(trial) -> _split.ConfoundedSplit:
    return pns_dgp.confounded_split(trial, "x", "y", "c", steep, seed=1)


def test_the_law_of_hidden_and_observed_covariates_is_preserved(trial, split):
    kept = trial.loc[split.observational.index]
    rest = trial.drop(index=split.experimental.index)
    assert split.is_preserved
    dropped = rest.drop(index=kept.index)
    counts = [g.groupby(["c", "kind"]).size().to_numpy() for g in (kept, dropped)]
    assert stats.chi2_contingency(np.array(counts)).pvalue > 0.001
    assert stats.ks_2samp(kept["z"], dropped["z"]).pvalue > 0.001


def test_treatment_follows_the_propensity(trial, split):
    kept = trial.loc[split.observational.index]
    for c, group in kept.groupby("c"):
        p = 0.1 + 0.2 * c
        error = np.sqrt(p * (1 - p) / len(group))
        assert abs(group["x"].mean() - p) < 4 * error
    experiment = trial.loc[split.experimental.index]
    assert abs(experiment["x"].mean() - 0.3) < 4 * np.sqrt(0.21 / len(experiment))


def test_the_outcome_law_is_shared(trial, split):
    kept = trial.loc[split.observational.index]
    for (x, c), group in kept.groupby(["x", "c"]):
        p = 0.2 + 0.15 * c + 0.1 * x * (c > 1)
        assert abs(group["y"].mean() - p) < 4.5 * np.sqrt(p * (1 - p) / len(group))


def test_as_many_units_are_kept_as_the_propensity_allows(trial, split):
    # a = 1 / max(0.7 / 0.3, 0.9 / 0.7), up to the trial's own fraction of treated.
    treated = trial["x"].mean()
    expected = 1 / max(0.7 / treated, 0.9 / (1 - treated))
    assert abs(split.strength["kept_share"] - expected) < 4 * np.sqrt(0.25 / 30_000)


def test_the_report_states_the_confounding(split):
    s = split.strength
    # By the law above: E[Y | X=1] - E[Y | X=0] under P(c | X), less the mean effect.
    c = np.arange(4)
    p = 0.1 + 0.2 * c
    treated, control = p / p.sum(), (1 - p) / (1 - p).sum()
    naive = treated @ (0.2 + 0.15 * c + 0.1 * (c > 1)) - control @ (0.2 + 0.15 * c)
    assert abs(s["bias"] - (naive - 0.05)) < 4 * s["bias_standard_error"]
    assert s["bias"] > 10 * s["bias_standard_error"]
    assert "is preserved" in split.summary()
    assert s["experimental_effect"] == pytest.approx(0.05, abs=0.03)
    assert s["observational_difference"] > 0.15
    assert f"{s['bias']:+.4f}" in split.summary()


def test_hidden_columns_are_in_neither_table(split):
    for table in (split.observational, split.experimental):
        assert list(table.columns) == ["x", "y", "z", "kind"]
    units = set(split.observational.index) | set(split.experimental.index)
    assert set(split.hidden.index) == units
    assert not set(split.observational.index) & set(split.experimental.index)


def test_a_trial_that_was_not_randomized_is_noticed_in_the_joint_law():
    """Margins alone would not tell: c and z stay fair bits, their joint law does not."""
    rng = np.random.default_rng(0)
    c, z = rng.integers(0, 2, (2, 20_000))
    x = (rng.random(20_000) < 0.5 + 0.4 * (-1.0) ** z).astype(int)
    trial = pd.DataFrame({"x": x, "y": c, "c": c, "z": z})
    split = pns_dgp.confounded_split(
        trial, "x", "y", "c", lambda h: 0.2 + 0.6 * h["c"], seed=0
    )
    assert split.balance["z"][["c", "z"]].abs().max() < 4
    assert not split.is_preserved
    assert "is NOT preserved" in split.summary()


def test_the_difference_in_means_and_its_variance_by_hand():
    table = pd.DataFrame({"x": [1, 1, 0, 0, 0], "y": [1, 0, 1, 0, 0]})
    x, y = table["x"].to_numpy(), table["y"].to_numpy(float)
    effect, variance = _split.difference_in_means(y, x, np.arange(5))
    np.testing.assert_allclose(effect, 1 / 2 - 1 / 3)
    np.testing.assert_allclose(variance, 2 / 16 + (4 / 9 + 1 / 9 + 1 / 9) / 9)
    clustered = _split.difference_in_means(y, x, np.array([0, 0, 1, 1, 2]))[1]
    np.testing.assert_allclose(clustered, 0 + ((2 / 3 - 1 / 3) ** 2 + 1 / 9) / 9)


@pytest.mark.slow
def test_over_many_splits_z_is_standard_and_the_error_is_right():
    """150 splits, units in pairs: deviations within 4 / sqrt(2 * 150) of one."""
    trial = make_trial(4000)
    pairs = pd.concat([trial, trial], ignore_index=True)
    pairs["home"] = np.tile(np.arange(4000), 2)
    splits = [
        pns_dgp.confounded_split(pairs, "x", "y", "c", steep, seed=s, cluster="home")
        for s in range(150)
    ]
    z = np.array([split.balance["z"][["c", "z", "propensity"]] for split in splits])
    np.testing.assert_allclose(z.std(0), 1, atol=4 / np.sqrt(300))
    bias = np.array([split.strength["bias"] for split in splits])
    error = np.mean([split.strength["bias_standard_error"] for split in splits])
    # The trial is fixed and split, so the observed deviation is at most the stated one.
    assert 0.6 * error < bias.std() < 1.25 * error
    p = np.array([split.strength["balance_p_value"] for split in splits])
    assert np.mean(p < 0.05) < 0.05 + 4 * np.sqrt(0.05 / 150)
    assert p.min() < 0.5  # it is no constant


def test_the_arm_that_binds_decides_how_many_are_kept(trial):
    treated = trial["x"].mean()
    split = pns_dgp.confounded_split(
        trial,
        "x",
        "y",
        "c",
        lambda h: 0.05 + 0.05 * h["c"],  # controls bind: 0.95 / 0.7 > 0.2 / 0.3
        seed=3,
        experimental_share=0.2,
    )
    expected = (1 - treated) / 0.95
    assert abs(split.strength["kept_share"] - expected) < 4 * np.sqrt(0.2 / 48_000)
    assert abs(len(split.experimental) / len(trial) - 0.2) < 4 * np.sqrt(0.16 / 60_000)
    kept = trial.loc[split.observational.index]
    assert abs(kept.loc[kept["c"] == 3, "x"].mean() - 0.2) < 0.02
    assert split.strength["greatest_propensity"] == pytest.approx(0.2)


def test_booleans_are_treatments_and_any_order_of_rows_will_do(trial):
    first = pns_dgp.confounded_split(trial, "x", "y", "c", steep, seed=1)
    booleans = trial.astype({"x": bool, "y": "boolean"})
    again = pns_dgp.confounded_split(booleans, "x", "y", "c", steep, seed=1)
    assert first.strength == again.strength
    shuffled = trial.sample(frac=1, random_state=0)
    split = pns_dgp.confounded_split(shuffled, "x", "y", "c", steep, seed=1)
    tables = split.observational.index.union(split.experimental.index)
    assert split.hidden.index.equals(shuffled.index[shuffled.index.isin(tables)])
    assert list(split.hidden.columns) == ["c"]


def test_a_seed_names_the_split_and_clusters_stay_together(trial):
    again = pns_dgp.confounded_split(trial, "x", "y", "c", steep, seed=1)
    other = pns_dgp.confounded_split(trial, "x", "y", "c", steep, seed=2)
    first = pns_dgp.confounded_split(trial, "x", "y", "c", steep, seed=1)
    pd.testing.assert_frame_equal(first.observational, again.observational)
    assert len(other.observational.index.difference(again.observational.index)) > 1000
    grouped = trial.assign(home=np.arange(len(trial)) // 3)
    split = pns_dgp.confounded_split(
        grouped, "x", "y", ["c"], steep, seed=1, cluster="home"
    )
    homes = [
        set(grouped.loc[table.index, "home"])
        for table in (split.observational, split.experimental)
    ]
    assert not homes[0] & homes[1]
    assert "home" not in split.observational


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"treatment": "t"}, r"no column \['t'\]"),
        ({"outcome": "z"}, "must hold 0 and 1 in column z"),
        ({"hidden": []}, "at least one column"),
        ({"hidden": ["c", "y"]}, "a column for each role"),
        ({"cluster": "c"}, "a column for each role"),
        ({"outcome": "x"}, "a column for each role"),
        ({"outcome": "kind"}, "must hold 0 and 1 in column kind, got"),
        ({"propensity": lambda c: np.ones(len(c))}, r"inside \(0, 1\)"),
        ({"propensity": lambda c: np.array([0.5])}, "must return"),
        ({"experimental_share": 1.0}, "experimental_share"),
    ],
)
def test_wrong_arguments_raise(trial, change, message):
    arguments = {
        "treatment": "x",
        "outcome": "y",
        "hidden": "c",
        "propensity": steep,
        "seed": 0,
    }
    with pytest.raises(pb.InputError, match=message):
        pns_dgp.confounded_split(trial, **{**arguments, **change})


def test_a_trial_without_arms_or_with_gaps_is_refused(trial):
    for broken, message in (
        (trial.assign(x=1), "must have both arms"),
        (
            trial.assign(z=trial["z"].where(trial["z"] > -2)),
            r"missing or infinite values; columns \['z'\]",
        ),
        (trial.assign(z=np.inf), r"missing or infinite values; columns \['z'\]"),
        (pd.concat([trial, trial]), "unique column names and a unique index"),
        (
            trial.set_axis(["x", "y", "c", "z", "z"], axis=1),
            "unique column names and a unique index",
        ),
    ):
        with pytest.raises(pb.InputError, match=message):
            pns_dgp.confounded_split(broken, "x", "y", "c", steep, seed=0)


def test_the_turnout_experiment(public_data):
    """Gerber, Green and Larimer 2006: neighbors' pressure, past votes hidden."""
    frame = pd.read_csv(public_data / "gotv" / "gotv_shaming.csv.gz")
    frame = frame[frame["treatment"].isin(["Neighbors", "No Postcard"])]
    frame = frame.assign(treatment=(frame["treatment"] == "Neighbors").astype(int))
    votes = ["primary_02", "primary_04", "general_02"]
    split = pns_dgp.confounded_split(
        frame,
        "treatment",
        "primary_06",
        votes,
        lambda c: 1 / (1 + np.exp(1.6 - 1.0 * c.sum(axis=1).to_numpy())),
        seed=0,
        cluster="cluster",
    )
    print(split.summary())
    assert split.strength["bias"] > 5 * split.strength["bias_standard_error"]
    assert split.is_preserved


def test_the_email_experiment(public_data):
    """Hillstrom: men's e-mail against none, recency hidden."""
    frame = pd.read_csv(public_data / "hillstrom" / "hillstrom.csv.gz")
    frame = frame[frame["segment"].isin(["Mens E-Mail", "No E-Mail"])]
    frame["segment"] = (frame["segment"] == "Mens E-Mail").astype(int)
    frame = frame.drop(columns=["conversion", "spend"])  # outcomes, too
    split = pns_dgp.confounded_split(
        frame,
        "segment",
        "visit",
        "recency",
        lambda c: 0.9 - 0.065 * c["recency"].to_numpy(),
        seed=0,
    )
    print(split.summary())
    assert split.is_preserved
    assert split.strength["bias"] > 3 * split.strength["bias_standard_error"]


def test_a_selection_that_depends_on_a_covariate_is_noticed():
    rng = np.random.default_rng(0)
    c = rng.integers(0, 4, 60_000)
    z = rng.normal(size=len(c)) + 0.5 * c
    covariates = pd.DataFrame({"c": c, "z": z, "kind": np.where(z > 0, "high", "low")})
    propensity, alone = 0.1 + 0.2 * c, np.arange(len(c))
    fair = rng.random(len(c)) < 0.4
    unfair = rng.random(len(c)) < 0.3 + 0.05 * c
    sound = compare_kept_with_dropped(covariates, fair, propensity, alone)["z"]
    assert sound.abs().max() < 4
    broken = compare_kept_with_dropped(covariates, unfair, propensity, alone)["z"]
    assert broken["c"] > 10 and broken["kind=high"] > 5


def test_a_comparison_by_hand():
    covariates = pd.DataFrame({"v": [1.0, 2, 3, 4, 8]})
    kept = np.array([True, True, False, False, False])
    balance = compare_kept_with_dropped(covariates, kept, np.full(5, 0.5), np.arange(5))
    assert list(balance.index) == ["v", "propensity", "v x propensity"]
    before, after, z = balance.loc["v"]
    assert (before, after) == (3.6, 1.5)
    # Kept: mean 1.5, residuals 0.5; dropped: mean 5, residuals -2, -1, 3.
    error = np.sqrt(2 * (0.5 / 2) ** 2 + (4 + 1 + 9) / 9)
    np.testing.assert_allclose(z, (1.5 - 5) / error)


def test_rare_levels_are_compared_together():
    levels = np.array(["a"] * 300 + ["b"] * 200 + ["c"] * 10)
    kept = np.arange(510) % 2 == 0
    balance = compare_kept_with_dropped(
        pd.DataFrame({"k": levels}), kept, np.full(510, 0.5), np.arange(510)
    )
    assert list(balance.index[:3]) == ["k=a", "k=b", "k=other"]
    np.testing.assert_allclose(balance.loc["k=other", "before"], 10 / 510)
