"""Margins and copulas against closed forms, and against the challenge's own rows."""

import functools
import importlib.resources
import itertools
import json

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_dgp
import pytest
from pns_dgp import _covariates, _normal_scores
from pns_dgp._covariates import RowCovariates
from scipy import special, stats

TABLE = json.loads(
    (importlib.resources.files("pns_dgp") / "data/acic2019_covariates.json").read_text()
)
COLUMNS = {c["name"]: c for block in TABLE["blocks"] for c in block["columns"]}
BLOCKS = {block["name"]: block for block in TABLE["blocks"]}


def distribution(family: str, p: dict):
    """Returns F of a column from its textbook definition."""
    if family.startswith("truncated"):
        parent = {
            "truncated_normal": lambda: stats.norm(p["mean"], p["sd"]),
            "truncated_t": lambda: stats.t(p["df"]),
            "truncated_noncentral_t": lambda: stats.nct(p["df"], p["noncentrality"]),
        }[family]()
        low = -np.inf if p["low"] is None else p["low"]
        high = np.inf if p["high"] is None else p["high"]
        # scipy has NaN for the noncentral t far below: there is no mass there.
        below, above = np.nan_to_num(parent.cdf(low)), parent.cdf(high)
        return lambda x: (parent.cdf(x) - below) / (above - below)
    if family == "zero_inflated_poisson":
        e = p["extra_zero_prob"]
        return lambda x: e * (x >= 0) + (1 - e) * stats.poisson(p["rate"]).cdf(x)
    if family == "noncentral_t_normal_approx":
        df, nc = p["df"], p["noncentrality"]
        return lambda x: special.ndtr(
            (x * (1 - 1 / (4 * df)) - nc) / np.sqrt(1 + x**2 / (2 * df))
        )
    return {
        "normal": lambda: stats.norm(p["mean"], p["sd"]),
        "lognormal": lambda: stats.lognorm(p["sd_log"], scale=np.exp(p["mean_log"])),
        "uniform": lambda: stats.uniform(p["low"], p["high"] - p["low"]),
        "gamma": lambda: stats.gamma(p["shape"], scale=1 / p["rate"]),
        "beta": lambda: stats.beta(p["a"], p["b"]),
        "t": lambda: stats.t(p["df"]),
        "noncentral_t": lambda: stats.nct(p["df"], p["noncentrality"]),
        "inverse_chi_square": lambda: stats.invgamma(p["df"] / 2, scale=0.5),
        "scaled_inverse_chi_square": lambda: stats.invgamma(
            p["df"] / 2, scale=p["df"] * p["scale"] / 2
        ),
        "bernoulli": lambda: stats.bernoulli(p["prob_one"]),
        "poisson": lambda: stats.poisson(p["rate"]),
        "negative_binomial": lambda: stats.nbinom(p["successes"], p["success_prob"]),
        "discrete_uniform": lambda: stats.randint(p["low"], p["high"] + 1),
    }[family]().cdf


@pytest.mark.parametrize("name", COLUMNS)
def test_a_margin_inverts_its_distribution_function(name):
    parameters = dict(COLUMNS[name])
    for other in ("name", "flip"):
        parameters.pop(other)
    family = parameters.pop("family")
    margin = _normal_scores.make_margin(family, parameters)
    cdf = distribution(family, parameters)
    scores = np.linspace(-4.5, 4.5, 997)  # off the grid of the table
    probability = special.ndtr(scores)
    values = margin(scores)
    if margin.discrete:
        # The smallest x with F(x) >= u.
        assert np.all(cdf(values) >= probability - 1e-12)
        assert np.all(cdf(values - 1) < probability + 1e-12)
    else:
        # To a thousandth of the tail probability, on either side.
        np.testing.assert_allclose(
            cdf(values) / probability, 1, atol=1e-3, err_msg="lower"
        )
        np.testing.assert_allclose(
            (1 - cdf(values)) / special.ndtr(-scores), 1, atol=1e-3, err_msg="upper"
        )


def diagonal(copula: dict, u: float) -> float:
    """Computes C(u, u) from the textbook formula of the family."""
    family, theta = copula["family"], copula["parameter"]
    if family == "gaussian":
        cov = [[1, theta], [theta, 1]]
        return stats.multivariate_normal(cov=cov).cdf([stats.norm.ppf(u)] * 2)
    if family == "student":
        law = stats.multivariate_t(shape=[[1, theta], [theta, 1]], df=copula["df"])
        return law.cdf([stats.t.ppf(u, copula["df"])] * 2, random_state=0)
    return {
        "clayton": lambda: (2 * u**-theta - 1) ** (-1 / theta),
        "gumbel": lambda: np.exp(-((2 * (-np.log(u)) ** theta) ** (1 / theta))),
        "frank": lambda: (
            -np.log1p(np.expm1(-theta * u) ** 2 / np.expm1(-theta)) / theta
        ),
        "joe": lambda: (
            1 - (2 * (1 - u) ** theta - (1 - u) ** (2 * theta)) ** (1 / theta)
        ),
    }[family]()


