"""One trial, two meanings: what observation adds to an experiment.

The example of Mueller and Pearl (Personalized decision making, 2023): women and men do
equally well in a randomized trial of a drug. What people did and how they fared when
they chose for themselves tells the sexes apart: the drug harms no woman and one man in
five.
"""

from collections.abc import Sequence

import numpy as np
import pns_bounds as pb
from absl import app

SEXES = ("women", "men")
# People in each cell [sex, x, y]: x = took the drug, y = recovered. The published
# shares, per thousand of each sex who chose and per thousand of each arm of the trial.
CHOSE = np.array([[[90, 210], [511, 189]], [[90, 210], [210, 490]]])
ASSIGNED = np.array([[[790, 210], [511, 489]], [[790, 210], [510, 490]]])


def table() -> str:
    """Formats the bounds on benefit and harm, from the trial alone and from both."""
    atoms = pb.atoms_from_counts(observational=CHOSE, experimental=ASSIGNED)
    columns = {
        "benefit, trial alone": pb.experimental_only_bounds(atoms.mu),
        "benefit, both": pb.pns_bounds(atoms),
        "harm, trial alone": pb.experimental_only_bounds(atoms.mu[..., ::-1]),
        "harm, both": pb.harm_bounds(atoms),
    }
    lines = ["".join(f"{name:>22}" for name in ("", *columns))]
    for row, sex in enumerate(SEXES):
        cells = [
            f"[{interval.lower[row]:.3f}, {interval.upper[row]:.3f}]"
            for interval in columns.values()
        ]
        lines.append("".join(f"{cell:>22}" for cell in (sex, *cells)))
    return "\n".join(lines)


def main(argv: Sequence[str]) -> None:
    """Prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"two_sexes takes no arguments, got {argv[1:]}.")
    print("Probability that the drug makes the difference, or does the damage:\n")
    print(table())


if __name__ == "__main__":
    app.run(main)
