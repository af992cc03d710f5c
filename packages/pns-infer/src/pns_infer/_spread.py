"""One scale factor for the spread of draws, chosen on held-out people.

Draws of a network may be too much alike, or too different. If their spread is right, then
averaged over the draws the *joint* probability of what happened to a group of similar
people is as great as can be: too small a spread is punished where the group shares an
error, too large a spread for the room it wastes. No oracle is needed.
"""

from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from scipy import special

from pns_infer._inputs import is_traced

_SCALES = np.geomspace(1 / 8, 8, 25)


class SpreadCalibration(NamedTuple):
    """Result of `calibrate_spread`.

    Attributes:
      scale: the factor with the greatest joint likelihood.
      interval: factors whose log-likelihood lies within 1.92 of it, a 95% interval if
        groups are independent; read from the profile.
      scales: [num_scales] the factors that were tried.
      log_likelihood: [num_scales] of the held-out people, summed over groups: the
        profile.
    """

    scale: float
    interval: tuple[float, float]
    scales: np.ndarray
    log_likelihood: np.ndarray


def scale_draws(draws: pb.Atoms, scale: float) -> pb.Atoms:
    """Scales the spread of draws [num_draws, ...] about their mean, on the logit scale.

    Works on the logits of the joint law and of the position of mu between its limits, so
    every scaled draw is again a compatible law.

    Args:
      draws: compatible atoms.
      scale: 1 changes nothing; 0 makes all draws equal.
    """
    logits, delta = _raw(draws)
    logits, delta = (_about_mean(values, scale) for values in (logits, delta))
    xp = delta.__array_namespace__()
    flat = xp.exp(logits - xp.max(logits, axis=(-2, -1), keepdims=True))
    joint = flat / xp.sum(flat, axis=(-2, -1), keepdims=True)
    return pb.Atoms(joint, pb.anchor(joint, delta))


def _about_mean(values: Any, scale: float) -> Any:
    xp = values.__array_namespace__()
    mean = xp.mean(values, axis=0, keepdims=True)
    return mean + scale * (values - mean)


def _raw(draws: pb.Atoms) -> tuple[Any, Any]:
    """Computes log p [..., 2, 2] and the logit of the position of mu [..., 2]."""
    joint, mu = draws
    xp = mu.__array_namespace__()
    tiny = float(np.finfo(mu.dtype).tiny)
    least = joint[..., :, 1]
    other = joint[..., ::-1, 0] + joint[..., ::-1, 1]
    if not is_traced(mu):
        slack = xp.minimum(mu - least, least + other - mu)
        if not xp.all(slack >= -1e-5):
            raise ValueError(
                "draws must be compatible laws to be scaled; the worst violates a "
                f"constraint by {-float(xp.min(slack)):.3g}."
            )
    # What underflowed or lies on the boundary is moved just inside.
    inside = float(np.finfo(mu.dtype).eps)
    share = xp.clip((mu - least) / xp.maximum(other, tiny), inside, 1 - inside)
    return xp.log(xp.maximum(joint, tiny)), xp.log(share) - xp.log1p(-share)


