"""Laws of the ACIC covariates by normal scores: copulas, and margins.

A block of dependent columns is drawn as s = Phi^-1(u), u from an exchangeable copula:
normal scores keep both tails, and quantile functions are smooth in them. Archimedean
families use the frailty construction u_i = psi(E_i / V), E_i standard exponential, V with
Laplace transform psi (Marshall and Olkin 1988).

A column's value is the smallest x with F(x) >= Phi(score). Exact quantile functions are
slow for some families, so continuous ones are tabulated once on a fine grid of scores and
interpolated. Discrete ones compare the score with those of their cumulative probabilities.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import interpolate, optimize, special, stats


def draw_scores(
    rng: np.random.Generator, n: int, size: int, copula: dict[str, Any]
) -> Float[np.ndarray, "n size"]:
    """Draws normal scores from a copula: its `family`, `parameter` and perhaps `df`."""
    family = copula["family"]
    if family == "independence":
        return rng.standard_normal((n, size))
    if family in ("gaussian", "student"):
        rho = copula["parameter"]
        common, own = rng.standard_normal((n, 1)), rng.standard_normal((n, size))
        scores = np.sqrt(rho) * common + np.sqrt(1 - rho) * own
        if family == "gaussian":
            return scores
        df = copula["df"]
        scores /= np.sqrt(rng.chisquare(df, (n, 1)) / df)
        return special.ndtri(special.stdtr(df, scores))
    draw_frailty, psi = _FRAILTY[family]
    theta = copula["parameter"]
    frailty = draw_frailty(rng, theta, (n, 1))
    return special.ndtri(psi(rng.standard_exponential((n, size)) / frailty, theta))


def _draw_stable(
    rng: np.random.Generator, theta: float, shape: tuple[int, ...]
) -> np.ndarray:
    """Draws the positive stable law with transform exp(-t^(1/theta)) (Kanter 1975)."""
    index = 1 / theta
    angle, energy = rng.uniform(0, np.pi, shape), rng.standard_exponential(shape)
    ratio = np.sin(index * angle) / np.sin(angle) ** theta
    return ratio * (np.sin((1 - index) * angle) / energy) ** (theta - 1)


def _draw_sibuya(
    rng: np.random.Generator, theta: float, shape: tuple[int, ...]
) -> np.ndarray:
    """Draws P(V = k) = (-1)^(k+1) binom(1/theta, k) by inversion (Hofert 2011).

    The survival function at k is 1 / (k Beta(k, 1 - 1/theta)); its asymptote, inverted,
    is at most one too small.
    """
    index = 1 / theta
    tail = rng.random(shape)
    guess = np.maximum(np.floor((tail * special.gamma(1 - index)) ** -theta), 1)
    survival = np.exp(-np.log(guess) - special.betaln(guess, 1 - index))
    # Beyond 1e15 neighboring integers are one number.
    return np.where((survival > tail) & (guess < 1e15), guess + 1, guess)


_FRAILTY = {
    "clayton": (
        lambda rng, theta, shape: rng.standard_gamma(1 / theta, shape),
        lambda t, theta: (1 + t) ** (-1 / theta),
    ),
    "gumbel": (_draw_stable, lambda t, theta: np.exp(-(t ** (1 / theta)))),
    "frank": (
        lambda rng, theta, shape: rng.logseries(-np.expm1(-theta), shape) + 0.0,
        lambda t, theta: -np.log1p(np.expm1(-theta) * np.exp(-t)) / theta,
    ),
    "joe": (_draw_sibuya, lambda t, theta: 1 - (-np.expm1(-t)) ** (1 / theta)),
}


Quantile = Callable[[np.ndarray], np.ndarray]  # of a normal score
Discrete = tuple[Callable, int, int]  # distribution function, first and last value

# Uniform float64 numbers have scores within +-8.3; the step makes the relative error of
# interpolation less than 1e-4 in the far tail of the heaviest column.
_GRID = np.linspace(-8.5, 8.5, 4251)


@dataclasses.dataclass(frozen=True, eq=False)
class Margin:
    """A tabulated quantile function."""

    # normal scores; for a discrete law those of F at each atom.
    scores: Float[np.ndarray, " k"]
    values: Float[np.ndarray, " k"]  # the values there, ascending
    discrete: bool  # whether the law has atoms

    def __call__(self, scores: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Maps normal scores to values."""
        if not self.discrete:
            return np.interp(scores, self.scores, self.values)
        position = np.searchsorted(self.scores, scores, side="left")
        return self.values[np.minimum(position, len(self.values) - 1)]


def make_margin(family: str, parameters: dict[str, Any]) -> Margin:
    """Tabulates a law; family and parameters are named as in the covariate table."""
    if family in _DISCRETE:
        law, first, last = _DISCRETE[family](**parameters)
        values = np.arange(first, last + 1, dtype=np.float64)
        return Margin(special.ndtri(law(values)), values, discrete=True)
    values = _CONTINUOUS[family](**parameters)(_GRID)
    return Margin(_GRID, np.maximum.accumulate(values), discrete=False)


