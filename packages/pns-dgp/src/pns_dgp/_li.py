"""The model of Li, Mao and Pearl (2022), appendix app:dgp-low-dim, and its family.

    Z_j ~ Bernoulli(pi_j),  e_X ~ Bernoulli(pi_X),  e_Y ~ Bernoulli(pi_Y)
    X = 1{alpha . Z + e_X > 1/2}
    Y = 1{0 < s < 1} + 1{1 < s < 2},  s = C X + beta . Z + e_Y

All inequalities are strict, so ties matter. Coefficients are multiples of 1e-4, as in the
paper's table, and all comparisons are made in whole ten-thousandths: the sampler and the
oracle cannot disagree by rounding. The last `num_hidden` covariates are not shown to the
learner.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int, Key, Num, UInt32

from pns_dgp._model import (
    Array,
    PotentialOutcomes,
    Sample,
    Source,
    Truth,
    check_count,
    check_entries,
    checked_rows,
    enumerate_binary,
    require,
    source_key,
    truth_by_chunks,
)

_ONE = 10_000  # the number 1 in units of the coefficients' grid


@dataclasses.dataclass(frozen=True)
class LiModel:
    """A member of the Li family."""

    covariate_probs: tuple[float, ...]  # pi_j for every covariate, observed ones first
    treatment_noise: float  # pi_X
    outcome_noise: float  # pi_Y
    alpha: tuple[float, ...]  # coefficients of the treatment index, multiples of 1e-4
    beta: tuple[float, ...]  # coefficients of the outcome index, multiples of 1e-4
    effect: float  # the constant C, a multiple of 1e-4
    num_hidden: int  # how many covariates, from the end, the learner does not see

    def __post_init__(self) -> None:
        """Checks the parameters."""
        for name in ("covariate_probs", "alpha", "beta"):
            value = tuple(float(v) for v in getattr(self, name))
            object.__setattr__(self, name, value)
        size = len(self.covariate_probs)
        for name in ("alpha", "beta"):
            found = len(getattr(self, name))
            require(found == size, name, f"must have {size} entries, got {found}.")
        require(
            0 <= self.num_hidden < size,
            "num_hidden",
            f"must leave at least one of {size} covariates observed, got "
            f"{self.num_hidden}.",
        )
        object.__setattr__(self, "num_hidden", int(self.num_hidden))
        for name in ("covariate_probs", "treatment_noise", "outcome_noise"):
            probs = np.asarray(getattr(self, name))
            is_inside = np.all((probs > 0) & (probs < 1))
            require(is_inside, name, f"must lie inside (0, 1), got {probs}.")
        for name in ("alpha", "beta", "effect"):
            values = np.asarray(getattr(self, name))
            # So that sums stay far inside int32; false for NaN.
            is_small = np.all(np.abs(values) <= 1000)
            require(is_small, name, f"must lie in [-1000, 1000], got {values}.")
            is_whole = np.abs(values * _ONE - np.rint(values * _ONE)) <= 1e-6
            require(
                is_whole.all(),
                name,
                f"must hold multiples of 0.0001, got {values}: round to four digits, so "
                "that ties are decided exactly.",
            )

    @property
    def num_covariates(self) -> int:
        """How many covariates the learner sees."""
        return len(self.covariate_probs) - self.num_hidden

    def sample_population(self, key: Key[jax.Array, ""], n: int) -> PotentialOutcomes:
        """Draws units with both potential outcomes; usable under `jax.vmap`."""
        check_count(n)
        return _sample_population(self._arrays, key, int(n), self.num_covariates)

    def sample(self, key: Key[jax.Array, ""], n: int, source: Source) -> Sample:
        """Draws a table of n rows; usable under `jax.vmap` over keys."""
        check_count(n)
        key = source_key(key, source)
        return _sample(self._arrays, key, int(n), self.num_covariates, source)

    def oracle(self, z: Num[Array, "n num_covariates"]) -> Truth:
        """Computes the truth at z [n, num_covariates] by enumeration of the hidden."""
        z = checked_rows(z, self.num_covariates)
        check_entries("z", z, (z == 0) | (z == 1), "be 0 or 1")
        return truth_by_chunks(lambda rows: _cells(self, rows), z, self.num_hidden)

    def support(
        self,
    ) -> tuple[Int[np.ndarray, "size num_covariates"], Float[np.ndarray, " size"]]:
        """Lists every observed covariate vector and its probability."""
        return enumerate_binary(self.covariate_probs[: self.num_covariates])

    def parameters(self) -> dict[str, Any]:
        """Returns the parameters, ready for JSON."""
        values = dataclasses.asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @functools.cached_property
    def _arrays(self) -> "_Arrays":
        return _Arrays(
            z_threshold=_thresholds(self.covariate_probs),
            x_threshold=_thresholds(self.treatment_noise),
            y_threshold=_thresholds(self.outcome_noise),
            alpha=_to_grid(self.alpha),
            beta=_to_grid(self.beta),
            effect=_to_grid(self.effect),
        )


class _Arrays(NamedTuple):
    """A model's numbers as the sampler takes them: traced, so models share a program."""

    z_threshold: UInt32[Array, " d"]
    x_threshold: UInt32[Array, ""]
    y_threshold: UInt32[Array, ""]
    alpha: Int[Array, " d"]  # in ten-thousandths, like the next two
    beta: Int[Array, " d"]
    effect: Int[Array, ""]


