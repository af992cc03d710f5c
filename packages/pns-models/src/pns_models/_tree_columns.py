"""Columns of covariates as trees see them.

A matrix of covariates has a column for each level of a category, and an indicator beside
a number that may be missing; `Rows` says which columns belong together. Trees part the
levels of a category in two by one split if one column has the number of the level, and
they learn where missing numbers belong if these are NaN.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from pns_models._data import pick_rows, row_blocks


def is_category(covariate: Int[np.ndarray, " d"]) -> Bool[np.ndarray, " covariates"]:
    """Tells which covariates are categories: those with more than two columns."""
    return np.unique(covariate, return_counts=True)[1] > 2


def tree_columns(
    z: Float[np.ndarray, "n d"],
    covariate: Int[np.ndarray, " d"],
    rows: Int[np.ndarray, " m"] | None = None,
) -> Float[np.ndarray, "n_or_m covariates"]:
    """Makes one column of those of each covariate.

    Levels of a category are numbered from 0. A row without a level, whose value is missing
    or unknown, has NaN.

    Args:
      z: covariates.
      covariate: of each column, the one that it belongs to.
      rows: to take; those in order are no copy if each column is a covariate.

    Example:
      >>> z = np.array([[0, 0, 1, 1, 0], [0, 0, 0, 0, 7]], np.float32)
      >>> tree_columns(z, np.array([0, 0, 0, 1, 1])).tolist()
      [[2.0, nan], [nan, 7.0]]
    """
    rows = np.arange(len(z)) if rows is None else rows
    columns = [np.flatnonzero(covariate == each) for each in np.unique(covariate)]
    if len(columns) == len(covariate):
        return pick_rows(z, rows)
    last = [own[-1] for own in columns]
    result = np.empty((len(rows), len(last)), np.result_type(z, np.float32))
    for part in row_blocks(len(rows), len(covariate)):
        block = pick_rows(z, rows[part])
        result[part] = block[:, last]
        for number, own in enumerate(columns):
            column = result[part, number]
            if len(own) > 2:
                column[:] = block[:, own].argmax(axis=1)
                column[~block[:, own].any(axis=1)] = np.nan
            elif len(own) == 2:
                column[block[:, own[0]] == 1] = np.nan
    return result
