"""An honestly confounded observational table out of a randomised trial.

A random part of the trial stays an experiment. From the rest, people are dropped in such a
way that treatment depends on a column C that is then hidden: a treated person is kept with
probability a f(C) / pi, a control with a (1 - f(C)) / (1 - pi), where pi is the trial's
share of treated and a is the largest number that keeps both at most one. Then everybody
is kept with probability a, whatever C and Z, so P(C, Z) is unchanged; P(X=1 | C) = f(C);
and the outcome law is that of the trial.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy import stats


@dataclasses.dataclass(frozen=True, eq=False)
class ConfoundedSplit:
    """Two tables from one trial, and what was done.

    Attributes:
      observational: people whose treatment depends on the hidden columns.
      experimental: people as randomised.
      hidden: the hidden columns of all kept people, by the trial's index.
      balance: a row per column (per common level of a category) of C and Z, for f(C),
        and for the product of each with f(C): the mean before and after the selection
        and the z-statistic, robust to clusters, of kept against dropped people.
      strength: how much confounding was achieved; see `summary`.
    """

    observational: pd.DataFrame
    experimental: pd.DataFrame
    hidden: pd.DataFrame
    balance: pd.DataFrame
    strength: dict[str, float]

    @property
    def is_preserved(self) -> bool:
        """Whether nothing speaks against an unchanged P(C, Z), at level 0.001."""
        return self.strength["balance_p_value"] > 0.001

    def summary(self) -> str:
        """Says in a few lines what was done and achieved."""
        s = self.strength
        verdict = "is" if self.is_preserved else "is NOT"
        return (
            f"{len(self.experimental)} people in the experiment, "
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


def confounded_split(
    trial: pd.DataFrame,
    treatment: str,
    outcome: str,
    hidden: str | Sequence[str],
    propensity: Callable[[pd.DataFrame], np.ndarray],
    seed: int,
    experimental_share: float = 0.5,
    cluster: str | None = None,
) -> ConfoundedSplit:
    """Splits a randomised trial into an experimental and a confounded table.

    Everybody in the trial must have had the same chance of treatment; a trial with
    different chances in different strata is split stratum by stratum.

    Args:
      trial: one row per person; `treatment` and `outcome` hold 0 and 1.
      treatment: name of the treatment column.
      outcome: name of the outcome column.
      hidden: the columns C, which drive treatment and are then taken out of both tables.
      propensity: f, maps the hidden columns [n, ...] to probabilities in (0, 1).
      seed: names the split.
      experimental_share: the part of the people that stays an experiment.
      cluster: a column whose groups go to one table together (say, a household), taken
        out as well.

    Returns:
      The tables, rows in the trial's order with its index, and the checks.
    """
    columns = [hidden] if isinstance(hidden, str) else list(hidden)
    _check_trial(trial, treatment, outcome, columns, experimental_share, cluster)
    trial = trial.astype({treatment: int, outcome: int})
    rng = np.random.default_rng(seed)
    groups = np.arange(len(trial))
    if cluster is not None:
        groups = np.unique(trial[cluster], return_inverse=True)[1]
    in_experiment = (rng.random(groups.max() + 1) < experimental_share)[groups]
    rest = trial[~in_experiment]
    treated_share = float(trial[treatment].mean())
    wanted = _checked_propensity(propensity(rest[columns]), len(rest))
    treated = rest[treatment].to_numpy() == 1
    ratio = np.where(
        treated, wanted / treated_share, (1 - wanted) / (1 - treated_share)
    )
    greatest = max(
        wanted.max() / treated_share, (1 - wanted.min()) / (1 - treated_share)
    )
    kept = rng.random(len(rest)) < ratio / greatest

    chosen = in_experiment.copy()
    chosen[~in_experiment] = kept
    dropped = [*columns, *([cluster] if cluster else [])]
    observational = rest[kept].drop(columns=dropped)
    experimental = trial[in_experiment].drop(columns=dropped)
    for name, table in (
        ("observational", observational),
        ("experimental", experimental),
    ):
        if table[treatment].nunique() < 2:
            raise ValueError(
                f"the {name} table has {len(table)} people and lacks an arm; give a "
                "larger trial or a milder propensity."
            )
    people = rest.drop(columns=[treatment, outcome] + ([cluster] if cluster else []))
    balance = _balance(people, kept, wanted, groups[~in_experiment])
    effects, variances = zip(
        *(
            _difference(table, treatment, outcome, groups[rows])
            for table, rows in (
                (observational, chosen & ~in_experiment),
                (experimental, in_experiment),
            )
        ),
        strict=True,
    )
    return ConfoundedSplit(
        observational=observational,
        experimental=experimental,
        hidden=trial.loc[chosen, columns],
        balance=balance,
        strength={
            "kept_share": float(kept.mean()),
            "least_propensity": float(wanted.min()),
            "greatest_propensity": float(wanted.max()),
            "experimental_effect": effects[1],
            "observational_difference": effects[0],
            "bias": effects[0] - effects[1],
            "bias_standard_error": float(np.sqrt(sum(variances))),
            "balance_p_value": min(
                1.0, float(2 * stats.norm.sf(balance["z"].abs().max()) * len(balance))
            ),
        },
    )


def _check_trial(trial, treatment, outcome, hidden, experimental_share, cluster):
    if not hidden:
        raise ValueError("hidden must name at least one column.")
    roles = [treatment, outcome, *hidden, *([cluster] if cluster else [])]
    if len(set(roles)) < len(roles):
        raise ValueError(f"each role needs a column of its own, got {roles}.")
    if not (trial.columns.is_unique and trial.index.is_unique):
        raise ValueError("the trial's column names and its index must be unique.")
    missing = [name for name in roles if name not in trial.columns]
    if missing:
        raise ValueError(
            f"the trial has no column {missing}; it has {list(trial.columns)}."
        )
    incomplete = [
        name
        for name in trial.columns
        if trial[name].isna().any()
        or (pd.api.types.is_float_dtype(trial[name]) and np.isinf(trial[name]).any())
    ]
    if incomplete:
        raise ValueError(
            f"columns {incomplete} have missing or infinite values; fill or drop them."
        )
    for name in (treatment, outcome):
        values = set(trial[name].unique())
        if not values <= {0, 1}:
            shown = sorted(map(str, values))[:5]
            raise ValueError(f"column {name} must hold 0 and 1, got {shown}.")
    if trial[treatment].nunique() < 2:
        raise ValueError(
            f"column {treatment} must hold both 0 and 1: a trial has arms."
        )
    if not 0 < experimental_share < 1:
        raise ValueError(
            f"experimental_share must lie inside (0, 1), got {experimental_share}."
        )


def _checked_propensity(values: np.ndarray, n: int) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.shape != (n,) or not np.all((values > 0) & (values < 1)):
        raise ValueError(
            f"propensity must return {n} probabilities inside (0, 1), got shape "
            f"{values.shape} from {values.min()} to {values.max()}."
        )
    return values


def _balance(
    people: pd.DataFrame, kept: np.ndarray, wanted: np.ndarray, groups: np.ndarray
) -> pd.DataFrame:
    """Compares kept with dropped people: each column, f(C), and their products.

    Keeping is a coin of probability a that depends on nothing, so both are samples of
    one law. If the trial's treatment were not random, it would not be; that shows in the
    product of f(C) with the column on which treatment depends.

    Args:
      people: [n] hidden and observed covariates.
      kept: [n] booleans.
      wanted: [n] f(C).
      groups: [n] number of each person's cluster.
    """
    table = {}
    for name in people.columns:
        if pd.api.types.is_numeric_dtype(people[name]):
            table[str(name)] = people[name].to_numpy(np.float64)
            continue
        levels = people[name].astype(str)
        common = levels.value_counts()
        # Rare levels together: one person more or less would decide.
        common = common.index[common >= max(50, 10 / max(kept.mean(), 1e-3))][:50]
        for level in sorted(common):
            table[f"{name}={level}"] = (levels == level).to_numpy(np.float64)
        table[f"{name}=other"] = (~levels.isin(common)).to_numpy(np.float64)
    centred = wanted - wanted.mean()
    products = {f"{name} x propensity": v * centred for name, v in table.items()}
    rows = {}
    for name, values in {**table, "propensity": wanted, **products}.items():
        means = [values[kept].mean(), values[~kept].mean()]
        influence = np.where(
            kept, (values - means[0]) / kept.sum(), (means[1] - values) / (~kept).sum()
        )
        error = np.sqrt(np.sum(np.bincount(groups, influence) ** 2))
        z = (means[0] - means[1]) / error if error > 1e-12 * abs(means[1]) else 0.0
        rows[name] = (values.mean(), means[0], z)
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=["before", "after", "z"]
    )


def _difference(table, treatment, outcome, groups) -> tuple[float, float]:
    """Computes a difference in means and its variance, robust to clusters."""
    x, y = table[treatment].to_numpy(), table[outcome].to_numpy(np.float64)
    means = np.array([y[x == arm].mean() for arm in (0, 1)])
    sizes = np.array([np.sum(x == arm) for arm in (0, 1)])
    influence = np.where(x == 1, 1, -1) * (y - means[x]) / sizes[x]
    variance = np.sum(np.bincount(groups, influence) ** 2)
    return float(means[1] - means[0]), float(variance)
