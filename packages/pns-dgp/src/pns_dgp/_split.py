"""A confounded observational table out of a randomized trial.

A random part of the trial stays an experiment. From the rest, units are dropped in such a
way that treatment depends on a column C that is then hidden: a treated unit is kept with
probability a f(C) / pi, a control with a (1 - f(C)) / (1 - pi), where pi is the trial's
fraction of treated and a is the largest number that keeps both at most one. Then every
unit is kept with probability a, whatever C and Z, so P(C, Z) is unchanged; P(X=1 | C) =
f(C); and the outcome law is that of the trial.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped
from scipy import stats

from pns_dgp._model import as_numbers, require

Propensity = Callable[[pd.DataFrame], Float[np.ndarray, " n"]]


@dataclasses.dataclass(frozen=True, eq=False)
class ConfoundedSplit:
    """Two tables from one trial, and what was done.

    The balance has a row per column (per common level of a category) of C and Z, for
    f(C), and for the product of each with f(C): the mean before and after the selection
    and the z-statistic, robust to clusters, of kept against dropped units.
    """

    observational: pd.DataFrame  # units whose treatment depends on the hidden columns
    experimental: pd.DataFrame  # units as randomized
    hidden: pd.DataFrame  # the hidden columns of all kept units, by the trial's index
    balance: pd.DataFrame
    strength: dict[str, float]  # how much confounding was achieved; see `summary`

    @property
    def is_preserved(self) -> bool:
        """Whether the balance check accepts an unchanged P(C, Z), at level 0.001."""
        return self.strength["balance_p_value"] > 0.001

    def summary(self) -> str:
        """Says in a few lines what was done and achieved."""
        s = self.strength
        verdict = "is" if self.is_preserved else "is NOT"
        return (
            f"{len(self.experimental)} units in the experiment, "
            f"{len(self.observational)} observational "
            f"({s['kept_share']:.1%} of the rest kept).\n"
            f"P(X=1 | hidden) from {s['least_propensity']:.3f} to "
            f"{s['greatest_propensity']:.3f}.\n"
            f"Effect in the experiment {s['experimental_effect']:+.4f}; difference in "
            f"the observational table {s['observational_difference']:+.4f}; "
            f"confounding bias {s['bias']:+.4f} (standard error "
            f"{s['bias_standard_error']:.4f}).\n"
            f"P(hidden, covariates) {verdict} preserved: family-wise p-value of "
            f"{len(self.balance)} comparisons {s['balance_p_value']:.3f}."
        )


class _Selection(NamedTuple):
    """Which units of a trial go where."""

    clusters: Int[np.ndarray, " n"]  # number of each unit's cluster
    by_source: dict[str, Bool[np.ndarray, " n"]]  # the units of each table
    kept: Bool[np.ndarray, " m"]  # of those outside the experiment, which stay
    propensity: Float[np.ndarray, " m"]  # f(C) of those outside the experiment


def confounded_split(
    trial: pd.DataFrame,
    treatment: str,
    outcome: str,
    hidden: str | Sequence[str],
    propensity: Propensity,
    seed: int,
    experimental_share: float = 0.5,
    cluster: str | None = None,
) -> ConfoundedSplit:
    """Splits a randomized trial into an experimental and a confounded table.

    All units of the trial must have had the same chance of treatment; a trial with
    different chances in different strata is split stratum by stratum. It has a row per
    unit, and 0 and 1 in the columns `treatment` and `outcome`. The columns `hidden`, C,
    drive treatment by `propensity`, which maps them to probabilities f(C) in (0, 1), and
    are then taken out of both tables. So is `cluster`, a column whose groups
    (households, for example) stay in one table. Tables keep the trial's order and index.

    Example:
      >>> x, sick, y = np.random.default_rng(0).integers(0, 2, (3, 20_000))
      >>> trial = pd.DataFrame({"x": x, "y": y & sick, "sick": sick})
      >>> split = confounded_split(
      ...     trial, "x", "y", "sick", lambda hidden: 0.2 + 0.6 * hidden["sick"], seed=0
      ... )
      >>> round(split.strength["bias"], 1)  # 0.8 / 2 - 0.2 / 2; the effect is 0
      0.3
    """
    hidden = [hidden] if isinstance(hidden, str) else list(hidden)
    removed = [*hidden, cluster] if cluster else hidden
    require(hidden, "hidden", "must name at least one column.")
    _check_trial(trial, treatment, outcome, removed)
    problem = f"must lie inside (0, 1), got {experimental_share}."
    require(0 < experimental_share < 1, "experimental_share", problem)
    trial = trial.astype({treatment: int, outcome: int})
    selection = _select(
        trial[treatment].to_numpy(),
        trial[hidden],
        np.arange(len(trial)) if cluster is None else trial[cluster],
        propensity,
        np.random.default_rng(seed),
        experimental_share,
    )
    tables, differences = {}, {}
    for source, chosen in selection.by_source.items():
        table = trial[chosen].drop(columns=removed)
        require(
            table[treatment].nunique() == 2,
            "trial",
            f"leaves {len(table)} units and not both arms for the {source} table; give "
            "a larger trial or a milder propensity.",
        )
        tables[source] = table
        differences[source] = difference_in_means(
            table[outcome].to_numpy(np.float64),
            table[treatment].to_numpy(),
            selection.clusters[chosen],
        )
    rest = ~selection.by_source["experimental"]
    balance = compare_kept_with_dropped(
        trial[rest].drop(columns=[treatment, outcome, *removed[len(hidden) :]]),
        selection.kept,
        selection.propensity,
        selection.clusters[rest],
    )
    in_either = np.logical_or(*selection.by_source.values())
    return ConfoundedSplit(
        **tables,
        hidden=trial.loc[in_either, hidden],
        balance=balance,
        strength=_measure_strength(differences, selection, balance),
    )


def _select(
    treated: Int[np.ndarray, " n"],
    hidden: pd.DataFrame,
    clusters: pd.Series | np.ndarray,
    propensity: Propensity,
    rng: np.random.Generator,
    experimental_share: float,
) -> _Selection:
    """Draws the experiment, then which of the other units stay."""
    clusters = np.unique(clusters, return_inverse=True)[1]
    in_experiment = (rng.random(clusters.max() + 1) < experimental_share)[clusters]
    rest = ~in_experiment
    wanted = _checked_propensity(propensity(hidden[rest]), rest.sum())
    assigned = float(treated.mean())
    raised, lowered = wanted / assigned, (1 - wanted) / (1 - assigned)
    ratio = np.where(treated[rest] == 1, raised, lowered)
    greatest = max(raised.max(), lowered.max())
    kept = rng.random(rest.sum()) < ratio / greatest
    in_log = rest.copy()
    in_log[rest] = kept
    by_source = {"observational": in_log, "experimental": in_experiment}
    return _Selection(clusters, by_source, kept, wanted)


def _measure_strength(
    differences: dict[str, tuple[float, float]],
    selection: _Selection,
    balance: pd.DataFrame,
) -> dict[str, float]:
    """Computes the entries of `ConfoundedSplit.strength`."""
    observed, observed_variance = differences["observational"]
    effect, effect_variance = differences["experimental"]
    p_value = 2 * stats.norm.sf(balance["z"].abs().max()) * len(balance)  # Bonferroni
    return {
        "kept_share": float(selection.kept.mean()),
        "least_propensity": float(selection.propensity.min()),
        "greatest_propensity": float(selection.propensity.max()),
        "experimental_effect": effect,
        "observational_difference": observed,
        "bias": observed - effect,
        "bias_standard_error": float(np.sqrt(observed_variance + effect_variance)),
        "balance_p_value": min(1.0, float(p_value)),
    }


def _check_trial(
    trial: pd.DataFrame, treatment: str, outcome: str, removed: list[str]
) -> None:
    names = [treatment, outcome, *removed]
    is_apart = len(set(names)) == len(names)
    require(is_apart, "trial", f"needs a column for each role, got {names}.")
    is_unique = trial.columns.is_unique and trial.index.is_unique
    require(is_unique, "trial", "must have unique column names and a unique index.")
    missing = [name for name in names if name not in trial.columns]
    problem = f"has no column {missing}; it has {list(trial.columns)}."
    require(not missing, "trial", problem)
    gaps = [name for name in trial.columns if _is_incomplete(trial[name])]
    require(
        not gaps,
        "trial",
        f"must not have missing or infinite values; columns {gaps} do: fill or drop them.",
    )
    for name in (treatment, outcome):
        found = trial[name].unique()
        require(
            set(found) <= {0, 1},
            "trial",
            f"must hold 0 and 1 in column {name}, got {sorted(map(str, found))[:5]}.",
        )
    has_arms = trial[treatment].nunique() == 2
    require(has_arms, "trial", f"must have both arms, 0 and 1, in column {treatment}.")


def _is_incomplete(column: pd.Series) -> bool:
    is_float = pd.api.types.is_float_dtype(column)
    return bool(column.isna().any() or (is_float and np.isinf(column).any()))


def _checked_propensity(values: Any, n: int) -> Float[np.ndarray, " n"]:
    values = as_numbers("propensity", values)
    require(
        values.shape == (n,) and np.all((values > 0) & (values < 1)),
        "propensity",
        f"must return {n} probabilities inside (0, 1), got shape {list(values.shape)} "
        f"from {values.min()} to {values.max()}.",
    )
    return values


def compare_kept_with_dropped(
    covariates: pd.DataFrame,
    kept: Bool[np.ndarray, " n"],
    propensity: Float[np.ndarray, " n"],
    clusters: Int[np.ndarray, " n"],
) -> pd.DataFrame:
    """Compares kept with dropped units: each column, f(C), and their products."""
    columns = _numeric_columns(covariates, least_count=10 / max(kept.mean(), 1e-3))
    centered = propensity - propensity.mean()
    products = {f"{name} x propensity": v * centered for name, v in columns.items()}
    rows = {}
    for name, values in {**columns, "propensity": propensity, **products}.items():
        difference, variance = difference_in_means(values, kept, clusters)
        error = np.sqrt(variance)
        is_rounding = error <= 1e-12 * abs(values[~kept].mean())
        z = 0.0 if is_rounding else difference / error
        rows[name] = (values.mean(), values[kept].mean(), z)
    names = ["before", "after", "z"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=names)


def difference_in_means(
    values: Float[np.ndarray, " n"],
    chosen: Shaped[np.ndarray, " n"],
    clusters: Int[np.ndarray, " n"],
) -> tuple[float, float]:
    """Computes the mean of chosen less that of other units, and its robust variance."""
    chosen = chosen.astype(bool)
    means = [values[chosen].mean(), values[~chosen].mean()]
    sizes = (chosen.sum(), (~chosen).sum())
    gaps = ((values - means[0]) / sizes[0], (means[1] - values) / sizes[1])
    influence = np.where(chosen, *gaps)
    variance = np.sum(np.bincount(clusters, influence) ** 2)
    return float(means[0] - means[1]), float(variance)


def _numeric_columns(
    covariates: pd.DataFrame, least_count: float
) -> dict[str, np.ndarray]:
    """Lists columns of numbers, and an indicator per common level of a category."""
    columns = {}
    for name in covariates.columns:
        if pd.api.types.is_numeric_dtype(covariates[name]):
            columns[str(name)] = covariates[name].to_numpy(np.float64)
            continue
        levels = covariates[name].astype(str)
        counts = levels.value_counts()
        # Rare levels are pooled: alone, a single unit would decide the comparison.
        common = counts.index[counts >= max(50, least_count)][:50]
        for level in sorted(common):
            columns[f"{name}={level}"] = (levels == level).to_numpy(np.float64)
        columns[f"{name}=other"] = (~levels.isin(common)).to_numpy(np.float64)
    return columns