@pytest.mark.parametrize("name", [name for name in BLOCKS if name != "I"])
def test_a_copula_has_its_diagonal_its_tau_and_uniform_margins(name):
    copula = BLOCKS[name]["copula"]
    n = 100_000
    rng = np.random.default_rng(abs(hash_of(name)))
    u = special.ndtr(_normal_scores.draw_scores(rng, n, 3, copula))
    assert np.all(np.isfinite(u))
    for level in (0.05, 0.5, 0.95):
        for first, second in ((0, 1), (1, 2)):
            c = diagonal(copula, level)
            hits = np.mean((u[:, first] <= level) & (u[:, second] <= level))
            # 4.5 standard errors, and 1e-3 for the integration of the student cdf.
            slop = 1e-3 if copula["family"] == "student" else 0
            assert abs(hits - c) < 4.5 * np.sqrt(c * (1 - c) / n) + slop
        p = stats.binomtest(int((u[:, 2] <= level).sum()), n, level).pvalue
        assert p > 1e-5
    tau = stats.kendalltau(u[:20_000, 0], u[:20_000, 1]).statistic
    # The standard error of tau is at most 2 / (3 sqrt(n)) * 1.5 here.
    assert abs(tau - copula["kendall_tau"]) < 4 * 0.0071


def hash_of(name: str) -> int:
    return sum(ord(c) * 31**i for i, c in enumerate(name))


def test_the_law_has_the_structure_of_the_challenge():
    names = _covariates.AcicCovariates().names
    assert len(names) == len(set(names)) == 200
    assert [len(b["columns"]) for b in TABLE["blocks"]] == [10, 8, 6, 4, 2] * 6 + [20]
    families = [c["family"] for c in COLUMNS.values()]
    assert families.count("bernoulli") == 58


def test_flipped_columns_depend_negatively():
    raw = _covariates.AcicCovariates().draw_raw(np.random.default_rng(0), 20_000)
    names = _covariates.AcicCovariates().names
    for block in ("N5", "G5", "J5", "C5"):
        first, second = (c["name"] for c in BLOCKS[block]["columns"])
        sign = -1 if COLUMNS[first]["flip"] != COLUMNS[second]["flip"] else 1
        pair = raw[:, names.index(first)], raw[:, names.index(second)]
        assert sign * stats.spearmanr(*pair).statistic > 0.2


def test_scaled_columns_are_standardized_and_bounded():
    law = _covariates.AcicCovariates()
    z = law.draw(np.random.default_rng(1), 50_000)
    # Four standard errors of a mean; kurtosis of winsorized columns stays below 60.
    assert np.abs(z.mean(0)).max() < 4.5 / np.sqrt(50_000)
    np.testing.assert_allclose(z.std(0), 1, atol=0.08)
    assert np.abs(z).max() < 15


def test_rows_of_a_user_are_drawn_with_replacement():
    rows = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [0.0, 0.0, 0.0]})
    covariates = RowCovariates(rows)
    assert covariates.names == ("a", "b")
    z = covariates.draw(np.random.default_rng(0), 3000)
    values, counts = np.unique(z[:, 0], return_counts=True)
    assert len(values) == 3 and counts.min() > 850
    assert np.all(z[:, 1] == 0)  # a constant column stays constant, not NaN
    column = np.arange(1000.0)[:, None]
    scaling = RowCovariates(column).scaling
    low, high = np.quantile(column, [0.005, 0.995])
    assert (scaling.low[0], scaling.high[0]) == (low, high)
    kept = np.clip(column, low, high)
    np.testing.assert_allclose(
        [scaling.mean[0], scaling.deviation[0]], [kept.mean(), kept.std()]
    )
    with pytest.raises(pb.InputError, match="different column names"):
        RowCovariates(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.warns(UserWarning, match=r"\['Z1'\] do not vary between"):
        RowCovariates(np.eye(1000)[:, :1])
    with pytest.raises(pb.InputError, match="row 1, column b"):
        RowCovariates(pd.DataFrame({"a": [1, 2], "b": [1, np.nan]}))
    with pytest.raises(pb.InputError, match=r"shape \[num_rows, num_covariates\]"):
        RowCovariates(np.zeros(3))


def challenge_file(path, num_rows: int = 4) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        rng.normal(size=(num_rows, 200)), columns=[f"V{i}" for i in range(1, 201)]
    )
    frame.insert(0, "Y", 1.0)
    frame.insert(0, "A", 0)
    frame.to_csv(path, index=False)
    return frame


def test_challenge_files_are_read_and_pooled(tmp_path):
    first = challenge_file(tmp_path / "high1.csv")
    loaded = pns_dgp.load_acic_csv(tmp_path / "high1.csv")
    np.testing.assert_allclose(loaded, first.drop(columns=["A", "Y"]), rtol=1e-6)
    challenge_file(tmp_path / "high2.csv", 3)
    pooled = pns_dgp.load_acic_csv([tmp_path / "high1.csv", tmp_path / "high2.csv"])
    assert pooled.shape == (7, 200)
    model = pns_dgp.acic_model(covariates=pooled)
    assert model.sample(jax.random.key(0), 5, "observational").z.shape == (5, 200)


