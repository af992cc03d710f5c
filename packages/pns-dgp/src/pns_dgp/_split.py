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
      balance: a row per column (per level of a category) of C and Z: its mean before
        and after the selection and the z-statistic of their difference.
      strength: how much confounding was achieved; see `summary`.
    """

    observational: pd.DataFrame
    experimental: pd.DataFrame
    hidden: pd.DataFrame
    balance: pd.DataFrame
    strength: dict[str, float]

    @property
    def is_preserved(self) -> bool:
        """Whether P(C, Z) is unchanged, at family-wise level 0.001."""
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
            f"P(hidden, covariates) {verdict} preserved: smallest family-wise p-value "
            f"over {len(self.balance)} columns {s['balance_p_value']:.3f}."
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
    rng = np.random.default_rng(seed)
    if cluster is None:
        in_experiment = rng.random(len(trial)) < experimental_share
    else:
        groups, number = np.unique(trial[cluster], return_inverse=True)
        in_experiment = (rng.random(len(groups)) < experimental_share)[number]
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
    selected = rest[kept]

    dropped = [*columns, *([cluster] if cluster else [])]
    observational = selected.drop(columns=dropped)
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
    balance = _balance(people, kept)
    bias, error, effects = _bias(observational, experimental, treatment, outcome)
    return ConfoundedSplit(
        observational=observational,
        experimental=experimental,
        hidden=pd.concat([selected, trial[in_experiment]])[columns].sort_index(),
        balance=balance,
        strength={
            "kept_share": float(kept.mean()),
            "least_propensity": float(wanted.min()),
            "greatest_propensity": float(wanted.max()),
            "experimental_effect": effects[1],
            "observational_difference": effects[0],
            "bias": bias,
            "bias_standard_error": error,
            "balance_p_value": min(
                1.0, float(2 * stats.norm.sf(balance["z"].abs()).min() * len(balance))
            ),
        },
    )


def _check_trial(trial, treatment, outcome, hidden, experimental_share, cluster):
    needed = [treatment, outcome, *hidden, *([cluster] if cluster else [])]
    missing = [name for name in needed if name not in trial.columns]
    if missing:
        raise ValueError(
            f"the trial has no column {missing}; it has {list(trial.columns)}."
        )
    if not hidden:
        raise ValueError("hidden must name at least one column.")
    for name in (treatment, outcome):
        values = set(trial[name].unique())
        if not values <= {0, 1}:
            raise ValueError(
                f"column {name} must hold 0 and 1, got {sorted(values)[:5]}."
            )
    if trial[treatment].nunique() < 2:
        raise ValueError(
            f"column {treatment} must hold both 0 and 1: a trial has arms."
        )
    incomplete = [name for name in trial.columns if trial[name].isna().any()]
    if incomplete:
        raise ValueError(
            f"columns {incomplete} have missing values; fill or drop them."
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


def _balance(people: pd.DataFrame, kept: np.ndarray) -> pd.DataFrame:
    """Compares kept with dropped people, column by column.

    Selection is a coin of probability a that does not depend on the column, so kept and
    dropped people are two independent samples of one law.
    """
    categories = people.select_dtypes(exclude=["number", "bool"]).columns
    table = pd.get_dummies(people, columns=list(categories)).astype(np.float64)
    after, before = table[kept].mean(), table.mean()
    other = table[~kept].mean()
    sizes = 1 / kept.sum() + 1 / max((~kept).sum(), 1)
    error = table.std() * np.sqrt(sizes)
    difference = (after - other).where(error > 0, 0.0)
    z = difference / error.where(error > 0, 1.0)
    return pd.DataFrame({"before": before, "after": after, "z": z.fillna(0.0)})


def _bias(observational, experimental, treatment, outcome):
    """Computes the observational difference in means less the experimental one."""
    effects, variance = [], 0.0
    for table in (observational, experimental):
        arms = table.groupby(treatment)[outcome]
        means = arms.mean()
        effects.append(float(means[1] - means[0]))
        variance += float((means * (1 - means) / arms.size()).sum())
    return effects[0] - effects[1], float(np.sqrt(variance)), effects
