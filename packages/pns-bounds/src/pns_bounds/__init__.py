"""Sharp bounds on probabilities of causation, for NumPy and JAX arrays."""

from pns_bounds._anchor import anchor, anchor_inverse, log_anchor
from pns_bounds._atoms import Atoms, atoms_from_counts, exchange_arms, flip_outcome
from pns_bounds._bounds import (
    Interval,
    ResponseTypes,
    average_bounds,
    envelope,
    experimental_only_bounds,
    harm_bounds,
    observational_only_bounds,
    pn_bounds,
    pns_bounds,
    ps_bounds,
    response_type_bounds,
    unit_selection_bounds,
)
from pns_bounds._checks import IncompatibleAtomsError
from pns_bounds._compatibility import (
    compatibility_slack,
    is_compatible,
    project_to_compatible,
)
from pns_bounds._identify import (
    PointProbabilities,
    identify_under_exogeneity,
    identify_under_monotonicity,
)
from pns_bounds._terms import TERM_MATRIX, TERM_OFFSET, BoundTerms, bound_terms

__all__ = [
    "TERM_MATRIX",
    "TERM_OFFSET",
    "Atoms",
    "BoundTerms",
    "IncompatibleAtomsError",
    "Interval",
    "PointProbabilities",
    "ResponseTypes",
    "anchor",
    "anchor_inverse",
    "atoms_from_counts",
    "average_bounds",
    "bound_terms",
    "compatibility_slack",
    "envelope",
    "exchange_arms",
    "experimental_only_bounds",
    "flip_outcome",
    "harm_bounds",
    "identify_under_exogeneity",
    "identify_under_monotonicity",
    "is_compatible",
    "log_anchor",
    "observational_only_bounds",
    "pn_bounds",
    "pns_bounds",
    "project_to_compatible",
    "ps_bounds",
    "response_type_bounds",
    "unit_selection_bounds",
]
