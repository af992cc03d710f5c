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
from pns_infer.core.inputs import checked_counts
from pns_infer.core.threads import run_threads

Array = Any  # NumPy or JAX


def draw_residual(
    rngs: Sequence[np.random.Generator],
    draws: pb.Atoms,
    observational: Num[Array, "n 2 2"],
    experimental: Num[Array, "n 2 2"],
    settings: ResidualSettings,
    is_rare: Bool[np.ndarray, " n"] | None = None,
) -> pb.Atoms:
    """Draws the laws of cells, given draws of the model and the cells' counts.

    Args:
      rngs: one for each cell, so that its draws do not depend on the others.
      draws: [num_draws, n] atoms of the model.
      observational: counts of each cell `[x, y]`, 0 if it is new.
      experimental: counts `[arm, y]`.
      settings: of each draw, or one of each for all; `draw_scale` is not read.
      is_rare: which cells are rare; none if None.

    Returns:
      Compatible atoms [num_draws, n], with the dtype of the model's.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from pns_infer import ResidualSettings
      >>> draws = pb.Atoms(np.full((2000, 1, 2, 2), 0.25), np.full((2000, 1, 2), 0.5))
      >>> tables = np.array([[[[0, 0], [0, 0]]], [[[50, 50], [40, 60]]]])
      >>> settings = ResidualSettings(*np.array([[1.0], [100], [100], [1], [1], [1]]))
      >>> drawn = draw_residual([np.random.default_rng(0)], draws, *tables, settings)
      >>> round(float(drawn.mu[:, 0, 1].mean()), 2)  # (100 * 0.5 + 60) / (100 + 100)
      0.55
      >>> round(float(drawn.mu[:, 0, 1].std()), 3)  # (0.55 * 0.45 / 201) ** 0.5
      0.036
    """
    joint, mu = (np.asarray(part) for part in draws)
    if mu.ndim != 3 or mu.shape[2] != 2 or joint.shape != (*mu.shape, 2):
        raise ValueError(
            "draws must be atoms of cells, joint [num_draws, n, 2, 2] and mu "
            f"[num_draws, n, 2], got {list(joint.shape)} and {list(mu.shape)}."
        )
    num_draws, n = mu.shape[:2]
    if len(rngs) != n:
        raise ValueError(f"rngs must be {n}, one for each cell, got {len(rngs)}.")
    _check_settings(settings, (1, num_draws))
    counts = [
        checked_counts("observational", observational, (n, 2, 2)).reshape(n, 1, 4),
        checked_counts("experimental", experimental, (n, 2, 2)),
    ]
    factors = _rare_factors(settings, is_rare, n)  # [draws or 1, n]
    # The draws of a cell lie side by side in memory.
    cells = np.empty((n, 4, num_draws), np.result_type(joint, np.float32))
    arms = np.empty((n, 2, num_draws), cells.dtype)

    def draw(i: int) -> None:
        laws = [
            joint[:, i].reshape(num_draws, 1, 4).astype(float),
            np.stack([1.0 - mu[:, i], mu[:, i]], axis=-1),
        ]
        shapes = _posterior_shapes(
            laws, [part[i] for part in counts], settings, factors[:, i]
        )
        cells[i] = _draw_dirichlet(rngs[i], shapes[0])[0]
        arms[i] = _draw_dirichlet(rngs[i], shapes[1])[:, 1]

    run_threads(draw, range(n))
    drawn = np.moveaxis(cells.reshape(n, 2, 2, num_draws), -1, 0)
    return pb.project_to_compatible(pb.Atoms(drawn, np.moveaxis(arms, -1, 0)))


def _posterior_shapes(
    laws: list[Float[np.ndarray, "num_draws tables outcomes"]],
    counts: list[Float[np.ndarray, "tables outcomes"]],
    settings: ResidualSettings,
    factor: Float[np.ndarray, " settings"],
) -> list[Float[np.ndarray, "num_draws tables outcomes"]]:
    """Adds a cell's counts to the model's word, by source: a Dirichlet's parameters."""
    strengths = (settings.observational_strength, settings.experimental_strength)
    shares = (settings.observational_share, settings.experimental_share)
    return [
        (strength * factor)[:, None, None] * law + share[:, None, None] * count
        for law, count, strength, share in zip(
            laws, counts, strengths, shares, strict=True
        )
    ]


