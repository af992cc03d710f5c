"""The confounded split: what it must preserve, and what it must change."""

import numpy as np
import pandas as pd
import pns_dgp
import pytest
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
def split(trial) -> pns_dgp.ConfoundedSplit:
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


def test_as_many_people_are_kept_as_the_propensity_allows(trial, split):
    # a = 1 / max(0.7 / 0.3, 0.9 / 0.7), up to the trial's own share of treated.
    share = trial["x"].mean()
    expected = 1 / max(0.7 / share, 0.9 / (1 - share))
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
    assert f"{s['bias']:+.4f}" in split.summary()


def test_hidden_columns_are_in_neither_table(split):
    for table in (split.observational, split.experimental):
        assert list(table.columns) == ["x", "y", "z", "kind"]
    people = set(split.observational.index) | set(split.experimental.index)
    assert set(split.hidden.index) == people
    assert not set(split.observational.index) & set(split.experimental.index)


def test_the_balance_check_notices_a_broken_selection(trial):
    from pns_dgp import _split

    people = trial.drop(columns=["x", "y"])
    rng = np.random.default_rng(0)
    fair = rng.random(len(trial)) < 0.4
    unfair = rng.random(len(trial)) < 0.3 + 0.05 * trial["c"].to_numpy()
    assert _split._balance(people, fair)["z"].abs().max() < 4
    assert _split._balance(people, unfair)["z"].abs().max() > 10


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
        ({"outcome": "z"}, "column z must hold 0 and 1"),
        ({"hidden": []}, "at least one column"),
        ({"propensity": lambda c: np.ones(len(c))}, r"inside \(0, 1\)"),
        ({"propensity": lambda c: np.array([0.5])}, "must return"),
        ({"experimental_share": 1.0}, "experimental_share"),
    ],
)
def test_mistakes_are_told(trial, change, message):
    arguments = {
        "treatment": "x",
        "outcome": "y",
        "hidden": "c",
        "propensity": steep,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=message):
        pns_dgp.confounded_split(trial, **{**arguments, **change})


def test_a_trial_without_arms_or_with_gaps_is_refused(trial):
    for broken, message in (
        (trial.assign(x=1), "a trial has arms"),
        (trial.assign(z=trial["z"].where(trial["z"] > -2)), r"\['z'\] have missing"),
    ):
        with pytest.raises(ValueError, match=message):
            pns_dgp.confounded_split(broken, "x", "y", "c", steep, seed=0)


def test_the_turnout_experiment(public_data):
    """Gerber, Green and Larimer 2006: neighbours' pressure, past votes hidden."""
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
    assert split.strength["balance_p_value"] > 1e-4


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
