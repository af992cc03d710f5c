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

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy import stats

from pns_dgp._balance import compare_kept_with_dropped


@dataclasses.dataclass(frozen=True, eq=False)
class ConfoundedSplit:
    """Two tables from one trial, and what was done.

    Attributes:
      observational: units whose treatment depends on the hidden columns.
      experimental: units as randomized.
      hidden: the hidden columns of all kept units, by the trial's index.
      balance: a row per column (per common level of a category) of C and Z, for f(C),
        and for the product of each with f(C): the mean before and after the selection
        and the z-statistic, robust to clusters, of kept against dropped units.
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


@dataclasses.dataclass(frozen=True)
class _Roles:
    """Which column is what."""

    treatment: str
    outcome: str
    hidden: tuple[str, ...]
    cluster: str | None

    @property
    def removed(self) -> list[str]:
        """Columns that neither table shows."""
        return [*self.hidden, *([self.cluster] if self.cluster else [])]

    @property
    def all(self) -> list[str]:
        return [self.treatment, self.outcome, *self.removed]


@dataclasses.dataclass(frozen=True, eq=False)
class _Selection:
    """Which units of a trial go where.

    Attributes:
      clusters: [n] number of each unit's cluster.
      in_experiment: [n] stays an experiment.
      kept: [m] of the m others, those that stay.
      propensity: [m] f(C) of the others.
    """

    clusters: Int[np.ndarray, " n"]
    in_experiment: Bool[np.ndarray, " n"]
    kept: Bool[np.ndarray, " m"]
    propensity: Float[np.ndarray, " m"]

    @property
    def in_observational(self) -> Bool[np.ndarray, " n"]:
        chosen = np.zeros_like(self.in_experiment)
        chosen[~self.in_experiment] = self.kept
        return chosen


def confounded_split(
    trial: pd.DataFrame,
    treatment: str,
    outcome: str,
    hidden: str | Sequence[str],
    propensity: Callable[[pd.DataFrame], Float[np.ndarray, " n"]],
    seed: int,
    experimental_share: float = 0.5,
    cluster: str | None = None,
) -> ConfoundedSplit:
    """Splits a randomized trial into an experimental and a confounded table.

    All units of the trial must have had the same chance of treatment; a trial with
    different chances in different strata is split stratum by stratum.

    Args:
      trial: one row per unit; `treatment` and `outcome` hold 0 and 1.
      treatment: name of the treatment column.
      outcome: name of the outcome column.
      hidden: the columns C, which drive treatment and are then taken out of both tables.
      propensity: f, maps the hidden columns [n, ...] to probabilities in (0, 1).
      seed: names the split.
      experimental_share: the part of the units that stays an experiment.
      cluster: a column whose groups go to one table together (say, a household), taken
        out as well.

    Returns:
      The tables, rows in the trial's order with its index, and the checks.

    Example:
      >>> import numpy as np
      >>> import pandas as pd
      >>> x, sick, y = np.random.default_rng(0).integers(0, 2, (3, 20_000))
      >>> trial = pd.DataFrame({"x": x, "y": y & sick, "sick": sick})
      >>> split = confounded_split(
      ...     trial, "x", "y", "sick", lambda hidden: 0.2 + 0.6 * hidden["sick"], seed=0
      ... )
      >>> table = split.observational.join(split.hidden)
      >>> table.groupby("sick")["x"].mean().round(1).tolist()  # a coin in the trial
      [0.2, 0.8]
      >>> round(split.strength["bias"], 1)  # 0.8 / 2 - 0.2 / 2; the effect is 0
      0.3
    """
    columns = (hidden,) if isinstance(hidden, str) else tuple(hidden)
    roles = _Roles(treatment, outcome, columns, cluster)
    _check_trial(trial, roles, experimental_share)
    trial = trial.astype({treatment: int, outcome: int})
    selection = _select(trial, roles, propensity, seed, experimental_share)
    tables = _make_tables(trial, roles, selection)
    rest = trial[~selection.in_experiment]
    balance = compare_kept_with_dropped(
        rest.drop(columns=[treatment, outcome] + ([cluster] if cluster else [])),
        selection.kept,
        selection.propensity,
        selection.clusters[~selection.in_experiment],
    )
    in_either = selection.in_experiment | selection.in_observational
    return ConfoundedSplit(
        **tables,
        hidden=trial.loc[in_either, list(columns)],
        balance=balance,
        strength=_measure_strength(tables, roles, selection, balance),
    )


def _select(
    trial: pd.DataFrame,
    roles: _Roles,
    propensity: Callable[[pd.DataFrame], np.ndarray],
    seed: int,
    experimental_share: float,
) -> _Selection:
    """Draws the experiment, then who of the others stays."""
    rng = np.random.default_rng(seed)
    clusters = np.arange(len(trial))
    if roles.cluster is not None:
        clusters = np.unique(trial[roles.cluster], return_inverse=True)[1]
    in_experiment = (rng.random(clusters.max() + 1) < experimental_share)[clusters]
    rest = trial[~in_experiment]
    wanted = _checked_propensity(propensity(rest[list(roles.hidden)]), len(rest))
    treated = rest[roles.treatment].to_numpy() == 1
    assigned = float(trial[roles.treatment].mean())
    ratio = np.where(treated, wanted / assigned, (1 - wanted) / (1 - assigned))
    greatest = max(wanted.max() / assigned, (1 - wanted.min()) / (1 - assigned))
    kept = rng.random(len(rest)) < ratio / greatest
    return _Selection(clusters, in_experiment, kept, wanted)


def _make_tables(
    trial: pd.DataFrame, roles: _Roles, selection: _Selection
) -> dict[str, pd.DataFrame]:
    """Takes out what is hidden; raises if a table lacks an arm."""
    tables = {
        "observational": trial[selection.in_observational].drop(columns=roles.removed),
        "experimental": trial[selection.in_experiment].drop(columns=roles.removed),
    }
    for name, table in tables.items():
        if table[roles.treatment].nunique() < 2:
            raise ValueError(
                f"the {name} table has {len(table)} units and lacks an arm; give a "
                "larger trial or a milder propensity."
            )
    return tables


def _measure_strength(
    tables: dict[str, pd.DataFrame],
    roles: _Roles,
    selection: _Selection,
    balance: pd.DataFrame,
) -> dict[str, float]:
    """Computes the entries of `ConfoundedSplit.strength`."""
    observed, observed_variance = _difference(
        tables["observational"], roles, selection.clusters[selection.in_observational]
    )
    effect, effect_variance = _difference(
        tables["experimental"], roles, selection.clusters[selection.in_experiment]
    )
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


def _difference(
    table: pd.DataFrame, roles: _Roles, clusters: np.ndarray
) -> tuple[float, float]:
    """Computes a difference in means and its variance, robust to clusters."""
    x = table[roles.treatment].to_numpy()
    y = table[roles.outcome].to_numpy(np.float64)
    means = np.array([y[x == arm].mean() for arm in (0, 1)])
    sizes = np.array([np.sum(x == arm) for arm in (0, 1)])
    influence = np.where(x == 1, 1, -1) * (y - means[x]) / sizes[x]
    variance = np.sum(np.bincount(clusters, influence) ** 2)
    return float(means[1] - means[0]), float(variance)


def _check_trial(trial: pd.DataFrame, roles: _Roles, experimental_share: float) -> None:
    if not roles.hidden:
        raise ValueError("hidden must name at least one column.")
    if len(set(roles.all)) < len(roles.all):
        raise ValueError(f"each role needs a column of its own, got {roles.all}.")
    if not (trial.columns.is_unique and trial.index.is_unique):
        raise ValueError("the trial's column names and its index must be unique.")
    missing = [name for name in roles.all if name not in trial.columns]
    if missing:
        raise ValueError(
            f"the trial has no column {missing}; it has {list(trial.columns)}."
        )
    incomplete = [name for name in trial.columns if _is_incomplete(trial[name])]
    if incomplete:
        raise ValueError(
            f"columns {incomplete} have missing or infinite values; fill or drop them."
        )
    for name in (roles.treatment, roles.outcome):
        values = set(trial[name].unique())
        if not values <= {0, 1}:
            shown = sorted(map(str, values))[:5]
            raise ValueError(f"column {name} must hold 0 and 1, got {shown}.")
    if trial[roles.treatment].nunique() < 2:
        raise ValueError(
            f"column {roles.treatment} must hold both 0 and 1: a trial has arms."
        )
    if not 0 < experimental_share < 1:
        raise ValueError(
            f"experimental_share must lie inside (0, 1), got {experimental_share}."
        )


def _is_incomplete(column: pd.Series) -> bool:
    is_float = pd.api.types.is_float_dtype(column)
    return bool(column.isna().any() or (is_float and np.isinf(column).any()))


def _checked_propensity(values: np.ndarray, n: int) -> Float[np.ndarray, " n"]:
    values = np.asarray(values, np.float64)
    if values.shape != (n,) or not np.all((values > 0) & (values < 1)):
        raise ValueError(
            f"propensity must return {n} probabilities inside (0, 1), got shape "
            f"{values.shape} from {values.min()} to {values.max()}."
        )
    return values