def _of_law(law: Any, low: float | None = None, high: float | None = None) -> Quantile:
    """Returns score -> value of a law conditioned on [low, high].

    In the upper half it uses the survival function, which keeps the digits of the tail.
    """
    below = 0.0 if low is None else law.cdf(low)
    above = 0.0 if high is None else law.sf(high)
    inside = 1 - below - above
    return lambda s: np.where(
        s < 0,
        law.ppf(below + inside * special.ndtr(s)),
        law.isf(above + inside * special.ndtr(-s)),
    )


def _solved(log_cdf: Callable[[float], float], low: float, high: float) -> Quantile:
    """Inverts a distribution function on [low, high], conditioned on it, by bisection.

    For laws whose quantiles no library computes well. It works with log F, which keeps
    the digits of small probabilities.
    """
    ends = [log_cdf(low), log_cdf(high)]

    def value(score: float) -> float:
        below, above = special.log_ndtr(-score), special.log_ndtr(score)
        target = np.logaddexp(ends[0] + below, ends[1] + above)
        if not ends[0] < target < ends[1]:
            return low if target <= ends[0] else high
        return optimize.brentq(lambda x: log_cdf(x) - target, low, high, xtol=1e-12)

    # Root finding is slow: solve at a tenth of the grid, and fill in monotone cubics.
    coarse = _GRID[::10]
    solved = interpolate.PchipInterpolator(coarse, [value(s) for s in coarse])
    return lambda s: solved(s)


def _noncentral_t_as_in_r(df: float, noncentrality: float) -> Quantile:
    """R's normal approximation, which it takes for noncentrality above 37.6."""

    def log_cdf(x: float) -> float:
        scale = np.sqrt(1 + x * x / (2 * df))
        return special.log_ndtr((x * (1 - 1 / (4 * df)) - noncentrality) / scale)

    # As x grows the argument tends to sqrt(2 df) (1 - 1 / (4 df)): all but 3e-11 of the
    # mass lies below any large x.
    return _solved(log_cdf, 0.0, 1e4)


def _truncated_noncentral_t(
    df: float, noncentrality: float, low: float, high: float
) -> Quantile:
    law = stats.nct(df, noncentrality)
    # Below 1 there is less than 1e-30 of the parent, nothing beside F(high) = 1e-6.
    return _solved(lambda x: float(np.log(law.cdf(x))), max(low, 1.0), high)


_CONTINUOUS: dict[str, Callable[..., Quantile]] = {
    "normal": lambda mean, sd: lambda s: mean + sd * s,
    "lognormal": lambda mean_log, sd_log: lambda s: np.exp(mean_log + sd_log * s),
    "uniform": lambda low, high: lambda s: low + (high - low) * special.ndtr(s),
    "gamma": lambda shape, rate: _of_law(stats.gamma(shape, scale=1 / rate)),
    "beta": lambda a, b: _of_law(stats.beta(a, b)),
    "t": lambda df: _of_law(stats.t(df)),
    "noncentral_t": lambda df, noncentrality: _of_law(stats.nct(df, noncentrality)),
    "noncentral_t_normal_approx": _noncentral_t_as_in_r,
    "truncated_normal": lambda mean, sd, low, high: _of_law(
        stats.norm(mean, sd), low, high
    ),
    "truncated_t": lambda df, low, high: _of_law(stats.t(df), low, high),
    "truncated_noncentral_t": _truncated_noncentral_t,
    "inverse_chi_square": lambda df: _of_law(stats.invgamma(df / 2, scale=1 / 2)),
    "scaled_inverse_chi_square": lambda df, scale: _of_law(
        stats.invgamma(df / 2, scale=df * scale / 2)
    ),
}


def _counting(law: Any) -> Discrete:
    """A law on 0, 1, ... up to the value that is exceeded with probability 1e-17."""
    return law.cdf, 0, int(np.argmax(law.sf(np.arange(10_000)) < 1e-17))


def _zero_inflated_poisson(rate: float, extra_zero_prob: float) -> Discrete:
    cdf, first, last = _counting(stats.poisson(rate))
    return lambda x: extra_zero_prob + (1 - extra_zero_prob) * cdf(x), first, last


_DISCRETE: dict[str, Callable[..., Discrete]] = {
    "bernoulli": lambda prob_one: (stats.bernoulli(prob_one).cdf, 0, 1),
    "poisson": lambda rate: _counting(stats.poisson(rate)),
    "zero_inflated_poisson": _zero_inflated_poisson,
    "negative_binomial": lambda successes, success_prob: _counting(
        stats.nbinom(successes, success_prob)
    ),
    "discrete_uniform": lambda low, high: (stats.randint(low, high + 1).cdf, low, high),
}
