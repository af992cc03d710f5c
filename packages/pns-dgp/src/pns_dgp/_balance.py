"""Whether a selection of units left the law of their covariates unchanged.

Each unit is kept with the same probability, whatever its covariates, so kept and dropped
units have the same law. That fails if the trial's treatment was not random; it then shows
in the product of f(C) with the column on which treatment depends.
"""

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped


def compare_kept_with_dropped(
    covariates: pd.DataFrame,
    kept: Bool[np.ndarray, " n"],
    propensity: Float[np.ndarray, " n"],
    clusters: Int[np.ndarray, " n"],
) -> pd.DataFrame:
    """Compares kept with dropped units: each column, f(C), and their products.

    Returns:
      A row per comparison, with the mean before and after the selection and the
      z-statistic of kept against dropped units.
    """
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
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=["before", "after", "z"]
    )


def difference_in_means(
    values: Float[np.ndarray, " n"],
    chosen: Shaped[np.ndarray, " n"],
    clusters: Int[np.ndarray, " n"],
) -> tuple[float, float]:
    """Computes the mean of chosen less that of other units, and its robust variance."""
    chosen = chosen.astype(bool)
    means = [values[chosen].mean(), values[~chosen].mean()]
    influence = np.where(
        chosen,
        (values - means[0]) / chosen.sum(),
        (means[1] - values) / (~chosen).sum(),
    )
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
