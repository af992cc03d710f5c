"""The six probabilities from which every bound is computed.

Symbols, as in the paper: X is the treatment, Y the outcome, both binary, Z the
covariates. All probabilities are conditional on Z = z; leading axes run over z,
over draws of an estimator, or over both.
"""

from typing import Any, NamedTuple

from pns_bounds._arrays import Array, as_floating, namespace
from pns_bounds._checks import (
    require_rows,
    require_same_rows,
    require_shape,
    shaped_pair,
)


class Atoms(NamedTuple):
    """Observational and interventional probabilities (the paper's eta).

    Attributes:
      joint: [..., 2, 2], `joint[..., x, y]` is P(X=x, Y=y | z).
      mu: [..., 2], `mu[..., x]` is P(Y=1 | do(X=x), z).
    """

    joint: Array
    mu: Array


# The order of the atoms as one vector (app. sec:pns-theory); p11 is joint[..., 1, 1].
ETA = ("mu1", "mu0", "p11", "p10", "p01", "p00")


def pack_atoms(atoms: Atoms) -> Array:
    """Arranges atoms as eta = (mu1, mu0, p11, p10, p01, p00).

    Args:
      atoms: joint [..., 2, 2] and mu [..., 2]; only shapes are checked.

    Returns:
      eta [..., 6].

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
    (eta,) = as_floating(eta)
    require_shape("eta", eta, (6,))
    return Atoms(
        joint=eta[..., :1:-1].reshape(*eta.shape[:-1], 2, 2), mu=eta[..., 1::-1]
    )


def eta_columns(atoms: Atoms) -> list[Array]:
    """Lists the six columns [...] of eta of atoms that are arrays."""
    joint, mu = atoms
    cells = [joint[..., x, y] for x in (1, 0) for y in (1, 0)]
    return [mu[..., 1], mu[..., 0], *cells]


def atoms_from_counts(observational: Any, experimental: Any) -> Atoms:
    """Computes the cell frequencies of an observational and an experimental table.

    Frequencies carry sampling error, so they may contradict each other a little even
    where the two tables agree: see `is_compatible` and `project_to_compatible`.

    Args:
      observational: [..., 2, 2] counts, `[..., x, y]` units that chose x and had y.
      experimental: [..., 2, 2] counts, `[..., x, y]` units assigned x that had y.

    Returns:
      Atoms with the leading dimensions of the counts.

    Example:
      >>> atoms_from_counts([[9, 21], [51, 19]], [[79, 21], [51, 49]]).mu.tolist()
      [0.21, 0.49]
    """
    observational, experimental = as_floating(observational, experimental)
    xp = namespace(observational)
    for name, counts in (
        ("observational", observational),
        ("experimental", experimental),
    ):
        require_shape(f"{name} counts", counts, (2, 2))
        require_rows(
            xp.all(xp.isfinite(counts) & (counts >= 0), axis=(-2, -1)),
            counts,
            f"{name} counts must be finite and not negative",
            "Give the number of units in each cell [x, y].",
        )
    require_same_rows(
        "observational and experimental counts",
        observational.shape[:-2],
        experimental.shape[:-2],
    )
    num_observed = xp.sum(observational, axis=(-2, -1))
    num_assigned = xp.sum(experimental, axis=-1)
    require_rows(
        xp.isfinite(num_observed) & (num_observed > 0),
        observational,
        "every row needs at least one observational unit, and a total that its format "
        "holds",
        "Merge this stratum with another; give large counts in float64.",
    )
    require_rows(
        xp.all(xp.isfinite(num_assigned) & (num_assigned > 0), axis=-1),
        experimental,
        "every row needs at least one unit in each arm of the experiment, and totals "
        "that their format holds",
        "Merge this stratum with another; give large counts in float64.",
    )
    return Atoms(
        joint=observational / num_observed[..., None, None],
        mu=experimental[..., 1] / num_assigned,
    )


def exchange_arms(atoms: Atoms) -> Atoms:
    """Renames treatment and control: X' = 1 - X.

    Who benefits from X is harmed by X', so the terms and bounds of the result are
    those of P(Y_1=0, Y_0=1 | z), the probability of harm.

    Example:
      >>> atoms = exchange_arms(Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8]))
      >>> atoms.mu.tolist()
      [0.8, 0.35]
    """
    joint, mu = shaped_pair(*atoms)
    return Atoms(joint=joint[..., ::-1, :], mu=mu[..., ::-1])


def flip_outcome(atoms: Atoms, arm: int) -> Atoms:
    """Renames the outcome of one arm: Y_arm' = 1 - Y_arm.

    PNS of the result is P(Y_1=1, Y_0=1 | z) for `arm=0` (those who always respond) and
    P(Y_1=0, Y_0=0 | z) for `arm=1` (those who never do).

    Example:
      >>> atoms = flip_outcome(Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8]), arm=0)
      >>> atoms.mu.round(3).tolist()
      [0.65, 0.8]
    """
    if arm not in (0, 1):
        raise ValueError(f"arm must be 0 (control) or 1 (treatment), got {arm!r}.")
    joint, mu = shaped_pair(*atoms)
    xp = namespace(joint)
    flipped = [x == arm for x in (0, 1)]
    return Atoms(
        joint=xp.stack(
            [joint[..., x, ::-1] if flipped[x] else joint[..., x, :] for x in (0, 1)],
            axis=-2,
        ),
        mu=xp.stack(
            [1 - mu[..., x] if flipped[x] else mu[..., x] for x in (0, 1)], axis=-1
        ),
    )
