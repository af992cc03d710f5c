"""Assumptions under which probabilities of causation are points, not intervals.

Monotonicity: no unit is harmed, Y_1 >= Y_0. It identifies PNS, PN and PS from the atoms.
Exogeneity: units chose X independently of (Y_0, Y_1) given z. It identifies mu from
observational data alone. Under both, observational data alone give the points:
`identify_under_monotonicity(Atoms(joint, identify_under_exogeneity(joint)))`.
"""

from typing import Any, Literal, NamedTuple

from pns_bounds._arguments import (
    Array,
    IncompatibleAtomsError,
    as_floating,
    check_joint,
    fraction,
    namespace,
    require_option,
    require_rows,
    rounding_tolerance,
)
from pns_bounds._atoms import Atoms
from pns_bounds._compatibility import resolve_incompatible
from pns_bounds._registry import PNS


class PointProbabilities(NamedTuple):
    """Identified probabilities of causation, each [...]."""

    pns: Array
    pn: Array  # NaN where p11 = 0: undefined
    ps: Array  # NaN where p00 = 0: undefined


def identify_under_monotonicity(
    atoms: Atoms, incompatible: Literal["raise", "allow"] = "raise"
) -> PointProbabilities:
    """Identifies PNS, PN and PS when no unit is harmed by the treatment.

    They are mu1 - mu0, (P(Y=1) - mu0) / p11 and (mu1 - P(Y=1)) / p00. Monotonicity can
    be refuted, since it implies mu0 <= P(Y=1) <= mu1: 'raise' where it is (or where the
    atoms contradict each other), or 'allow' values that may not be probabilities.

    Example:
      >>> atoms = Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8])
      >>> [round(float(point), 3) for point in identify_under_monotonicity(atoms)]
      [0.45, 0.875, 0.5]
    """
    require_option("incompatible", incompatible, ("raise", "allow"))
    atoms = resolve_incompatible(atoms, incompatible)
    # Where no unit is harmed, PNS, PN and PS attain their lower terms.
    lower = PNS.terms(atoms).lower
    pns, necessary, sufficient = (lower[..., i] for i in range(3))
    xp = namespace(lower)
    if incompatible == "raise":
        slack = xp.stack([necessary, sufficient], axis=-1)
        require_rows(
            "atoms",
            xp.all(slack >= -rounding_tolerance(slack.dtype), axis=-1),
            slack,
            "contradict monotonicity, which implies mu0 <= P(Y=1) <= mu1, so neither "
            "P(Y=1) - mu0 nor mu1 - P(Y=1) may be negative",
            "Some units are harmed here: use pns_bounds, which does not assume "
            "monotonicity, or pass incompatible='allow'.",
            IncompatibleAtomsError,
        )
    return PointProbabilities(
        pns=pns,
        pn=fraction(necessary, atoms.joint[..., 1, 1]),
        ps=fraction(sufficient, atoms.joint[..., 0, 0]),
    )


def identify_under_exogeneity(joint: Any) -> Array:
    """Identifies mu_x as P(Y=1 | X=x, z) when X is as good as random given z.

    Maps joint [..., 2, 2] to mu [..., 2]; NaN in an arm that no unit chose.

    Example:
      >>> identify_under_exogeneity([[0.2, 0.3], [0.1, 0.4]]).round(3).tolist()
      [0.6, 0.8]
    """
    (joint,) = as_floating(joint=joint)
    check_joint(joint)
    return fraction(joint[..., 1], joint[..., 0] + joint[..., 1])
