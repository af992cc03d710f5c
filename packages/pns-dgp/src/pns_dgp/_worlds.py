"""Worlds of many kinds, for studies of whether a method covers tables unlike any other.

    Z: covariates of the family, some of them labels of categories
    H_j ~ Bernoulli(pi_j), hidden

See `IndexModel` for X and Y. A family says how Z is drawn and what the three functions f
look like; a seed names their coefficients. Each f is standardized over the law of Z, so a
family differs from another in shape and not in strength.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from pns_dgp._model import require
from pns_dgp._thresholds import NUM_INDICES, IndexModel

_NUM_HIDDEN = 3
_REFERENCE_ROWS = 4096  # on which the functions are standardized
_NUM_CITIES = 25

Rows = Float[np.ndarray, "n d"]
Function = Callable[[Rows], Float[np.ndarray, " n"]]


@dataclasses.dataclass(frozen=True)
class Family:
    """How covariates are drawn, and what functions of them look like."""

    covariates: Callable[[np.random.Generator, int], Rows]  # draws n rows
    function: Callable[[np.random.Generator], Function]  # draws one of the covariates
    intercept: float = 0.0  # of the outcomes' logits; far below 0: a rare outcome
    strength: float = 1.2  # standard deviation of the logits over the covariates
    categories: tuple[int, ...] = ()  # columns that hold labels, not numbers


def _normals(d: int) -> Callable[[np.random.Generator, int], Rows]:
    return lambda rng, n: rng.standard_normal((n, d))


def _linear(rng: np.random.Generator) -> Function:
    slopes = rng.standard_normal(8)
    return lambda z: z @ slopes


def _radial(rng: np.random.Generator) -> Function:
    """Distances from two centers, and a product."""
    centers, weights = rng.normal(0, 0.7, (2, 8)), rng.uniform(0.5, 1.5, 3)
    i, j = rng.choice(8, 2, replace=False)
    signs = rng.choice([-1, 1], 3)

    def radial(z: Rows) -> Float[np.ndarray, " n"]:
        parts = [np.linalg.norm(z - center, axis=-1) - 2.7 for center in centers]
        parts.append(0.5 * z[..., i] * z[..., j])
        return np.stack(parts, axis=-1) @ (weights * signs)

    return radial


def _trees(rng: np.random.Generator) -> Function:
    """Twelve complete trees of depth 3 over ten uniform covariates."""
    column, cut = rng.integers(0, 10, (12, 3)), rng.uniform(0.2, 0.8, (12, 3))
    leaves = rng.standard_normal((12, 8))

    def trees(z: Rows) -> Float[np.ndarray, " n"]:
        leaf = (z[..., column] > cut) @ [1, 2, 4]  # [n, num_trees]
        return np.take_along_axis(leaves, leaf.T, axis=1).sum(axis=0)

    return trees


def _mixed_covariates(rng: np.random.Generator, n: int) -> Rows:
    """Draws a city, visits, an income, an age in years and two coins."""
    shares = 1 / np.arange(1, _NUM_CITIES + 1)
    city = rng.choice(_NUM_CITIES, n, p=shares / shares.sum())
    visits, income = rng.negative_binomial(1.5, 0.3, n), rng.lognormal(3, 0.8, n)
    age, coins = rng.integers(18, 80, n), rng.integers(0, 2, (2, n))
    return np.stack([city, visits, income.round(1), age, *coins], axis=1).astype(float)


def _mixed(rng: np.random.Generator) -> Function:
    cities, slopes = rng.standard_normal(_NUM_CITIES), rng.standard_normal(5)
    peak = rng.uniform(30, 60)

    def mixed(z: Rows) -> Float[np.ndarray, " n"]:
        income, old = np.log(z[..., 2]) - 3, np.abs(z[..., 3] - peak) / 15
        parts = [np.sqrt(z[..., 1]), income, old, z[..., 4], z[..., 5] * income]
        return cities[z[..., 0].astype(int)] + np.stack(parts, axis=-1) @ slopes

    return mixed


def _sines(rng: np.random.Generator) -> Function:
    frequency, phase = rng.uniform(1, 3, 6), rng.uniform(0, 2 * np.pi, 6)
    weights = rng.standard_normal(6)
    return lambda z: np.sin(z * frequency + phase) @ weights


def _integer_covariates(rng: np.random.Generator, n: int) -> Rows:
    columns = [rng.integers(18, 91, n), rng.integers(0, 10, n), rng.binomial(5, 0.3, n)]
    return np.stack(columns, axis=1).astype(float)


def _integers(rng: np.random.Generator) -> Function:
    regions, risk, peak = rng.standard_normal(10), rng.normal(), rng.uniform(30, 70)
    slope = rng.normal()

    def integers(z: Rows) -> Float[np.ndarray, " n"]:
        old = (z[..., 0] - peak) / 20
        return (
            0.7 * regions[z[..., 1].astype(int)]
            + risk * z[..., 2]
            + slope * np.where(old > 0, old, 0.5 * old**2)
        )

    return integers


def _wiggly(rng: np.random.Generator) -> Function:
    frequency, phase = rng.uniform(1, 9, 4), rng.uniform(0, 2 * np.pi, 4)
    weights = rng.standard_normal(4)
    return lambda z: np.sin(z * frequency * np.pi + phase) @ weights


def _sparse(rng: np.random.Generator) -> Function:
    """Five of a hundred columns, one of them bent and two multiplied."""
    a, b, c, d, e = rng.choice(100, 5, replace=False)
    weights = rng.choice([-1, 1], 4) * rng.uniform(0.5, 1.5, 4)

    def sparse(z: Rows) -> Float[np.ndarray, " n"]:
        parts = [z[..., a], z[..., b], np.maximum(z[..., c], 0), z[..., d] * z[..., e]]
        return np.stack(parts, axis=-1) @ weights

    return sparse


def _binaries(rng: np.random.Generator, n: int) -> Rows:
    return (rng.random((n, 12)) < np.linspace(0.2, 0.8, 12)).astype(float)


def _interactions(rng: np.random.Generator) -> Function:
    """Single binaries, and products of three of them."""
    main = rng.standard_normal(12) * 0.6
    triples = np.stack([rng.choice(12, 3, replace=False) for _ in range(6)])
    weights = rng.standard_normal(6)
    return lambda z: z @ main + (2 * z - 1)[..., triples].prod(axis=-1) @ weights


def _heavy_covariates(rng: np.random.Generator, n: int) -> Rows:
    common = rng.standard_normal((n, 1))
    return np.exp(0.7 * common + 0.7 * rng.standard_normal((n, 7))).round(2)


def _heavy(rng: np.random.Generator) -> Function:
    """Amounts that matter by their logarithms, and one that matters above a level."""
    slopes, level = rng.standard_normal(7), rng.uniform(1, 3)
    column, jump = rng.integers(7), rng.choice([-1.5, 1.5])
    return lambda z: np.log(z + 0.05) @ slopes + jump * (z[..., column] > level)


def _correlated_covariates(rng: np.random.Generator, n: int) -> Rows:
    # The same in every world.
    factors = np.random.default_rng(0).standard_normal((3, 20))
    noise = rng.standard_normal((n, 20))
    return rng.standard_normal((n, 3)) @ factors / np.sqrt(3) + 0.5 * noise


def _correlated(rng: np.random.Generator) -> Function:
    slopes, (i, j) = rng.standard_normal(20), rng.choice(20, 2, replace=False)
    return lambda z: z @ slopes / 3 + z[..., i] * z[..., j]


def _uniforms(rng: np.random.Generator, n: int) -> Rows:
    return rng.random((n, 10))


FAMILIES: dict[str, Family] = {
    "linear": Family(_normals(8), _linear),
    "rare": Family(_normals(8), _linear, intercept=-4.0, strength=0.8),
    "radial": Family(_normals(8), _radial),
    "trees": Family(_uniforms, _trees),
    "mixed": Family(_mixed_covariates, _mixed, categories=(0,)),
    "rare_mixed": Family(_mixed_covariates, _mixed, -3.2, 0.9, categories=(0,)),
    "sines": Family(_normals(6), _sines),
    "integers": Family(_integer_covariates, _integers),
    "wiggly": Family(lambda rng, n: rng.uniform(-1, 1, (n, 1)), _wiggly),
    "sparse": Family(_normals(100), _sparse),
    "interactions": Family(_binaries, _interactions),
    "heavy": Family(_heavy_covariates, _heavy),
    "correlated": Family(_correlated_covariates, _correlated),
}
"""Families by name."""


@dataclasses.dataclass(frozen=True, eq=False)
class World(IndexModel):
    """A member of a family; see the module's formulas for the symbols."""

    num_labels: ClassVar[int] = _NUM_CITIES  # of a category

    family: str
    seed: int
    intercept: Float[np.ndarray, " indices"]

    def __post_init__(self) -> None:
        """Checks the parameters and makes arrays of them."""
        self._set_arrays(intercept=(NUM_INDICES,))

    @functools.cached_property
    def _shapes(self) -> list[tuple[Function, float, float]]:
        """Draws the functions f; with their means and standard deviations."""
        rng = np.random.default_rng([self.seed, 1])
        reference = self._covariates(np.random.default_rng(0), _REFERENCE_ROWS)
        shapes = []
        for _ in range(NUM_INDICES):
            function = FAMILIES[self.family].function(rng)
            values = function(reference)
            shapes.append((function, float(values.mean()), float(values.std())))
        return shapes

    @property
    def num_covariates(self) -> int:
        """How many covariates the learner sees."""
        return self._covariates(np.random.default_rng(0), 1).shape[1]

    @property
    def categories(self) -> tuple[int, ...]:
        """Columns that hold labels, not numbers."""
        return FAMILIES[self.family].categories

    def _covariates(self, rng: np.random.Generator, n: int) -> Rows:
        return FAMILIES[self.family].covariates(rng, n)

    def _indices(self, z: Float[np.ndarray, "... d"]) -> Iterable[np.ndarray]:
        flat = z.reshape(-1, z.shape[-1])
        strength = FAMILIES[self.family].strength
        for shape, intercept in zip(self._shapes, self.intercept, strict=True):
            function, mean, sd = shape
            values = (function(flat) - mean).reshape(z.shape[:-1])
            yield intercept + strength * values / sd


def make_world(family: str, seed: int) -> World:
    """Draws a world of a family, the same for the same arguments anywhere.

    Example:
      >>> make_world("radial", seed=0).oracle(np.zeros((1, 8))).pns.round(3).tolist()
      [0.107]
    """
    known = sorted(FAMILIES)
    require(family in FAMILIES, "family", f"must be in {known}, got {family!r}.")
    rng = np.random.default_rng([seed, 0])
    # Signs of their own: what is hidden may help in one arm and harm in the other.
    effect = rng.choice([-1, 1], (NUM_INDICES, _NUM_HIDDEN))
    effect = effect * rng.uniform(0.5, 2, (NUM_INDICES, _NUM_HIDDEN))
    intercept = rng.uniform(-0.5, 0.5, NUM_INDICES)
    intercept[1:] += FAMILIES[family].intercept
    return World(
        family=family,
        seed=seed,
        hidden_probs=rng.uniform(0.3, 0.7, _NUM_HIDDEN),
        hidden_choice=effect[0],
        hidden_outcome=effect[1:],
        intercept=intercept,
    )
