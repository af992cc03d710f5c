"""The numbers that the paper prints, from the data file of this package.

Table 1 (tab:results) compares methods, Table 6 (tab:sensitivity) sample sizes.
"""

import functools
import importlib.resources
import json
from typing import Any, NamedTuple

# The high-dimensional model was not run at the paper's sizes: the paper's row is shown
# beside smaller ones, and says its sizes.
_SHOWN_AT_ANY_SIZE = ("acic",)


class PaperRow(NamedTuple):
    """A row of a table of the paper.

    Attributes:
      model: as in `replicates.make_model`.
      observational: number of observational units.
      experimental: number of experimental units.
      printed_as: what the paper calls the method.
      beside: our methods that the row stands beside.
      valid: percent, or None if the table does not have it; likewise the coverages.
      point_coverage: of PNS.
      set_coverage: of the identified set.
      width: mean width of the intervals.
      score: mean interval score.
    """

    model: str
    observational: int
    experimental: int
    printed_as: str
    beside: tuple[str, ...]
    valid: float | None
    point_coverage: float
    set_coverage: float
    width: float
    score: float

    def __str__(self) -> str:
        """Formats the numbers as tables of results show them."""
        valid = "–" if self.valid is None else f"{self.valid:.1f}"
        return (
            f"{valid} / {self.point_coverage:.1f} / {self.set_coverage:.1f} / "
            f"{self.width:.3f} / {self.score:.3f}"
        )


@functools.cache
def read_table(label: str) -> tuple[PaperRow, ...]:
    """Reads a table by its LaTeX label."""
    file = importlib.resources.files("pns_experiments") / "data" / "paper_tables.json"
    rows = json.loads(file.read_text())["tables"][label]["rows"]
    return tuple(PaperRow(**row | {"beside": tuple(row["beside"])}) for row in rows)


def find_row(label: str, entry: dict[str, Any]) -> str:
    """Finds what the paper prints for an entry of ours, as text; '' if it does not.

    Args:
      label: of the table.
      entry: has model, method, and numbers of observational and experimental units.
    """
    sizes = entry["observational"], entry["experimental"]
    for row in read_table(label):
        if row.model != entry["model"] or entry["method"] not in row.beside:
            continue
        if (row.observational, row.experimental) == sizes:
            return str(row)
        if row.model in _SHOWN_AT_ANY_SIZE:
            return f"{row} ({format_sizes(row.observational, row.experimental)})"
    return ""


def format_sizes(observational: int, experimental: int) -> str:
    """Formats sample sizes in thousands."""
    return f"{observational / 1000:g}k + {experimental / 1000:g}k"
