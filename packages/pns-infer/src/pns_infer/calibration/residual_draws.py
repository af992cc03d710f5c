"""Draws and means of a cell's law, given a model, counts and settings.

See `residual_profile` for the model and how its settings are judged. A draw is a
compatible law by construction: mu is moved to the nearest value that the drawn p admits.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Num

from pns_infer.calibration.residual_profile import ResidualProfile, ResidualSettings
from pns_infer.core import inputs

Array = Any  # NumPy or JAX


def draw_residual(
    rngs: Sequence[np.random.Generator],
    draws: pb.Atoms,
    observational: Num[Array, "n treatments levels"],
    experimental: Num[Array, "n treatments levels"],
    settings: ResidualSettings,
    is_rare: Bool[np.ndarray, " n"] | bool = False,
) -> pb.Atoms:
    """Draws the laws of cells, given draws of the model and the cells' counts.

    There is one generator for each cell, so that its draws do not depend on the others.
    Settings are those of each draw, or one of each for all; `draw_scale` is not read. A
    new cell has counts of 0. The result has the dtype of the model's draws.

    Example:
      >>> draws = pb.Atoms(np.full((2000, 1, 2, 2), 0.25), np.full((2000, 1, 2), 0.5))
      >>> tables = np.array([[[[0, 0], [0, 0]]], [[[50, 50], [40, 60]]]])
      >>> settings = ResidualSettings(*np.array([[1.0], [100], [100], [1], [1], [1]]))
      >>> drawn = draw_residual([np.random.default_rng(0)], draws, *tables, settings)
      >>> round(float(drawn.mu[:, 0, 1].mean()), 2)  # (100 * 0.5 + 60) / (100 + 100)
      0.55
    """
    draws = inputs.checked_atoms("draws", draws, ("num_draws", "n"))
    joint, mu = (np.asarray(part) for part in draws)
    num_draws, n = mu.shape[:2]
    if len(rngs) != n:
        raise pb.InputError("rngs", f"must be {n}, one for each cell, got {len(rngs)}.")
    _check_settings(settings, (1, num_draws))
    counts = inputs.trial_counts(observational, experimental, n)
    rare = np.broadcast_to(is_rare, n)
    # The draws of a cell are contiguous in memory.
    dtype = np.result_type(joint, np.float32)
    cells = np.empty((n, pb.BINARY.num_cells, num_draws), dtype)
    arms = np.empty((n, pb.BINARY.num_treatments, num_draws), dtype)

    def draw(i: int) -> None:
        factor = settings.rare_factor if rare[i] else np.ones(1)
        shapes = []
        laws = inputs.trial_laws(pb.Atoms(joint[:, i], mu[:, i]))
        for source, law, count in zip(inputs.SOURCES, laws, counts, strict=True):
            strength, share = settings.of_source(source)
            prior = (strength * factor)[:, None, None] * law
            shapes.append(prior + share[:, None, None] * count[i])
        cells[i] = _draw_dirichlet(rngs[i], shapes[0])[0]
        arms[i] = _draw_dirichlet(rngs[i], shapes[1])[:, 1]

    list(inputs.map_threads(draw, range(n)))
    drawn = np.moveaxis(cells.reshape(n, *pb.BINARY.joint_shape, num_draws), -1, 0)
    return pb.project_to_compatible(pb.Atoms(drawn, np.moveaxis(arms, -1, 0)))


def residual_mean(
    atoms: pb.Atoms,
    observational: Num[Array, "n treatments levels"],
    experimental: Num[Array, "n treatments levels"],
    profile: ResidualProfile,
    is_rare: Bool[np.ndarray, " n"] | bool = False,
) -> pb.Atoms:
    """Combines estimates and counts of cells: the mean of `draw_residual`, projected.

    As in draws with settings from `profile.sample`, what is averaged over the profile
    is the weight of the model that follows from the settings, not the settings
    themselves. The result has the dtype of the model's atoms.

    Example:
      >>> atoms = pb.Atoms(np.full((1, 2, 2), 0.25), np.full((1, 2), 0.5))
      >>> tables = np.array([[[[0, 0], [0, 0]]], [[[50, 50], [40, 60]]]])
      >>> strength, one = np.array([25.0, 100.0]), np.ones(2)
      >>> settings = ResidualSettings(one, strength, strength, one, one, one)
      >>> profile = ResidualProfile(settings, one / 2, 0 * one, rare_size=0)
      >>> found = residual_mean(atoms, *tables, profile)
      >>> round(float(found.mu[0, 1]), 3)  # weights 0.2, 0.5: 0.35 * 0.5 + 0.65 * 0.6
      0.565
    """
    atoms = inputs.checked_atoms("atoms", atoms, ("n",))
    _check_settings(profile.settings, (len(profile.weight),))
    n = len(atoms.mu)
    rare = np.broadcast_to(is_rare, n)[:, None, None]
    counts = inputs.trial_counts(observational, experimental, n)
    laws = []
    for source, law, count in zip(
        inputs.SOURCES, inputs.trial_laws(atoms), counts, strict=True
    ):
        size = count.sum(axis=-1, keepdims=True)
        weight = profile.model_weight(source, size, rare)  # 1 without units
        mixed = weight * law + (1 - weight) * count / np.maximum(size, 1e-300)
        laws.append(mixed / mixed.sum(axis=-1, keepdims=True))
    dtype = np.asarray(atoms.mu).dtype
    joint = laws[0].reshape(n, *pb.BINARY.joint_shape).astype(dtype)
    return pb.project_to_compatible(pb.Atoms(joint, laws[1][..., 1].astype(dtype)))


def _check_settings(settings: ResidualSettings, sizes: tuple[int, ...]) -> None:
    for name, values in zip(settings._fields[1:], settings[1:], strict=True):
        if values.ndim != 1 or len(values) not in sizes:
            raise pb.InputError(
                name,
                f"must hold {' or '.join(map(str, sizes))} numbers, got shape "
                f"{list(values.shape)}.",
            )
        if name.endswith("share"):
            if not (values.min() >= 0 and values.max() <= 1):
                raise pb.InputError(name, "must lie between 0 and 1.")
        elif not (values.min() > 0 and values.max() < np.inf):
            raise pb.InputError(name, "must be positive and finite.")


def _draw_dirichlet(
    rng: np.random.Generator, shape: Float[np.ndarray, "num_draws trials outcomes"]
) -> Float[np.ndarray, "trials outcomes num_draws"]:
    """Draws from each Dirichlet; the draws are on the last axis of the result."""
    shape = np.maximum(shape, 1e-3)
    gamma = rng.standard_gamma(shape)
    # Proportions do not depend on their total: one that underflowed is drawn again.
    while np.any(lost := gamma.sum(axis=-1) == 0):
        gamma[lost] = rng.standard_gamma(shape[lost])
    gamma = np.ascontiguousarray(np.moveaxis(gamma, 0, -1))
    return gamma / gamma.sum(axis=1, keepdims=True)
