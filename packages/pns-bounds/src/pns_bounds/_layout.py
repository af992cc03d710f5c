"""Lengths and order of the axes, which every package asks for here."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class _Binary(NamedTuple):
    num_treatments: int = 2
    num_levels: int = 2  # of the outcome
    joint_shape: tuple[int, int] = (2, 2)  # of the law of (X, Y)
    mu_shape: tuple[int] = (2,)  # of P(Y=1 | do(X=x)) over x
    response_shape: tuple[int, int, int] = (2, 2, 2)  # of the law of (X, Y_0, Y_1)
    num_cells: int = 4  # entries of a joint law, or counts of one source
    num_free: int = 2  # entries of mu
    num_raw: int = 6  # what a learner predicts: logits of the cells, and the anchors'
    num_counts: int = 8  # of one covariate vector: the cells of both sources
    eta_names: tuple[str, ...] = ("mu1", "mu0", "p11", "p10", "p01", "p00")


BINARY = _Binary()
"""Two treatments and two outcome levels, as in the paper: lengths, shapes and names."""


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
