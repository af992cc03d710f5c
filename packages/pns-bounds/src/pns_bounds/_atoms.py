"""The probabilities from which every bound is computed.

Symbols, as in the paper: X is the treatment, Y the outcome, both binary, Z the
covariates. All probabilities are conditional on Z = z; leading axes run over z,
over draws of an estimator, or over both.
"""

from typing import Any, NamedTuple

import numpy as np

from pns_bounds._arguments import (
    Array,
    as_floating,
    namespace,
    require_rows,
    require_same_rows,
    require_shape,
    shaped_pair,
)
from pns_bounds._layout import BINARY, Layout


class Atoms(NamedTuple):
    """Observational and interventional probabilities (the paper's eta).

    Attributes:
      joint: [..., 2, 2], `joint[..., x, y]` is P(X=x, Y=y | z).
      mu: [..., 2], `mu[..., x]` is P(Y=1 | do(X=x), z).
    """

    joint: Array
    mu: Array


def pack_atoms(atoms: Atoms) -> Array:
    """Arranges atoms as eta = (mu1, mu0, p11, p10, p01, p00) [..., 6].

    Only shapes are checked.

    Example:
      >>> pack_atoms(Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8])).tolist()
      [0.8, 0.35, 0.4, 0.1, 0.3, 0.2]
    """
    columns = eta_columns(Atoms(*shaped_pair(*atoms)))
    return namespace(*columns).stack(columns, axis=-1)


def unpack_atoms(eta: Any) -> Atoms:
    """Arranges eta [..., 6] as atoms: the inverse of `pack_atoms`.

    Example:
      >>> unpack_atoms([0.8, 0.35, 0.4, 0.1, 0.3, 0.2]).joint.tolist()
      [[0.2, 0.3], [0.1, 0.4]]
    """
    (eta,) = as_floating(eta=eta)
    require_shape("eta", eta, (BINARY.num_raw,))
    rows, values = eta.shape[:-1], eta[..., ::-1]
    joint, mu = values[..., : BINARY.num_cells], values[..., BINARY.num_cells :]
    return Atoms(
        joint=joint.reshape(*rows, *BINARY.joint_shape),
        mu=mu.reshape(*rows, *BINARY.mu_shape),
    )


def eta_columns(atoms: Atoms, layout: Layout = BINARY) -> list[Any]:
    """Lists the columns [...] of eta; None for those of a part that is None."""
    columns = []
    for part, shape in ((atoms.mu, layout.mu_shape), (atoms.joint, layout.joint_shape)):
        for place in reversed(list(np.ndindex(shape))):
            columns.append(None if part is None else part[(..., *place)])
    return columns


def atoms_from_counts(observational: Any, experimental: Any) -> Atoms:
    """Computes the cell frequencies of an observational and an experimental table.

    Counts [..., 2, 2] are those of units that chose x, or were assigned x, and had y:
    `[..., x, y]`. Frequencies carry sampling error, so they may contradict each other a
    little even where the two tables agree: see `is_compatible`.

    Example:
      >>> atoms_from_counts([[9, 21], [51, 19]], [[79, 21], [51, 49]]).mu.tolist()
      [0.21, 0.49]
    """
    observational, experimental = as_floating(
        observational=observational, experimental=experimental
    )
    xp = namespace(observational)
    totals = []
    for name, counts, axes, where in (
        ("observational", observational, (-2, -1), "every row"),
        ("experimental", experimental, (-1,), "each arm of every row"),
    ):
        require_shape(name, counts, BINARY.joint_shape)
        require_rows(
            name,
            xp.all(xp.isfinite(counts) & (counts >= 0), axis=(-2, -1)),
            counts,
            "must be finite and not negative",
            "Give the number of units in each cell [x, y].",
        )
        total = xp.sum(counts, axis=axes, keepdims=True)
        require_rows(
            name,
            xp.all(xp.isfinite(total) & (total > 0), axis=(-2, -1)),
            counts,
            f"needs a unit in {where}, and totals that its format holds",
            "Merge this stratum with another; give large counts in float64.",
        )
        totals.append(total)
    rows = (observational.shape[:-2], experimental.shape[:-2])
    require_same_rows("observational", rows[0], "experimental", rows[1])
    joint = observational / totals[0]
    return Atoms(joint, mu=experimental[..., 1] / totals[1][..., 0])
