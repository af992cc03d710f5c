"""Tian-Pearl bound terms on the probability of necessity and sufficiency."""

from typing import NamedTuple

import numpy as np

from pns_bounds._arrays import Array, namespace
from pns_bounds._atoms import Atoms
from pns_bounds._checks import checked_pair


class BoundTerms(NamedTuple):
    """Terms whose maximum (lower) and minimum (upper) bound PNS.

    Attributes:
      lower: [..., 4], in the order of eq:pns-lower-1; the first is the constant 0.
      upper: [..., 4], in the order of eq:pns-upper-1.
    """

    lower: Array
    upper: Array


def bound_terms(atoms: Atoms) -> BoundTerms:
    """Evaluates the four lower and four upper terms on PNS.

    The terms are plain algebra: they are defined for incompatible atoms, too. Terms of
    the probability of harm are `bound_terms(exchange_arms(atoms))`.

    Args:
      atoms: probabilities; `joint` and `mu` share their leading dimensions. Values are
        checked unless JAX is tracing.

    Returns:
      Terms in the order of eq:pns-lower-1 and eq:pns-upper-1.
    """
    return terms_of(*checked_pair(*atoms))


def terms_of(joint: Array, mu: Array) -> BoundTerms:
    """Evaluates `bound_terms` of arrays that were checked before."""
    xp = namespace(joint)
    mu0, mu1 = mu[..., 0], mu[..., 1]
    p00, p01 = joint[..., 0, 0], joint[..., 0, 1]
    p10, p11 = joint[..., 1, 0], joint[..., 1, 1]
    p_y1 = p11 + p01
    # The last upper term, mu1 - mu0 + p10 + p01, is grouped as the sum of two slacks
    # of eq:observational-constraints: compatible atoms never round it below zero.
    gain = mu1 - p11
    room = (p01 + (p10 + p11)) - mu0
    return BoundTerms(
        lower=xp.stack(
            [xp.zeros_like(mu0), mu1 - mu0, p_y1 - mu0, mu1 - p_y1], axis=-1
        ),
        upper=xp.stack([mu1, 1 - mu0, p11 + p00, room + gain], axis=-1),
    )


def _read_only(rows: list[list[float]] | list[float]) -> np.ndarray:
    array = np.array(rows, dtype=np.float64)
    array.setflags(write=False)
    return array


# The terms as an affine map of the atoms, g = A eta + b (app. sec:pns-theory), over
# eta = (mu1, mu0, p11, p10, p01, p00): three lower terms (the constant 0 is left out),
# then four upper ones.
TERM_MATRIX = _read_only(
    [
        [1, -1, 0, 0, 0, 0],
        [0, -1, 1, 0, 1, 0],
        [1, 0, -1, 0, -1, 0],
        [1, 0, 0, 0, 0, 0],
        [0, -1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 1],
        [1, -1, 0, 1, 1, 0],
    ]
)
TERM_OFFSET = _read_only([0, 0, 0, 0, 1, 0, 0])
