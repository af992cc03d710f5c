"""Sums of atoms as people write them, read as rows over eta."""

from collections.abc import Sequence

import numpy as np

from pns_bounds._layout import BINARY

_PLACES = {name: [place] for place, name in enumerate((*BINARY.eta_names, "1"))}
_PLACES |= {"0": [], "P(y)": [*_PLACES["p11"], *_PLACES["p01"]]}


def read_formulas(formulas: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Reads formulas such as "1 - mu0 + P(y)", where P(y) stands for p11 + p01.

    Returns:
      The matrix [num_formulas, num_raw] over eta, and the constants [num_formulas].
    """
    rows = np.zeros((len(formulas), BINARY.num_raw + 1))
    for row, formula in zip(rows, formulas, strict=True):
        sign = 1
        for word in formula.split():
            if word in ("+", "-"):
                sign = 1 if word == "+" else -1
            else:
                row[_PLACES[word]] += sign
    return rows[:, :-1], rows[:, -1]