def calibrate_spread(
    draws: pb.Atoms,
    observational: Any,
    experimental: Any,
    groups: Any = None,
    scales: Any = _SCALES,
) -> SpreadCalibration:
    """Chooses the factor for the spread by the joint likelihood of held-out people.

    Args:
      draws: [num_draws, num_rows] at the held-out rows.
      observational: [num_rows, 2, 2] counts, `[..., x, y]`, of held-out people.
      experimental: [num_rows, 2, 2] counts, `[..., arm, y]`.
      groups: [num_rows] labels of rows whose people are judged jointly; every row by
        itself if None, which serves discrete covariates. For continuous ones take
        `neighbourhoods(z, size)`.
      scales: positive factors to try, ascending.

    Returns:
      The best factor, between the scales by a parabola in log scale; and the profile.
    """
    scales = np.asarray(scales, float)
    if scales.ndim != 1 or len(scales) < 3 or not np.all(np.diff(scales) > 0):
        raise ValueError("scales must be three or more positive ascending numbers.")
    if scales[0] <= 0:
        raise ValueError(f"scales must be positive, got {scales[0]}.")
    draws = pb.Atoms(*(np.asarray(part, np.float64) for part in draws))
    num_rows = draws.mu.shape[1]
    cells = []
    for name, part in (
        ("observational", observational),
        ("experimental", experimental),
    ):
        part = np.asarray(part, float)
        if part.shape != (num_rows, 2, 2) or not np.all(part >= 0):
            raise ValueError(
                f"{name} must be counts of shape {[num_rows, 2, 2]}, one table per row "
                f"of the draws, got {list(part.shape)}."
            )
        cells.append(part)
    if not sum(part.sum() for part in cells) > 0:
        raise ValueError("there are no held-out people to judge the spread by.")
    groups = np.arange(num_rows) if groups is None else np.asarray(groups)
    if groups.shape != (num_rows,):
        raise ValueError(f"groups must have shape [{num_rows}], got {groups.shape}.")
    _, groups = np.unique(groups, return_inverse=True)
    profile = np.array([_joint_log_likelihood(draws, cells, groups, s) for s in scales])
    best = int(np.argmax(profile))
    return SpreadCalibration(
        scale=_vertex(np.log(scales), profile, best),
        interval=_interval(np.log(scales), profile, best),
        scales=scales,
        log_likelihood=profile,
    )


def _joint_log_likelihood(draws, cells, groups, scale) -> float:
    """Sums over groups the log of the mean over draws of the joint likelihood."""
    scaled = scale_draws(draws, scale)
    tiny = np.finfo(np.float64).tiny
    outcome = np.stack([1 - scaled.mu, scaled.mu], axis=-1)
    by_row = np.zeros(scaled.mu.shape[:2])
    for part, p in zip(cells, (scaled.joint, outcome), strict=True):
        by_row += np.einsum("nxy,dnxy->dn", part, np.log(np.maximum(p, tiny)))
    by_group = np.stack([np.bincount(groups, weights=row) for row in by_row])
    logs = special.logsumexp(by_group, axis=0) - np.log(len(by_group))
    return float(logs.sum())


def _vertex(x: np.ndarray, y: np.ndarray, best: int) -> float:
    """Finds the top of the parabola through the best point and its neighbours."""
    if best in (0, len(x) - 1):
        return float(np.exp(x[best]))
    a, b, _ = np.polyfit(x[best - 1 : best + 2] - x[best], y[best - 1 : best + 2], 2)
    return float(np.exp(x[best] - b / (2 * a))) if a < 0 else float(np.exp(x[best]))


def _interval(x: np.ndarray, y: np.ndarray, best: int) -> tuple[float, float]:
    """Finds where the profile falls 1.92 below its top, between the points."""
    level = y[best] - 1.92
    ends = []
    for step, limit in ((-1, 0), (1, len(x) - 1)):
        place = best
        while place != limit and y[place + step] >= level:
            place += step
        end = x[place]
        if place != limit:
            fall = (y[place] - level) / (y[place] - y[place + step])
            end = x[place] + fall * (x[place + step] - x[place])
        ends.append(float(np.exp(end)))
    return ends[0], ends[1]


def neighbourhoods(z: Any, size: int) -> np.ndarray:
    """Cuts rows into groups of near neighbours, of `size` to 2 `size` rows each.

    Rows are halved at the median of the column that varies most, again and again.

    Args:
      z: [n, d] covariates on comparable scales.
      size: least number of rows in a group, unless there are fewer in all.

    Returns:
      [n] labels from 0.
    """
    z = np.asarray(z, float)
    if z.ndim != 2 or size < 1:
        raise ValueError(
            f"z must have shape [n, d] and size be at least 1, got {list(z.shape)} and "
            f"{size}."
        )
    labels = np.zeros(len(z), int)
    pending, number = [np.arange(len(z))], 0
    while pending:
        rows = pending.pop()
        if len(rows) < 2 * size:
            labels[rows] = number
            number += 1
            continue
        column = np.argmax(np.var(z[rows], axis=0))
        order = rows[np.argsort(z[rows, column], kind="stable")]
        pending += [order[: len(rows) // 2], order[len(rows) // 2 :]]
    return labels
