"""Small worlds for the study of averages: what is hard about an average, one at a time.

Response types follow a softmax of the covariates and the choice of treatment depends on
the type, so that the log is confounded. Everything a table needs has a known truth.
"""

import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import numpy as np
import pns_bounds as pb
import pns_dgp
from jaxtyping import Bool, Float, Int

Assignment = Literal["half", "unequal", "covariates"]
_TYPES = ("never", "complier", "defier", "always")
_SLOPES = np.array(  # of each type's logit, by covariate
    [[0.6, -0.4, 0.3, 0.0], [0.9, 0.5, -0.6, 0.3], [-0.9, 0.4, 0.2, -0.5], [0, 0, 0, 0]]
)
_CHOICE = np.array([-0.8, 0.9, -1.2, 0.5])  # logit of choosing, by type
_TILT = 0.7  # how far a law that differs leans to large first covariates


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What is hard here.

    Attributes:
      model: 'li_1', or 'types' for the world of this module.
      has_effect: without one, all lower terms tie at 0.
      never: added to the logit of never responding; large for a rare outcome.
      assignment: how the trial assigned.
      is_shifted: whether the trial's covariates have another law.
      is_weighted: whether both tables are biased samples with weights.
      household: units that share covariates, arm and, often, response type.
    """

    model: str = "types"
    has_effect: bool = True
    never: float = 0.0
    assignment: Assignment = "half"
    is_shifted: bool = False
    is_weighted: bool = False
    household: int = 1


SCENARIOS = {
    "li_1": Scenario(model="li_1"),
    "changing_terms": Scenario(),
    "no_effect": Scenario(has_effect=False),
    "weights": Scenario(is_weighted=True),
    "clusters": Scenario(household=4),
    "unequal_assignment": Scenario(assignment="unequal"),
    "assignment_by_covariates": Scenario(assignment="covariates"),
    "laws_differ": Scenario(is_shifted=True),
    "rare_outcome": Scenario(never=5.1),
}


class Rows(NamedTuple):
    """Both tables in one, and what only the truth knows.

    Attributes:
      z: covariates.
      is_experimental: which source.
      x: choice or arm.
      y: outcome.
      weights: inverse of how likely a unit was to be sampled.
      household: number of the unit's household.
      assignment: probability of arm 1.
      truth: atoms of each row.
      chance: true probability to be experimental, given covariates.
    """

    z: Float[np.ndarray, "n d"]
    is_experimental: Bool[np.ndarray, " n"]
    x: Int[np.ndarray, " n"]
    y: Int[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]
    household: Int[np.ndarray, " n"]
    assignment: Float[np.ndarray, " n"]
    truth: pb.Atoms
    chance: Float[np.ndarray, " n"]


def draw_rows(scenario: Scenario, seed: list[int], sizes: tuple[int, int]) -> Rows:
    """Draws both tables of a replicate."""
    if scenario.model == "li_1":
        return _draw_li(seed, sizes)
    rng = np.random.default_rng(seed)
    counts = [size // scenario.household for size in sizes]
    tilted = (scenario.is_weighted, scenario.is_weighted or scenario.is_shifted)
    z = np.concatenate(
        [draw_covariates(rng, n, tilt) for n, tilt in zip(counts, tilted, strict=True)]
    )
    household = np.repeat(np.arange(len(z)), scenario.household)
    is_experimental = np.repeat([False, True], counts)[household]
    arm_uniform = rng.random(len(z))[household]
    z = z[household]
    kind = _draw_types(rng, scenario, z)
    assignment = _assignment(scenario, z)
    choice = _sigmoid(_CHOICE[kind] + 0.5 * z[:, 1])
    treated = np.where(
        is_experimental, arm_uniform < assignment, rng.random(len(z)) < choice
    )
    y = np.where(treated, np.isin(kind, (1, 3)), np.isin(kind, (2, 3)))
    ratio = tilt_ratio(z) if scenario.is_shifted else np.ones(len(z))
    weights = 1 / tilt_ratio(z) if scenario.is_weighted else np.ones(len(z))
    return Rows(
        z=z,
        is_experimental=is_experimental,
        x=treated.astype(int),
        y=y.astype(int),
        weights=weights,
        household=household,
        assignment=assignment,
        truth=true_atoms(scenario, z),
        chance=sizes[1] * ratio / (sizes[0] + sizes[1] * ratio),
    )


@functools.lru_cache(maxsize=16)
def identified_set(
    scenario: Scenario, sizes: tuple[int, int], count: int = 400_000
) -> tuple[float, float]:
    """Computes the identified set of the average PNS over the target of both tables.

    The mean of many units: its standard error is below 0.0005.
    """
    if scenario.model == "li_1":
        model = pns_dgp.li_model_1()
        z = np.asarray(model.sample_population(jax.random.key(7), count // 4).z)
        rows, times = np.unique(z, axis=0, return_counts=True)
        bounds = model.oracle(rows).interval
        low, high = (float(np.average(end, weights=times)) for end in bounds)
        return low, high
    z = draw_covariates(np.random.default_rng(7), count, tilted=False)
    share = np.full(count, 1.0)
    if scenario.is_shifted:
        share = (sizes[0] + sizes[1] * tilt_ratio(z)) / sum(sizes)
    bounds = pb.pns_bounds(true_atoms(scenario, z))
    low, high = (float(np.average(end, weights=share)) for end in bounds)
    return low, high


def draw_covariates(
    rng: np.random.Generator, count: int, tilted: bool
) -> Float[np.ndarray, "count 4"]:
    """Draws two uniform and two binary covariates; tilted ones lean upward."""
    z = np.concatenate(
        [rng.uniform(-1, 1, (count, 2)), rng.choice([-1.0, 1.0], (count, 2))], axis=1
    )
    if tilted:  # rejection: a uniform u becomes one with density 1 + tilt u
        flip = rng.random(count) * 2 > 1 + _TILT * z[:, 0]
        z[flip, 0] *= -1
    return z


def tilt_ratio(z: Float[np.ndarray, "n 4"]) -> Float[np.ndarray, " n"]:
    """Returns the density of tilted covariates over that of others."""
    return 1 + _TILT * z[:, 0]


def true_atoms(scenario: Scenario, z: Float[np.ndarray, "n 4"]) -> pb.Atoms:
    """Sums types and choices."""
    law = _type_law(scenario, z)
    choice = _sigmoid(_CHOICE + 0.5 * z[:, 1:2])
    joint = np.zeros((len(z), *pb.BINARY.joint_shape))
    for kind in range(len(_TYPES)):
        y1, y0 = int(kind in (1, 3)), int(kind in (2, 3))
        joint[:, 1, y1] += law[:, kind] * choice[:, kind]
        joint[:, 0, y0] += law[:, kind] * (1 - choice[:, kind])
    mu = np.stack([law[:, 2] + law[:, 3], law[:, 1] + law[:, 3]], axis=1)
    return pb.Atoms(joint, mu)


def _draw_types(
    rng: np.random.Generator, scenario: Scenario, z: Float[np.ndarray, "n 4"]
) -> Int[np.ndarray, " n"]:
    """Draws types; six in ten have that of the first of their household."""
    uniform = rng.random(len(z))
    if scenario.household > 1:
        first = uniform[:: scenario.household].repeat(scenario.household)
        uniform = np.where(rng.random(len(z)) < 0.6, first, uniform)
    ladder = np.cumsum(_type_law(scenario, z), axis=1)
    return np.minimum((uniform[:, None] > ladder).sum(axis=1), 3)


def _type_law(
    scenario: Scenario, z: Float[np.ndarray, "n 4"]
) -> Float[np.ndarray, "n 4"]:
    logit = z @ _SLOPES.T
    logit[:, 0] += scenario.never
    if not scenario.has_effect:
        logit[:, 1:3] = -np.inf
    mass = np.exp(logit)
    return mass / mass.sum(axis=1, keepdims=True)


def _assignment(
    scenario: Scenario, z: Float[np.ndarray, "n 4"]
) -> Float[np.ndarray, " n"]:
    return {
        "half": np.full(len(z), 0.5),
        "unequal": np.full(len(z), 0.2),
        "covariates": 0.25 + 0.5 * (z[:, 2] > 0),
    }[scenario.assignment]


def _draw_li(seed: list[int], sizes: tuple[int, int]) -> Rows:
    model = pns_dgp.li_model_1()
    key = jax.random.key(int(np.random.default_rng(seed).integers(2**31)))
    tables = [
        model.sample(key, size, source)
        for size, source in zip(sizes, pns_dgp.SOURCES, strict=True)
    ]
    z, x, y = (
        np.concatenate([np.asarray(part) for part in parts])
        for parts in zip(*tables, strict=True)
    )
    count = len(x)
    return Rows(
        z=z.astype(float),
        is_experimental=np.repeat([False, True], sizes),
        x=x.astype(int),
        y=y.astype(int),
        weights=np.ones(count),
        household=np.arange(count),
        assignment=np.full(count, 0.5),
        truth=model.oracle(z).atoms,
        chance=np.full(count, sizes[1] / count),
    )


def _sigmoid(logit: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return 1 / (1 + np.exp(-logit))
