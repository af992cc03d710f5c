"""Tian-Pearl bound terms on the probability of necessity and sufficiency."""

from pns_bounds._arrays import namespace, read_only
from pns_bounds._atoms import Atoms
from pns_bounds._estimand import BoundTerms
from pns_bounds._registry import PNS


def bound_terms(atoms: Atoms) -> BoundTerms:
    """Evaluates the four lower and four upper terms on PNS.

    These are `PNS.terms` with the floor 0 as the first lower term, as the paper counts.

    Args:
      atoms: probabilities; `joint` and `mu` share their leading dimensions. Values are
        checked unless JAX is tracing.

    Returns:
      Terms [..., 4] in the order of eq:pns-lower-1, whose first is the constant 0, and
      eq:pns-upper-1.

    Example:
      >>> terms = bound_terms(Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8]))
      >>> terms.lower.round(3).tolist()
      [0.0, 0.45, 0.35, 0.1]
    """
    lower, upper = PNS.terms(atoms)
    xp = namespace(lower)
    return BoundTerms(
        lower=xp.concatenate([xp.zeros_like(lower[..., :1]), lower], axis=-1),
        upper=upper,
    )


TERM_MATRIX = read_only(PNS.lower_matrix + PNS.upper_matrix)
"""The terms of PNS are TERM_MATRIX eta + TERM_OFFSET (app. sec:pns-theory).

Here eta = (mu1, mu0, p11, p10, p01, p00). Rows are the three lower terms (the constant 0
is left out), then the four upper ones.
"""
TERM_OFFSET = read_only(PNS.lower_offset + PNS.upper_offset)
"""The constants of the terms; see `TERM_MATRIX`."""