def _thresholds(probs: Any) -> np.ndarray:
    """Makes P(bits < threshold) the probability, exact to 2^-32."""
    largest = 2**32 - 1  # one more would wrap to 0
    return np.minimum(np.rint(np.asarray(probs) * 2.0**32), largest).astype(np.uint32)


def _below(
    key: Key[jax.Array, ""], threshold: Array, shape: tuple[int, ...]
) -> jax.Array:
    """Draws 0 or 1. Counter-based: row i does not depend on the number of rows."""
    return (jax.random.bits(key, shape, jnp.uint32) < threshold).astype(jnp.int32)


def _to_grid(values: Any) -> np.ndarray:
    return np.rint(np.asarray(values) * _ONE).astype(np.int32)


def _responds(total: Array) -> Array:
    """Evaluates f_Y at a total in ten-thousandths; the three ties give 0."""
    return ((total > 0) & (total < 2 * _ONE)) & (total != _ONE)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _sample_population(
    model: _Arrays, key: Key[jax.Array, ""], n: int, num_observed: int
) -> PotentialOutcomes:
    z_key, x_key, y_key = jax.random.split(key, 3)
    z = _below(z_key, model.z_threshold, (n, len(model.alpha)))
    choice = z @ model.alpha + _ONE * _below(x_key, model.x_threshold, (n,))
    outcome = z @ model.beta + _ONE * _below(y_key, model.y_threshold, (n,))
    return PotentialOutcomes(
        z=z[:, :num_observed].astype(jnp.float32),
        x=(choice > _ONE // 2).astype(jnp.int32),
        y0=_responds(outcome).astype(jnp.int32),
        y1=_responds(outcome + model.effect).astype(jnp.int32),
    )


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _sample(
    model: _Arrays, key: Key[jax.Array, ""], n: int, num_observed: int, source: Source
) -> Sample:
    units_key, coin_key = jax.random.split(key)
    units = _sample_population(model, units_key, n, num_observed)
    coin = _below(coin_key, _thresholds(0.5), (n,))
    x = units.x if source == "observational" else coin
    return Sample(z=units.z, x=x, y=jnp.where(x == 1, units.y1, units.y0))


def _cells(
    model: LiModel, z: Float[np.ndarray, "n num_covariates"]
) -> Float[np.ndarray, "n x y0 y1"]:
    """Sums P(hidden, e_X, e_Y) by response type: [n, x, y0, y1]."""
    observed = model.num_covariates
    hidden, weights = enumerate_binary(model.covariate_probs[observed:])

    def index(coefficients: tuple[float, ...]) -> np.ndarray:
        """Computes [n, 2^num_hidden] sums, in ten-thousandths."""
        units = _to_grid(coefficients).astype(np.int64)
        seen = z.astype(np.int64) @ units[:observed]
        return seen[:, None] + hidden @ units[observed:]

    choice, outcome = index(model.alpha), index(model.beta)
    cells = np.zeros((len(z), *pb.BINARY.response_shape))
    for e_x, p_x in enumerate((1 - model.treatment_noise, model.treatment_noise)):
        x = choice + e_x * _ONE > _ONE // 2
        for e_y, p_y in enumerate((1 - model.outcome_noise, model.outcome_noise)):
            y0 = _responds(outcome + e_y * _ONE)
            y1 = _responds(outcome + e_y * _ONE + _to_grid(model.effect))
            for cell in np.ndindex(*pb.BINARY.response_shape):
                here = (x == cell[0]) & (y0 == cell[1]) & (y1 == cell[2])
                cells[:, *cell] += p_x * p_y * (here @ weights)
    return cells


# The appendix's table of parameters (app:dgp:params), Model 1.
_MODEL_1_PROBS = (
    *(0.3529, 0.4610, 0.3317, 0.8855, 0.0170, 0.3808, 0.0281, 0.2208, 0.6177, 0.9820),
    *(0.1420, 0.8336, 0.8829, 0.5421, 0.0850, 0.6454, 0.8638, 0.4605, 0.3140, 0.6859),
)
_MODEL_1_ALPHA = (
    *(0.2592, -0.6581, -0.7503, 0.1629, 0.6520, -0.0893, 0.4215, -0.4431),
    *(0.8026, -0.2257, 0.7166, 0.0651, -0.2207, 0.1564, -0.5069, -0.7071),
    *(0.4188, -0.0822, 0.7693, -0.5116),
)
_MODEL_1_BETA = (
    *(-0.7929, 0.7600, 0.5544, 0.5040, -0.5272, 0.3786, 0.2693, 0.6716),
    *(0.3960, 0.3252, 0.6578, 0.8017, 0.0908, -0.0714, -0.0691, -0.2226),
    *(-0.8484, -0.5843, -0.3249, 0.6256),
)


def li_model_1(num_hidden: int = 5) -> LiModel:
    """Returns Model 1 with the parameters printed in app:dgp:params.

    The learner does not see the last `num_hidden` of the 20 covariates.

    Example:
      >>> z, weights = li_model_1().support()
      >>> truth = li_model_1().oracle(z)
      >>> round(float(weights @ truth.pns), 4)  # of the population
      0.2585
    """
    return LiModel(
        covariate_probs=_MODEL_1_PROBS,
        treatment_noise=0.6017,
        outcome_noise=0.4977,
        alpha=_MODEL_1_ALPHA,
        beta=_MODEL_1_BETA,
        effect=-0.7795,
        num_hidden=num_hidden,
    )


def random_li_model(
    seed: int, num_covariates: int = 20, num_hidden: int = 5
) -> LiModel:
    """Draws a member of the family: pi ~ U(0, 1), coefficients and C ~ U(-1, 1).

    All numbers are rounded to four digits, like the printed ones, probabilities inside
    [0.0001, 0.9999]. About half of the members are nearly degenerate: see
    `is_near_degenerate`, and `LI_PANEL_SEEDS` for some that are not. The same seed and
    sizes give the same model anywhere; hidden covariates are counted among all.

    Example:
      >>> random_li_model(seed=100).effect
      0.213
    """
    rng = np.random.default_rng([seed, num_covariates])  # PCG64, stable by promise
    probs = np.clip(np.round(rng.random(num_covariates + 2), 4), 1e-4, 1 - 1e-4)
    coefficients = np.round(rng.uniform(-1, 1, size=2 * num_covariates + 1), 4)
    return LiModel(
        covariate_probs=tuple(probs[:-2].tolist()),
        treatment_noise=float(probs[-2]),
        outcome_noise=float(probs[-1]),
        alpha=tuple(coefficients[:num_covariates].tolist()),
        beta=tuple(coefficients[num_covariates:-1].tolist()),
        effect=float(coefficients[-1]),
        num_hidden=num_hidden,
    )


def is_near_degenerate(model: LiModel, margin: float = 0.1) -> bool:
    """Tells whether treatment or outcome is nearly constant in the population.

    The rule: any of P(X=1), P(Y=1 | do(X=0)) and P(Y=1 | do(X=1)), over the whole
    population, lies within `margin` of 0 or 1. Computed from one million units drawn
    with a fixed key, so a verdict is right to about 0.0005.

    Example:
      >>> is_near_degenerate(random_li_model(seed=100))
      False
    """
    units = model.sample_population(jax.random.key(0), 1_000_000)
    means = [float(jnp.mean(v)) for v in (units.x, units.y0, units.y1)]
    return not all(margin < mean < 1 - margin for mean in means)


LI_PANEL_SEEDS = (
    *(100, 101, 104, 110, 112, 113, 114, 115, 116, 118),
    *(120, 121, 122, 126, 130, 136, 137, 139, 141, 143),
)
"""Seeds of `random_li_model` for studies over many members.

They are the first twenty from 100 on whose members with 20 covariates are not nearly
degenerate (of 44; about half of the family is).
"""