def test_unreadable_challenge_files_raise(tmp_path):
    path = tmp_path / "high1.csv"
    with pytest.raises(pb.InputError, match="high1.csv cannot be read as CSV"):
        pns_dgp.load_acic_csv(path)
    path.write_text("")
    with pytest.raises(pb.InputError, match="high1.csv cannot be read as CSV"):
        pns_dgp.load_acic_csv(path)
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(pb.InputError, match="cannot be read|lacks"):
        pns_dgp.load_acic_csv(path)
    frame = challenge_file(path)
    frame.drop(columns=["V17", "V18"]).to_csv(path, index=False)
    with pytest.raises(pb.InputError, match="lacks 2 columns: .*V17"):
        pns_dgp.load_acic_csv(path)
    frame.head(0).to_csv(path, index=False)
    with pytest.raises(pb.InputError, match="a header and no rows"):
        pns_dgp.load_acic_csv(path)
    frame.assign(V9=1e300).to_csv(path, index=False)
    with pytest.raises(pb.InputError, match="in row 0, column V9"):
        pns_dgp.load_acic_csv(path)
    frame = frame.astype(object)
    frame.loc[2, "V5"] = "much"
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match="1 entries do not, .* row 2, column V5: much"):
        pns_dgp.load_acic_csv(path)
    with pytest.raises(pb.InputError, match="at least one file"):
        pns_dgp.load_acic_csv([])


@functools.cache
def fresh_rows() -> np.ndarray:
    rng = np.random.default_rng(8)
    return _covariates.AcicCovariates().draw_raw(rng, 50_000)


def original_rows(public_data) -> np.ndarray:
    with np.load(public_data / "acic2019" / "acic2019_sample.npz") as archive:
        assert tuple(archive["names"]) == _covariates.AcicCovariates().names
        return archive["Z"]


def test_margins_agree_with_the_original_rows(public_data):
    """Two samples of 50,000: Kolmogorov-Smirnov, or chi-square where there are atoms.

    200 p-values; under equality the smallest is below 2.5e-6 once in 2,000 runs.
    """
    original, fresh = original_rows(public_data), fresh_rows()
    p_values = {}
    for i, (name, column) in enumerate(COLUMNS.items()):
        if column["family"] in _normal_scores._DISCRETE:
            values = np.union1d(original[:, i], fresh[:, i])
            edges = np.append(values, np.inf)
            counts = np.array(
                [np.histogram(rows[:, i], edges)[0] for rows in (original, fresh)]
            )
            rare = counts.sum(0) < 20
            if rare.any():
                pooled = counts[:, rare].sum(1, keepdims=True)
                counts = np.concatenate([counts[:, ~rare], pooled], axis=1)
            p_values[name] = stats.chi2_contingency(counts).pvalue
        else:
            p_values[name] = stats.ks_2samp(original[:, i], fresh[:, i]).pvalue
    worst = min(p_values, key=p_values.__getitem__)
    assert p_values[worst] > 2.5e-6, (worst, p_values[worst])
    assert np.mean(np.array(list(p_values.values())) < 0.1) < 0.2  # not many small ones


@pytest.mark.slow
def test_within_block_taus_agree_with_the_original_rows(public_data):
    """Each of the 570 pairs.

    The variance of tau is 4 / (9 n) under independence and at most 2 (1 - tau^2) / n;
    the limit is five times the root of twice 1 / n, in between.
    """
    original, fresh = original_rows(public_data), fresh_rows()
    n = len(fresh)
    start, worst = 0, 0.0
    for block in TABLE["blocks"][:-1]:
        size = len(block["columns"])
        for i, j in itertools.combinations(range(start, start + size), 2):
            taus = [
                stats.kendalltau(rows[:, i], rows[:, j]).statistic
                for rows in (original, fresh)
            ]
            worst = max(worst, abs(taus[0] - taus[1]) / np.sqrt(2 / n))
        start += size
    assert worst < 5


def test_the_winsorized_scale_agrees_with_the_original_rows(public_data):
    z = _covariates.AcicCovariates().scaling(original_rows(public_data))
    assert np.abs(z.mean(0)).max() < 4.5 / np.sqrt(50_000)
    np.testing.assert_allclose(z.std(0), 1, atol=0.08)
    assert _covariates._PERCENTILES == (0.005, 0.995)


def test_text_is_not_a_number():
    with pytest.raises(pb.InputError, match="rows must be an array of numbers"):
        RowCovariates([["a", "b"]])
    with pytest.raises(pb.InputError, match="z must be an array of numbers"):
        pns_dgp.li_model_1().oracle([["a"] * 15])
