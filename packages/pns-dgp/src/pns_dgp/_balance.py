"""Whether a selection of units left the law of their covariates unchanged.

Keeping a unit is a coin of probability a that depends on nothing, so kept and dropped
units are samples of one law. If the trial's treatment were not random, they would not
be; that shows in the product of f(C) with the column on which treatment depends.
"""

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int


def compare_kept_with_dropped(
    covariates: pd.DataFrame,
    kept: Bool[np.ndarray, " n"],
    propensity: Float[np.ndarray, " n"],
    clusters: Int[np.ndarray, " n"],
) -> pd.DataFrame:
    """Compares kept with dropped units: each column, f(C), and their products.

    Args:
      covariates: [n] hidden and observed covariates.
      kept: [n] booleans.
      propensity: [n] f(C).
      clusters: [n] number of each unit's cluster.

    Returns:
      A row per comparison, with the mean before and after the selection and the
      z-statistic of kept against dropped units.
    """
    columns = _numeric_columns(covariates, least_count=10 / max(kept.mean(), 1e-3))
    centered = propensity - propensity.mean()
    products = {f"{name} x propensity": v * centered for name, v in columns.items()}
    rows = {
        name: _compare(values, kept, clusters)
        for name, values in {**columns, "propensity": propensity, **products}.items()
    }
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=["before", "after", "z"]
    )


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
        # Rare levels together: one unit more or less would decide.
        common = counts.index[counts >= max(50, least_count)][:50]
        for level in sorted(common):
            columns[f"{name}={level}"] = (levels == level).to_numpy(np.float64)
        columns[f"{name}=other"] = (~levels.isin(common)).to_numpy(np.float64)
    return columns


def _compare(
    values: np.ndarray, kept: np.ndarray, clusters: np.ndarray
) -> tuple[float, float, float]:
    """Computes the mean of all and of kept units, and z of kept against dropped."""
    means = [values[kept].mean(), values[~kept].mean()]
    influence = np.where(
        kept, (values - means[0]) / kept.sum(), (means[1] - values) / (~kept).sum()
    )
    error = np.sqrt(np.sum(np.bincount(clusters, influence) ** 2))
    z = (means[0] - means[1]) / error if error > 1e-12 * abs(means[1]) else 0.0
    return values.mean(), means[0], z
