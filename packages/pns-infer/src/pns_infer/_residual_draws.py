"""Draws and means of a cell's law, given a model, counts and settings.

See `_residual_profile` for the model and how its settings are judged. A draw is a
compatible law by construction: mu is moved to the nearest value that the drawn p admits.
"""

from typing import Any

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Num

from pns_infer._inputs import checked_counts
from pns_infer._residual_profile import ResidualSettings

Array = Any  # NumPy or JAX


def draw_residual(
    rng: np.random.Generator,
    draws: pb.Atoms,
    observational: Num[Array, "2 2"],
    experimental: Num[Array, "2 2"],
    settings: ResidualSettings,
    is_rare: bool = False,
) -> pb.Atoms:
    """Draws the law of one cell, given draws of the model and the cell's counts.

    Args:
      rng: decides the draws.
      draws: [num_draws] atoms of the model.
      observational: counts of the cell `[x, y]`, 0 if it is new.
      experimental: counts `[arm, y]`.
      settings: of each draw, or one of each for all; `draw_scale` is not read.
      is_rare: whether the cell is one of the rare ones.

    Returns:
      Compatible atoms [num_draws].
    """
    joint, mu = _checked_atoms("draws", draws)
    _check_settings(settings, (1, len(mu)))
    factor = settings.rare_factor if is_rare else 1.0
    joint = _shrunk(
        joint.reshape(-1, 1, 4),
        checked_counts("observational", observational, (2, 2)).reshape(1, 4),
        settings.observational_strength * factor,
        settings.observational_temperature,
    )
    arms = _shrunk(
        np.stack([1 - mu, mu], axis=-1),
        checked_counts("experimental", experimental, (2, 2)),
        settings.experimental_strength * factor,
        settings.experimental_temperature,
    )
    joint, arms = (_draw_dirichlet(rng, part) for part in (joint, arms))
    atoms = pb.Atoms(joint.reshape(-1, 2, 2), arms[..., 1])
    return pb.project_to_compatible(atoms)


def residual_mean(
    atoms: pb.Atoms,
    observational: Num[Array, "n 2 2"],
    experimental: Num[Array, "n 2 2"],
    settings: ResidualSettings,
    is_rare: Bool[np.ndarray, " n"] | None = None,
) -> pb.Atoms:
    """Combines estimates and counts of cells: the mean of `draw_residual`, projected.

    Args:
      atoms: [n] of the model.
      observational: counts of each cell.
      experimental: counts of each cell.
      settings: one of each.
      is_rare: which cells are rare; none if None.

    Returns:
      Compatible atoms [n], with the dtype of the model's.
    """
    dtype = np.asarray(atoms.mu).dtype
    joint, mu = _checked_atoms("atoms", atoms)
    _check_settings(settings, (1,))
    shape = (len(mu), 2, 2)
    observational = checked_counts("observational", observational, shape)
    experimental = checked_counts("experimental", experimental, shape)
    outcome = np.stack([1 - mu, mu], axis=-1)
    factor = np.ones(len(mu))
    if is_rare is not None:
        factor = np.where(is_rare, settings.rare_factor, 1.0)
    factor = factor[:, None, None]
    joint = factor * settings.observational_strength * joint + observational
    arms = factor * settings.experimental_strength * outcome + experimental
    joint = joint / joint.sum(axis=(-2, -1), keepdims=True)
    mu = arms[..., 1] / arms.sum(axis=-1)
    return pb.project_to_compatible(pb.Atoms(joint.astype(dtype), mu.astype(dtype)))


def _checked_atoms(
    name: str, atoms: pb.Atoms
) -> tuple[Float[np.ndarray, "n 2 2"], Float[np.ndarray, "n 2"]]:
    joint, mu = (np.asarray(part, float) for part in atoms)
    if mu.ndim != 2 or mu.shape[1] != 2 or joint.shape != (len(mu), 2, 2):
        raise ValueError(
            f"{name} must be a list of atoms, joint [n, 2, 2] and mu [n, 2], got "
            f"{list(joint.shape)} and {list(mu.shape)}."
        )
    return joint, mu


def _check_settings(settings: ResidualSettings, sizes: tuple[int, ...]) -> None:
    for name, values in zip(settings._fields[1:], settings[1:], strict=True):
        if values.ndim != 1 or len(values) not in sizes:
            raise ValueError(
                f"{name} must hold {' or '.join(map(str, sizes))} numbers, got shape "
                f"{list(values.shape)}."
            )
        if not (values.min() > 0 and values.max() < np.inf):
            raise ValueError(f"{name} must be positive and finite.")


def _shrunk(
    law: Float[np.ndarray, "num_draws trials outcomes"],
    counts: Num[np.ndarray, "trials outcomes"],
    strength: Float[np.ndarray, " num_draws"],
    temperature: Float[np.ndarray, " num_draws"],
) -> Float[np.ndarray, "num_draws trials outcomes"]:
    return (strength[:, None, None] * law + counts) / temperature[:, None, None]


def _draw_dirichlet(
    rng: np.random.Generator, shape: Float[np.ndarray, "... outcomes"]
) -> Float[np.ndarray, "... outcomes"]:
    shape = np.maximum(shape, 1e-3)
    gamma = rng.standard_gamma(shape)
    # Proportions do not depend on their total: one that underflowed is drawn again.
    while np.any(lost := gamma.sum(axis=-1) == 0):
        gamma[lost] = rng.standard_gamma(shape[lost])
    return gamma / gamma.sum(axis=-1, keepdims=True)