def residual_mean(
    atoms: pb.Atoms,
    observational: Num[Array, "n 2 2"],
    experimental: Num[Array, "n 2 2"],
    profile: ResidualProfile,
    is_rare: Bool[np.ndarray, " n"] | None = None,
) -> pb.Atoms:
    """Combines estimates and counts of cells: the mean of `draw_residual`, projected.

    Settings are averaged over as draws with settings from `profile.sample` do: not they
    themselves but the weights that follow from them.

    Args:
      atoms: [n] of the model.
      observational: counts of each cell.
      experimental: counts of each cell.
      profile: of the settings.
      is_rare: which cells are rare; none if None.

    Returns:
      Compatible atoms [n], with the dtype of the model's.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from pns_infer import ResidualProfile, ResidualSettings
      >>> atoms = pb.Atoms(np.full((1, 2, 2), 0.25), np.full((1, 2), 0.5))
      >>> tables = np.array([[[[0, 0], [0, 0]]], [[[50, 50], [40, 60]]]])
      >>> strength, one = np.array([25.0, 100.0]), np.ones(2)
      >>> settings = ResidualSettings(one, strength, strength, one, one, one)
      >>> profile = ResidualProfile(settings, one / 2, 0 * one, rare_size=0)
      >>> found = residual_mean(atoms, *tables, profile)
      >>> round(float(found.mu[0, 1]), 3)  # weights 0.2, 0.5: 0.35 * 0.5 + 0.65 * 0.6
      0.565
    """
    dtype = np.asarray(atoms.mu).dtype
    joint, mu = _checked_atoms("atoms", atoms)
    _check_settings(profile.settings, (len(profile.weight),))
    shape = (len(mu), 2, 2)
    observational = checked_counts("observational", observational, shape)
    experimental = checked_counts("experimental", experimental, shape)
    outcome = np.stack([1 - mu, mu], axis=-1)
    is_rare = np.zeros(len(mu), bool) if is_rare is None else np.asarray(is_rare)
    is_rare = is_rare[:, None, None]

    def average(
        source: str, law: np.ndarray, counts: np.ndarray, axes: tuple[int, ...]
    ) -> np.ndarray:
        size = counts.sum(axis=axes, keepdims=True)
        weight = profile.model_weight(source, size, is_rare)  # 1 without units
        mixed = weight * law + (1 - weight) * counts / np.maximum(size, 1e-300)
        return mixed / mixed.sum(axis=axes, keepdims=True)

    joint = average("observational", joint, observational, (-2, -1))
    mu = average("experimental", outcome, experimental, (-1,))[..., 1]
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
        if name.endswith("share"):
            if not (values.min() >= 0 and values.max() <= 1):
                raise ValueError(f"{name} must lie between 0 and 1.")
        elif not (values.min() > 0 and values.max() < np.inf):
            raise ValueError(f"{name} must be positive and finite.")


def _rare_factors(
    settings: ResidualSettings, is_rare: Bool[np.ndarray, " n"] | None, size: int
) -> Float[np.ndarray, "settings n"]:
    """Returns the factors of the strengths of each cell."""
    is_rare = np.zeros(size, bool) if is_rare is None else np.asarray(is_rare)
    return np.where(is_rare, settings.rare_factor[:, None], 1.0)


def _draw_dirichlet(
    rng: np.random.Generator, shape: Float[np.ndarray, "num_draws tables outcomes"]
) -> Float[np.ndarray, "tables outcomes num_draws"]:
    """Draws from each Dirichlet; the draws are on the last axis of the result."""
    shape = np.maximum(shape, 1e-3)
    gamma = rng.standard_gamma(shape)
    # Proportions do not depend on their total: one that underflowed is drawn again.
    while np.any(lost := gamma.sum(axis=-1) == 0):
        gamma[lost] = rng.standard_gamma(shape[lost])
    gamma = np.ascontiguousarray(np.moveaxis(gamma, 0, -1))
    return gamma / gamma.sum(axis=1, keepdims=True)
