"""Covariances that people without a network have: of cell frequencies, of terms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb


def frequency_covariance(
    observational: Any, experimental: Any, smoothing: float = 0.0
) -> np.ndarray:
    """Computes the covariance of cell frequencies as estimates of the atoms.

    Args:
      observational: [num_points, 2, 2] counts, `[..., x, y]`.
      experimental: [num_points, 2, 2] counts, `[..., arm, y]`.
      smoothing: people added to each cell for the variances alone; 0.5 or 1 keeps a
        cell that happens to be empty from having no variance.

    Returns:
      [num_points, 6, 6] over eta = (mu1, mu0, p11, p10, p01, p00).
    """
    observational = np.asarray(observational, float)
    experimental = np.asarray(experimental, float)
    # Checks shapes and counts, and that every stratum has people in both arms.
    pb.atoms_from_counts(observational, experimental)
    atoms = pb.atoms_from_counts(observational + smoothing, experimental + smoothing)
    eta = pb.pack_atoms(atoms)
    people = (observational + smoothing).sum(axis=(-2, -1))
    arms = (experimental + smoothing).sum(axis=-1)
    covariance = np.zeros((*eta.shape, 6))
    for place, arm in ((0, 1), (1, 0)):
        mu = eta[..., place]
        covariance[..., place, place] = mu * (1 - mu) / arms[..., arm]
    joint = eta[..., 2:]
    multinomial = (
        joint[..., None] * np.eye(4) - joint[..., :, None] * joint[..., None, :]
    )
    covariance[..., 2:, 2:] = multinomial / people[..., None, None]
    return covariance


def term_covariance(
    atoms: pb.Atoms, covariance: Any, estimand: pb.Estimand
) -> tuple[pb.BoundTerms, np.ndarray]:
    """Computes terms and their covariance from atoms and theirs, by the delta method.

    Exact for estimands that are linear in the atoms, such as PNS and HARM.

    Args:
      atoms: estimates [num_points].
      covariance: [num_points, 6, 6] over eta = (mu1, mu0, p11, p10, p01, p00).
      estimand: what the terms bound.

    Returns:
      Terms [num_points, num_terms] and the covariance of lower and upper together.
    """
    covariance = np.asarray(covariance, float)
    atoms = pb.Atoms(*(np.asarray(part, float) for part in atoms))
    if covariance.shape != (*atoms.mu.shape[:-1], 6, 6):
        raise ValueError(
            f"covariance must have shape {[*atoms.mu.shape[:-1], 6, 6]}, over eta = "
            f"(mu1, mu0, p11, p10, p01, p00), got {list(covariance.shape)}."
        )
    terms = estimand.terms(atoms)
    jacobian = _jacobian(estimand, atoms)
    return terms, jacobian @ covariance @ np.swapaxes(jacobian, -1, -2)


def _jacobian(estimand: pb.Estimand, atoms: pb.Atoms) -> np.ndarray:
    """Differentiates terms by eta at each point: [num_points, num_terms, 6]."""

    def terms(eta: jax.Array) -> jax.Array:
        return jnp.concatenate(estimand.terms(pb.unpack_atoms(eta)), axis=-1)

    return np.asarray(jax.vmap(jax.jacfwd(terms))(pb.pack_atoms(atoms)), float)
