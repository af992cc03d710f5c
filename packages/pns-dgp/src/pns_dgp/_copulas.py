"""Exchangeable copulas, as normal scores.

A block of dependent columns is drawn as s = Phi^-1(u), u from the copula: normal scores
keep both tails, and quantile functions are smooth in them. Archimedean families use the
frailty construction u_i = psi(E_i / V), E_i standard exponential, V with Laplace
transform psi (Marshall and Olkin 1988).
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import special

from pns_dgp._model import require


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
    known = ["independence", "gaussian", "student", *_FRAILTY]
    require(family in known, "copula", f"must be one of {known}, got {family!r}.")
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
    return (
        np.sin(index * angle)
        / np.sin(angle) ** theta
        * (np.sin((1 - index) * angle) / energy) ** (theta - 1)
    )


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
