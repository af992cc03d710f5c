"""Sharp bounds on probabilities of causation, for NumPy and JAX arrays."""

from pns_bounds._anchor import anchor, anchor_inverse, log_anchor
from pns_bounds._arguments import IncompatibleAtomsError, InputError
from pns_bounds._atoms import Atoms, atoms_from_counts, pack_atoms, unpack_atoms
from pns_bounds._bounds import (
    average_bounds,
    experimental_only_bounds,
    harm_bounds,
    observational_only_bounds,
    pn_bounds,
    pns_bounds,
    ps_bounds,
    response_type_bounds,
    unit_selection_bounds,
)
from pns_bounds._compatibility import (
    CONSTRAINTS,
    SLACK_MATRIX,
    compatibility_slack,
    is_compatible,
    project_to_compatible,
)
from pns_bounds._estimand import BoundTerms, Estimand, Interval
from pns_bounds._identify import identify_under_exogeneity, identify_under_monotonicity
from pns_bounds._layout import BINARY, Layout
from pns_bounds._registry import (
    ESTIMANDS,
    HARM,
    PN,
    PNS,
    PS,
    TERM_MATRIX,
    TERM_OFFSET,
    benefit,
    bound_terms,
    register_estimand,
)

__all__ = [
    "BINARY",
    "CONSTRAINTS",
    "ESTIMANDS",
    "HARM",
    "PN",
    "PNS",
    "PS",
    "SLACK_MATRIX",
    "TERM_MATRIX",
    "TERM_OFFSET",
    "Atoms",
    "BoundTerms",
    "Estimand",
    "IncompatibleAtomsError",
    "InputError",
    "Interval",
    "Layout",
    "anchor",
    "anchor_inverse",
    "atoms_from_counts",
    "average_bounds",
    "benefit",
    "bound_terms",
    "compatibility_slack",
    "experimental_only_bounds",
    "harm_bounds",
    "identify_under_exogeneity",
    "identify_under_monotonicity",
    "is_compatible",
    "log_anchor",
    "observational_only_bounds",
    "pack_atoms",
    "pn_bounds",
    "pns_bounds",
    "project_to_compatible",
    "ps_bounds",
    "register_estimand",
    "response_type_bounds",
    "unit_selection_bounds",
    "unpack_atoms",
]
