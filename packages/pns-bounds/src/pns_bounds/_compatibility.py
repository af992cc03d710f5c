"""Do the two sets of probabilities belong to one structural model?

They do exactly if p11 <= mu1 <= 1 - p10 and p01 <= mu0 <= 1 - p00
(eq:observational-constraints). The upper limits are computed as p11 + (p00 + p01) and
p01 + (p10 + p11), never as `1 - p`: in that form rounding is monotone and `anchor`
satisfies them to the last bit.
"""

from typing import Literal

from pns_bounds._arguments import (
    Array,
    IncompatibleAtomsError,
    checked_pair,
    namespace,
    read_only,
    require_option,
    require_rows,
    rounding_tolerance,
)
from pns_bounds._atoms import Atoms
from pns_bounds._layout import read_formulas

Incompatible = Literal["raise", "project", "allow"]

CONSTRAINTS = ("p11 <= mu1", "mu1 <= 1 - p10", "p01 <= mu0", "mu0 <= 1 - p00")
"""What observational cells demand of the arms, eq:observational-constraints, in words."""
_SLACKS = ("mu1 - p11", "1 - p10 - mu1", "mu0 - p01", "1 - p00 - mu0")
SLACK_MATRIX = read_only(read_formulas(_SLACKS)[0])
"""The slacks of `CONSTRAINTS` are SLACK_MATRIX eta + (0, 1, 0, 1).

Here eta = (mu1, mu0, p11, p10, p01, p00).
"""


def mu_limits(joint: Array) -> tuple[Array, Array]:
    """Returns the least and the greatest `mu` [..., x] that `joint` admits."""
    least = joint[..., :, 1]
    return least, least + other_arm_mass(joint)


def other_arm_mass(joint: Array) -> Array:
    """Returns P(X = 1 - x | z) as [..., x]."""
    return joint[..., ::-1, 0] + joint[..., ::-1, 1]


def compatibility_slack(atoms: Atoms) -> Array:
    """Computes how far each constraint is from being violated.

    Slacks [..., 4] are negative where violated, in the order of CONSTRAINTS: mu1 - p11,
    1 - p10 - mu1, mu0 - p01, 1 - p00 - mu0. They round as `anchor` does.

    Example:
      >>> atoms = Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8])
      >>> compatibility_slack(atoms).round(3).tolist()
      [0.4, 0.1, 0.05, 0.45]
    """
    return slack_of(*checked_pair(*atoms))


def slack_of(joint: Array, mu: Array) -> Array:
    """Computes `compatibility_slack` of arrays that were checked before."""
    least, greatest = mu_limits(joint)
    above, below = mu - least, greatest - mu
    columns = [side[..., arm] for arm in (1, 0) for side in (above, below)]
    return namespace(mu).stack(columns, axis=-1)


def is_compatible(atoms: Atoms, tolerance: float = 0.0) -> Array:
    """Tells row by row whether no slack lies further below zero than the tolerance.

    Example:
      >>> joint = [[0.2, 0.3], [0.1, 0.4]]  # so mu1 is at least 0.4
      >>> bool(is_compatible(Atoms(joint, [0.35, 0.3])))
      False
    """
    slack = compatibility_slack(atoms)
    return namespace(slack).all(slack >= -tolerance, axis=-1)


def project_to_compatible(atoms: Atoms) -> Atoms:
    """Moves `mu` to the nearest value that `joint` admits; keeps `joint`.

    The admissible set of `mu` is a box, so this is the nearest point in every norm. The
    joint law is kept, as in the anchored network: it usually has the larger sample. Then
    `is_compatible` holds with no tolerance (if the cells of `joint` lie in [0, 1]).

    Example:
      >>> project_to_compatible(Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.3])).mu.tolist()
      [0.35, 0.4]
    """
    joint, mu = checked_pair(*atoms)
    xp = namespace(joint)
    least, greatest = mu_limits(joint)
    # Rounding can put `greatest` an ulp above 1; a probability stays below it.
    mu = xp.minimum(xp.maximum(mu, least), xp.minimum(greatest, 1))
    return Atoms(joint, mu)


def resolve_incompatible(atoms: Atoms, incompatible: Incompatible) -> Atoms:
    """Checks atoms; raises, projects or allows if they contradict each other.

    Violations by rounding do not raise. While JAX is tracing nothing can be raised:
    'raise' then acts as 'allow'.
    """
    require_option("incompatible", incompatible, ("raise", "project", "allow"))
    if incompatible == "project":
        return project_to_compatible(atoms)
    atoms = Atoms(*checked_pair(*atoms))
    if incompatible == "raise":
        slack = slack_of(*atoms)
        require_rows(
            "atoms",
            namespace(slack).all(slack >= -rounding_tolerance(slack.dtype), axis=-1),
            slack,
            f"contradict each other: {', '.join(CONSTRAINTS)} must hold, so none of "
            f"the slacks ({', '.join(_SLACKS)}) may be negative",
            "If sampling error explains it, pass incompatible='project' to move mu "
            "to the nearest admissible value, or 'allow' to keep the atoms.",
            IncompatibleAtomsError,
        )
    return atoms
