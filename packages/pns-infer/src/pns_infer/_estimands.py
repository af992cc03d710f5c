"""What is bounded: terms as functions of the atoms, with limits known beforehand.

An estimand lies above the greatest of its lower terms and its floor, and below the least
of its upper terms and its ceiling. Terms are estimated, limits are known.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pns_bounds as pb

Array = Any  # NumPy or JAX


@dataclasses.dataclass(frozen=True)
class Estimand:
    """A probability, or another number, that is bounded by terms.

    Attributes:
      name: for messages and tables.
      terms: maps atoms [...] to terms [..., num_lower] and [..., num_upper].
      floor: a lower limit that needs no data.
      ceiling: an upper limit that needs no data.
    """

    name: str
    terms: Callable[[pb.Atoms], pb.BoundTerms]
    floor: float = 0.0
    ceiling: float = 1.0


def eta_from_atoms(atoms: pb.Atoms) -> Array:
    """Arranges atoms as eta = (mu1, mu0, p11, p10, p01, p00): [..., 6]."""
    joint, mu = atoms
    xp = mu.__array_namespace__()
    return xp.stack(
        [
            mu[..., 1],
            mu[..., 0],
            joint[..., 1, 1],
            joint[..., 1, 0],
            joint[..., 0, 1],
            joint[..., 0, 0],
        ],
        axis=-1,
    )


def linear_estimand(
    name: str,
    lower: tuple[Any, Any],
    upper: tuple[Any, Any],
    floor: float = -np.inf,
    ceiling: float = np.inf,
) -> Estimand:
    """Makes an estimand whose terms are affine in the atoms.

    Args:
      name: for messages and tables.
      lower: matrix [num_lower, 6] over eta = (mu1, mu0, p11, p10, p01, p00), and offset
        [num_lower]; an estimand without lower terms has a matrix [0, 6].
      upper: the same for the upper terms.
      floor: known lower limit.
      ceiling: known upper limit.
    """
    sides = []
    for side, (matrix, offset) in (("lower", lower), ("upper", upper)):
        matrix, offset = np.asarray(matrix, float), np.asarray(offset, float)
        if matrix.ndim != 2 or matrix.shape != (len(offset), 6):
            raise ValueError(
                f"the {side} terms need a matrix [num_terms, 6] and an offset "
                f"[num_terms], got shapes {list(matrix.shape)} and "
                f"{list(offset.shape)}."
            )
        sides.append((matrix, offset))

    def terms(atoms: pb.Atoms) -> pb.BoundTerms:
        eta = eta_from_atoms(atoms)
        xp = eta.__array_namespace__()
        return pb.BoundTerms(
            *(
                eta @ xp.asarray(matrix.T, dtype=eta.dtype)
                + xp.asarray(offset, dtype=eta.dtype)
                for matrix, offset in sides
            )
        )

    return Estimand(name, terms, floor, ceiling)


def _pns_terms(atoms: pb.Atoms) -> pb.BoundTerms:
    lower, upper = pb.bound_terms(atoms)
    return pb.BoundTerms(lower[..., 1:], upper)  # the constant 0 is the floor


def _harm_terms(atoms: pb.Atoms) -> pb.BoundTerms:
    return _pns_terms(pb.exchange_arms(atoms))


def _pn_terms(atoms: pb.Atoms) -> pb.BoundTerms:
    joint, mu = atoms
    # How many of the treated would respond untreated, as in pns_bounds.pn_bounds.
    responders = mu[..., 0] - joint[..., 0, 1]
    p11 = joint[..., 1, 1]
    lower, upper = p11 - responders, joint[..., 1, 0] + p11 - responders
    return pb.BoundTerms((lower / p11)[..., None], (upper / p11)[..., None])


def _ps_terms(atoms: pb.Atoms) -> pb.BoundTerms:
    joint, mu = atoms
    # How many of the untreated would respond if treated.
    responders = mu[..., 1] - joint[..., 1, 1]
    p00 = joint[..., 0, 0]
    return pb.BoundTerms(
        ((responders - joint[..., 0, 1]) / p00)[..., None],
        (responders / p00)[..., None],
    )


PNS = Estimand("pns", _pns_terms)
HARM = Estimand("harm", _harm_terms)
PN = Estimand("pn", _pn_terms)
PS = Estimand("ps", _ps_terms)
