"""Counting: what the people who share all covariates say, without any network.

The trivial answers that every method has to beat. Draws are those of Jeffreys' prior:
somebody whose covariates nobody shares is told nearly nothing.
"""

import dataclasses
from typing import Any, Literal

import jax
import numpy as np
import pns_bounds as pb
import pns_models as pm
from jaxtyping import Float, Key

_BLOCK = 256  # cells whose draws are made at a time


@dataclasses.dataclass(frozen=True)
class CountingRecipe:
    """Settings of counting.

    Attributes:
      prior: added to every count.
      num_draws: of each cell's law.
    """

    prior: float = 0.5
    num_draws: int = 2000

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return dict(vars(self))


def count_cells(
    counts: pm.Counts, z: Float[np.ndarray, "m d"]
) -> tuple[
    Float[np.ndarray, "m treatments levels"], Float[np.ndarray, "m treatments levels"]
]:
    """Finds the counts of people who share the covariates of each row; 0 if nobody does."""
    both = np.concatenate([np.asarray(counts.z, np.float32), np.asarray(z, np.float32)])
    _, group = pm.distinct_rows(both)
    known, asked = group[: len(counts.z)], group[len(counts.z) :]
    found = []
    for part in (counts.observational, counts.experimental):
        totals = np.zeros((group.max() + 1, *pb.BINARY.joint_shape))
        np.add.at(totals, known, np.asarray(part, float))
        found.append(totals[asked])
    return found[0], found[1]


def bound_by_counting(
    rng: np.random.Generator,
    observational: Float[np.ndarray, "m treatments levels"],
    experimental: Float[np.ndarray, "m treatments levels"],
    alpha: float,
    source: Literal["both", "trial"],
    recipe: CountingRecipe,
) -> pb.Interval:
    """Computes quantiles of the bounds over draws of each cell's law.

    Args:
      rng: decides the draws.
      observational: counts `[x, y]` of each cell.
      experimental: counts `[arm, y]`.
      alpha: shared by the two ends.
      source: 'trial' ignores the log.
      recipe: settings.
    """
    lower, upper = [], []
    for start in range(0, len(experimental), _BLOCK):
        part = slice(start, start + _BLOCK)
        shape = (recipe.num_draws, *experimental[part].shape)
        arms = rng.standard_gamma(experimental[part] + recipe.prior, shape)
        mu = arms[..., 1] / arms.sum(axis=-1)
        if source == "trial":
            ends = pb.experimental_only_bounds(mu)
        else:
            joint = rng.standard_gamma(observational[part] + recipe.prior, shape)
            joint /= joint.sum(axis=(-2, -1), keepdims=True)
            ends = pb.pns_bounds(pb.project_to_compatible(pb.Atoms(joint, mu)))
        lower.append(np.quantile(ends.lower, alpha / 2, axis=0))
        upper.append(np.quantile(ends.upper, 1 - alpha / 2, axis=0))
    return pb.Interval(np.concatenate(lower), np.concatenate(upper))


def estimate_by_counting(
    observational: Float[np.ndarray, "m treatments levels"],
    experimental: Float[np.ndarray, "m treatments levels"],
    prior: float,
) -> pb.Atoms:
    """Computes the frequencies of each cell, moved to the nearest compatible law."""
    joint, arms = observational + prior, experimental + prior
    joint = joint / joint.sum(axis=(-2, -1), keepdims=True)
    mu = arms[..., 1] / arms.sum(axis=-1)
    return pb.project_to_compatible(pb.Atoms(joint, mu))


def numpy_rng(key: Key[jax.Array, ""]) -> np.random.Generator:
    """Makes a generator that a key decides."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))
