"""How many treatments and outcome levels there are, and what follows for shapes and names."""

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Layout:
    """The treatments 0..K-1 and the ordered outcome levels 0..M-1.

    Every package asks here for the lengths and the order of its axes.
    """

    num_treatments: int = 2  # K
    num_levels: int = 2  # M

    @property
    def joint_shape(self) -> tuple[int, int]:
        """Shape of the law of (X, Y), by treatment and level."""
        return self.num_treatments, self.num_levels

    @property
    def mu_shape(self) -> tuple[int, ...]:
        """Shape of P(Y=y | do(X=x)) over x and y >= 1; two levels need no axis for y."""
        levels = () if self.num_levels == 2 else (self.num_levels - 1,)
        return self.num_treatments, *levels

    @property
    def response_shape(self) -> tuple[int, ...]:
        """Shape of the law of (X, Y_0, ..., Y_{K-1}): a treatment and all outcomes."""
        return self.num_treatments, *[self.num_levels] * self.num_treatments

    @property
    def num_cells(self) -> int:
        """Pairs of treatment and level: entries of a joint law, or of one source."""
        return self.num_treatments * self.num_levels

    @property
    def num_free(self) -> int:
        """Free numbers of the laws of the outcome under each treatment."""
        return self.num_treatments * (self.num_levels - 1)

    @property
    def num_raw(self) -> int:
        """Numbers that a learner predicts: logits of the cells, and the anchors'."""
        return self.num_cells + self.num_free

    @property
    def num_counts(self) -> int:
        """Counts of one covariate vector: the cells of both sources."""
        return 2 * self.num_cells

    @property
    def cells(self) -> tuple[tuple[int, int], ...]:
        """The pairs (x, y) of the joint law in the order of eta: the last one first."""
        return tuple(np.ndindex(self.joint_shape))[::-1]

    @property
    def free_cells(self) -> tuple[tuple[int, int], ...]:
        """The pairs (x, y), y >= 1, of the interventional laws in the order of eta."""
        return tuple((x, y) for x, y in self.cells if y > 0)

    @property
    def eta_names(self) -> tuple[str, ...]:
        """Names of the atoms as one vector: (mu1, mu0, p11, p10, p01, p00)."""
        level = "" if self.num_levels == 2 else "{1}"
        mu = [f"mu{{0}}{level}".format(*cell) for cell in self.free_cells]
        return *mu, *(f"p{x}{y}" for x, y in self.cells)

    @property
    def anchor_places(self) -> tuple[int, ...]:
        """Where the vector eta has the cell p_xy of each free mu_x(y)."""
        return tuple(self.num_free + self.cells.index(c) for c in self.free_cells)


BINARY = Layout()
"""Two treatments and two outcome levels, as in the paper."""


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
