"""Covariances without a network: of cell frequencies, of terms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Num

from pns_infer.core.inputs import check_shape

Array = Any  # NumPy or JAX


def frequency_covariance(
    observational: Num[Array, "num_points treatments levels"],
    experimental: Num[Array, "num_points treatments levels"],
    smoothing: float = 0.0,
) -> Float[np.ndarray, "num_points eta eta"]:
    """Computes the covariance of cell frequencies as estimates of the atoms.

    It is over eta = (mu1, mu0, p11, p10, p01, p00), as `pns_bounds.pack_atoms`. Units
    may be added to each cell for the variances alone: a smoothing of 0.5 or 1 keeps an
    empty cell from having no variance.

    Example:
      >>> tables = [[[20, 30], [10, 40]]], [[[50, 50], [20, 80]]]
      >>> covariance = frequency_covariance(*tables)[0]
      >>> round(float(covariance[0, 0]), 6)  # 0.8 (1 - 0.8) / 100
      0.0016
    """
    observational = np.asarray(observational, float)
    experimental = np.asarray(experimental, float)
    # Checks shapes and counts, and that every stratum has units in both arms.
    pb.atoms_from_counts(observational, experimental)
    atoms = pb.atoms_from_counts(observational + smoothing, experimental + smoothing)
    eta = pb.pack_atoms(atoms)
    num_units = (observational + smoothing).sum(axis=(-2, -1))
    arms = (experimental + smoothing).sum(axis=-1)
    covariance = np.zeros((*eta.shape, eta.shape[-1]))
    size = (
        pb.BINARY.num_free
    )  # of mu, which comes first, the last arm before the others
    mu, joint = eta[..., :size], eta[..., size:]
    covariance[..., range(size), range(size)] = mu * (1 - mu) / arms[..., ::-1]
    multinomial = (
        joint[..., None] * np.eye(joint.shape[-1])
        - joint[..., :, None] * joint[..., None, :]
    )
    covariance[..., size:, size:] = multinomial / num_units[..., None, None]
    return covariance


def term_covariance(
    atoms: pb.Atoms,
    covariance: Float[Array, "num_points eta eta"],
    estimand: pb.Estimand,
) -> tuple[pb.BoundTerms, Float[np.ndarray, "num_points num_terms num_terms"]]:
    """Computes terms and their covariance from atoms and theirs, by the delta method.

    Exact for estimands whose terms are linear in the atoms, such as PNS and HARM.

    Returns:
      Terms [num_points, num_terms] and the covariance of lower and upper together.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> tables = np.array([[[[20, 30], [10, 40]]], [[[65, 35], [20, 80]]]])
      >>> atoms = pb.atoms_from_counts(*tables)
      >>> covariance = frequency_covariance(*tables)
      >>> terms, found = term_covariance(atoms, covariance, pb.PNS)
      >>> round(float(found[0, 0, 0]), 6)  # (0.8 * 0.2 + 0.35 * 0.65) / 100
      0.003875
    """
    covariance = np.asarray(covariance, float)
    atoms = pb.Atoms(*(np.asarray(part, float) for part in atoms))
    eta = pb.pack_atoms(atoms)
    what = ", over eta = (mu1, mu0, p11, p10, p01, p00)"
    check_shape("covariance", covariance, (*eta.shape, eta.shape[-1]), what)
    terms = estimand.terms(atoms)
    jacobian = _jacobian(estimand, atoms)
    return terms, jacobian @ covariance @ np.swapaxes(jacobian, -1, -2)


def _jacobian(
    estimand: pb.Estimand, atoms: pb.Atoms
) -> Float[np.ndarray, "num_points num_terms eta"]:
    """Differentiates terms by eta at each point."""
    if estimand.is_linear:
        matrix = np.array(estimand.lower_matrix + estimand.upper_matrix)
        return np.broadcast_to(matrix, (*atoms.mu.shape[:-1], *matrix.shape))

    def terms(eta: jax.Array) -> jax.Array:
        return jnp.concatenate(estimand.terms(pb.unpack_atoms(eta)), axis=-1)

    return np.asarray(jax.vmap(jax.jacfwd(terms))(pb.pack_atoms(atoms)), float)
