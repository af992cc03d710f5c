"""Calibration of draws: one factor on their deviations, chosen on held-out units.

Draws of a network may be too much alike, or too different. If their deviations are right,
then averaged over the draws the *joint* probability of what happened to a group of similar
units is as great as can be: too small a scale is punished where the group shares an error,
too large a scale for the room it wastes. No oracle is needed.
"""

from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int, Num
from scipy import special

from pns_infer.core.inputs import checked_counts

Array = Any  # NumPy or JAX

_DRAW_SCALES = np.geomspace(1 / 8, 8, 25)
_MAX_GROUPS, _GROUP_SIZE, _MAX_ROWS = 1000, 8, 8000
_BLOCK = 65_536  # rows whose variances are summed at a time
_OUTERMOST = float(special.logit(0.999))  # logit of a position between two limits


class DrawCalibration(NamedTuple):
    """Result of `calibrate_draws`.

    Attributes:
      draw_scale: the factor with the greatest joint likelihood.
      interval: factors whose log-likelihood lies within 1.92 of it, a 95% interval if
        groups are independent; read from the profile.
      draw_scales: the factors that were tried.
      log_likelihood: of the held-out units, summed over groups: the profile.
    """

    draw_scale: float
    interval: tuple[float, float]
    draw_scales: Float[np.ndarray, " num_scales"]
    log_likelihood: Float[np.ndarray, " num_scales"]


def scale_draws(
    draws: pb.Atoms, draw_scale: float | Float[Array, " num_draws"]
) -> pb.Atoms:
    """Scales draws [num_draws, ...] about their mean, on the logit scale.

    Works on the logits of the joint law and of the position of mu between its limits, so
    every scaled draw is again a compatible law.

    Args:
      draws: compatible atoms.
      draw_scale: 1 changes nothing; 0 makes all draws equal. One for all draws, or one
        for each.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> rng = np.random.default_rng(0)
      >>> joint = rng.dirichlet([20, 30, 10, 40], (1000, 1)).reshape(-1, 1, 2, 2)
      >>> mu = rng.beta([35, 80], [65, 20], (1000, 1, 2))
      >>> draws = pb.project_to_compatible(pb.Atoms(joint, mu))
      >>> float(scale_draws(draws, 0.0).mu.std(axis=0).max().round(6))
      0.0
    """
    check_draw_scale(draw_scale, len(draws.mu))
    return _rescale(_free_numbers(draws), draw_scale)


def check_draw_scale(
    draw_scale: float | Float[Array, " num_draws"], num_draws: int
) -> None:
    """Raises unless there is one scale for all draws, or one for each."""
    shape = np.shape(draw_scale)
    if shape not in ((), (num_draws,)):
        raise ValueError(
            f"draw_scale must be one number, or one for each of the {num_draws} draws, "
            f"got shape {list(shape)}."
        )


def combine_members(
    members: pb.Atoms, coefficients: Float[Array, "num_draws num_members"]
) -> pb.Atoms:
    """Adds combinations of members' deviations to their mean, on the logit scale.

    With coefficients (g - mean g) / sqrt(num_members - 1), g ~ N(0, I), the results have
    the members' mean and covariance there.

    Args:
      members: compatible atoms [num_members, ...].
      coefficients: of each result; zeros give the mean.

    Returns:
      Compatible atoms [num_draws, ...].

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> joint = np.full((2, 1, 2, 2), 0.25)  # mu lies between 0.25 and 0.75
      >>> members = pb.Atoms(joint, np.array([[[0.5, 0.3]], [[0.5, 0.5]]]))
      >>> found = combine_members(members, np.array([[0.0, 0.0], [0.5, -0.5]]))
      >>> found.mu[:, 0, 1].round(6).tolist()  # mean logit; first member
      [0.375, 0.3]
    """
    xp, num_members = members.mu.__array_namespace__(), len(members.mu)
    if np.ndim(coefficients) != 2 or np.shape(coefficients)[1] != num_members:
        raise ValueError(
            f"coefficients must have shape [num_draws, {num_members}], one for each "
            f"member, got {list(np.shape(coefficients))}."
        )
    weights = coefficients + 1 / num_members
    weights = weights - xp.mean(coefficients, axis=1, keepdims=True)
    free = _Free(*(xp.tensordot(weights, part, 1) for part in _free_numbers(members)))
    return link_free_numbers(*free)


def shift_draws(draws: pb.Atoms, old: pb.Atoms, new: pb.Atoms) -> pb.Atoms:
    """Moves draws as far as a center moves, on the logit scale.

    Args:
      draws: compatible atoms [num_draws, ...].
      old: the center that the draws vary about, compatible atoms [...].
      new: where it is to be. Where mu lies at a limit of its interval, its position
        moves to the last thousandth of it, or stays where it was if that is nearer.

    Returns:
      Compatible atoms [num_draws, ...].

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> joint = np.array([[[0.2, 0.3], [0.1, 0.4]]])
      >>> old = pb.Atoms(joint, np.array([[0.5, 0.6]]))
      >>> new = pb.Atoms(joint, np.array([[0.4, 0.7]]))
      >>> draws = pb.Atoms(joint[None], old.mu[None])
      >>> shift_draws(draws, old, new).mu.round(6).tolist()
      [[[0.4, 0.7]]]
    """
    moved = zip(_free_numbers(draws), center_shift(old, new), strict=True)
    return link_free_numbers(*(values + added[None] for values, added in moved))


def center_shift(
    old: pb.Atoms, new: pb.Atoms
) -> tuple[Float[Array, "*points 2 2"], Float[Array, "*points 2"]]:
    """Computes how far a center moves on the logit scale: logits and deltas.

    Where the new mu lies at a limit, its position moves no further than `shift_draws`
    says.
    """
    before, after = _free_numbers(old), _free_numbers(new)
    xp = after.delta.__array_namespace__()
    outermost = xp.maximum(xp.abs(before.delta), _OUTERMOST)
    delta = xp.clip(after.delta, -outermost, outermost)
    return after.logits - before.logits, delta - before.delta


class _Free(NamedTuple):
    """Draws on the scale where every number is allowed."""

    logits: Float[Array, "num_draws *points 2 2"]
    delta: Float[Array, "num_draws *points 2"]


def _free_numbers(draws: pb.Atoms) -> _Free:
    """Computes log p, and the logit of the position of mu between its limits."""
    joint, mu = draws
    xp = mu.__array_namespace__()
    tiny = float(np.finfo(mu.dtype).tiny)  # what underflowed is moved just inside
    return _Free(
        logits=xp.log(xp.maximum(joint, tiny)),
        delta=pb.anchor_inverse(draws, boundary="inside"),
    )


def _rescale(free: _Free, draw_scale: float | Float[Array, " num_draws"]) -> pb.Atoms:
    return link_free_numbers(*(scale_about_mean(values, draw_scale) for values in free))


def link_free_numbers(
    logits: Float[Array, "num_draws *points 2 2"],
    delta: Float[Array, "num_draws *points 2"],
) -> pb.Atoms:
    """Turns free numbers into compatible atoms."""
    xp = delta.__array_namespace__()
    weights = xp.exp(logits - xp.max(logits, axis=(-2, -1), keepdims=True))
    joint = weights / xp.sum(weights, axis=(-2, -1), keepdims=True)
    return pb.Atoms(joint, pb.anchor(joint, delta))


def scale_about_mean(
    values: Float[Array, "num_draws ..."],
    draw_scale: float | Float[Array, " num_draws"],
) -> Float[Array, "num_draws ..."]:
    """Scales the deviations of draws from their mean."""
    xp = values.__array_namespace__()
    mean = xp.mean(values, axis=0, keepdims=True)
    scale = xp.asarray(draw_scale, dtype=values.dtype)
    return mean + scale.reshape(-1, *[1] * (values.ndim - 1)) * (values - mean)


def calibrate_draws(
    draws: pb.Atoms,
    observational: Num[Array, "num_points 2 2"],
    experimental: Num[Array, "num_points 2 2"],
    groups: Int[Array, " num_points"] | None = None,
    draw_scales: Float[Array, " num_scales"] = _DRAW_SCALES,
) -> DrawCalibration:
    """Chooses the scale of draws by the joint likelihood of held-out units.

    Args:
      draws: [num_draws, num_points] at the held-out points.
      observational: counts `[..., x, y]` of held-out units.
      experimental: counts `[..., arm, y]`.
      groups: labels of points whose units are judged jointly; every point
        by itself if None, which serves discrete covariates. For continuous ones take
        `neighborhoods(z, size)`; `choose_calibration_rows` decides for you.
      draw_scales: positive factors to try, ascending.

    Returns:
      The best factor, between those tried by a parabola in log scale; and the profile.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> rng, joint = np.random.default_rng(0), np.full((300, 200, 2, 2), 0.25)
      >>> delta = rng.normal(size=(300, 200, 2))
      >>> draws = pb.Atoms(joint, pb.anchor(joint, 0.5 * delta))  # too narrow
      >>> mu = pb.anchor(joint[0], rng.normal(size=(200, 2)))  # the truth
      >>> experimental = rng.multinomial(400, np.stack([1 - mu, mu], axis=-1))
      >>> found = calibrate_draws(draws, np.zeros((200, 2, 2)), experimental)
      >>> round(found.draw_scale), found.interval[0] < 2 < found.interval[1]
      (2, True)
    """
    scales = np.asarray(draw_scales, float)
    if scales.ndim != 1 or len(scales) < 3 or not np.all(np.diff(scales) > 0):
        raise ValueError(
            "draw_scales must be three or more positive ascending numbers."
        )
    if scales[0] <= 0:
        raise ValueError(f"draw_scales must be positive, got {scales[0]}.")
    draws = pb.Atoms(*(np.asarray(part, np.float64) for part in draws))
    num_points = draws.mu.shape[1]
    cells = [
        checked_counts(name, part, (num_points, 2, 2))
        for name, part in (
            ("observational", observational),
            ("experimental", experimental),
        )
    ]
    if not sum(part.sum() for part in cells) > 0:
        raise ValueError("there are no held-out units to calibrate the draws by.")
    groups = np.arange(num_points) if groups is None else np.asarray(groups)
    if groups.shape != (num_points,):
        raise ValueError(f"groups must have shape [{num_points}], got {groups.shape}.")
    _, groups = np.unique(groups, return_inverse=True)
    free = _free_numbers(draws)
    profile = np.array(
        [_joint_log_likelihood(_rescale(free, s), cells, groups) for s in scales]
    )
    best = int(np.argmax(profile))
    return DrawCalibration(
        draw_scale=_vertex(np.log(scales), profile, best),
        interval=_interval(np.log(scales), profile, best),
        draw_scales=scales,
        log_likelihood=profile,
    )


def _joint_log_likelihood(
    draws: pb.Atoms,
    cells: list[Float[np.ndarray, "num_points 2 2"]],
    groups: Int[np.ndarray, " num_points"],
) -> float:
    """Sums over groups the log of the mean over draws of the joint likelihood."""
    tiny = np.finfo(np.float64).tiny
    outcome = np.stack([1 - draws.mu, draws.mu], axis=-1)
    by_point = np.zeros(draws.mu.shape[:2])
    for part, p in zip(cells, (draws.joint, outcome), strict=True):
        by_point += np.einsum("nxy,dnxy->dn", part, np.log(np.maximum(p, tiny)))
    by_group = np.stack([np.bincount(groups, weights=row) for row in by_point])
    logs = special.logsumexp(by_group, axis=0) - np.log(len(by_group))
    return float(logs.sum())


def _vertex(
    x: Float[np.ndarray, " num_scales"], y: Float[np.ndarray, " num_scales"], best: int
) -> float:
    """Finds the top of the parabola through the best point and its neighbors."""
    if best in (0, len(x) - 1):
        return float(np.exp(x[best]))
    a, b, _ = np.polyfit(x[best - 1 : best + 2] - x[best], y[best - 1 : best + 2], 2)
    return float(np.exp(x[best] - b / (2 * a))) if a < 0 else float(np.exp(x[best]))


def _interval(
    x: Float[np.ndarray, " num_scales"], y: Float[np.ndarray, " num_scales"], best: int
) -> tuple[float, float]:
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


def choose_calibration_rows(
    z: Float[Array, "num_rows num_covariates"],
    observational: Num[Array, "num_rows 2 2"],
    experimental: Num[Array, "num_rows 2 2"],
    seed: int = 0,
) -> tuple[Int[np.ndarray, " num_chosen"], Int[np.ndarray, " num_chosen"] | None]:
    """Chooses a few thousand held-out rows to calibrate by, and their groups.

    Where rows hold two units or more on average the covariates are discrete: every row
    is judged by itself, and at most 8,000 are drawn. Otherwise nobody has a twin: rows
    are grouped with their neighbors, and at most 1,000 groups are drawn.

    Args:
      z: covariates on comparable scales, say standardized.
      observational: counts `[..., x, y]` of the rows.
      experimental: counts `[..., arm, y]`.
      seed: decides the draw.

    Returns:
      Places of the chosen rows, ascending, and their group labels; None if every row is
      its own group.

    Example:
      >>> import numpy as np
      >>> z, nothing = np.arange(16.0)[:, None], np.zeros((16, 2, 2))
      >>> one, many = nothing + [[1, 0], [0, 0]], nothing + 5
      >>> rows, groups = choose_calibration_rows(z, one, nothing)
      >>> [rows[groups == label].tolist() for label in np.unique(groups)]
      [[8, 9, 10, 11, 12, 13, 14, 15], [0, 1, 2, 3, 4, 5, 6, 7]]
      >>> choose_calibration_rows(z, many, nothing)[1] is None  # 20 units in each row
      True
    """
    rng = np.random.default_rng(seed)
    rows = np.arange(len(z))
    num_units = sum(float(np.sum(part)) for part in (observational, experimental))
    if num_units < 2 * len(rows):
        groups = neighborhoods(z, _GROUP_SIZE)
        chosen = rng.permutation(groups.max() + 1)[:_MAX_GROUPS]
        rows = np.flatnonzero(np.isin(groups, chosen))
        return rows, groups[rows]
    if len(rows) > _MAX_ROWS:
        rows = np.sort(rng.choice(rows, _MAX_ROWS, replace=False))
    return rows, None


def neighborhoods(
    z: Float[Array, "num_rows num_covariates"], size: int
) -> Int[np.ndarray, " num_rows"]:
    """Cuts rows into groups of near neighbors, of `size` to 2 `size` rows each.

    Rows are halved at the median of the column that varies most, again and again.

    Args:
      z: covariates on comparable scales.
      size: least number of rows in a group, unless there are fewer in all.

    Returns:
      Labels from 0.

    Example:
      >>> neighborhoods([[0.0], [9.0], [1.0], [8.0]], size=2).tolist()
      [1, 0, 1, 0]
    """
    z = np.asarray(z)
    if z.ndim != 2 or size < 1:
        raise ValueError(
            "z must have shape [num_rows, num_covariates] and size be at least 1, got "
            f"{list(z.shape)} and {size}."
        )
    labels = np.zeros(len(z), int)
    pending, number = [np.arange(len(z))], 0
    while pending:
        rows = pending.pop()
        if len(rows) < 2 * size:
            labels[rows] = number
            number += 1
            continue
        column = np.argmax(_variances(z, rows))
        order = rows[np.argsort(z[rows, column], kind="stable")]
        pending += [order[: len(rows) // 2], order[len(rows) // 2 :]]
    return labels


def _variances(
    z: Float[np.ndarray, "n d"], rows: Int[np.ndarray, " some"]
) -> Float[np.ndarray, " d"]:
    """Computes the variance of each column over some rows, a block at a time."""
    blocks = np.array_split(rows, -(-len(rows) // _BLOCK))
    mean, squares = np.zeros(z.shape[1]), np.zeros(z.shape[1])
    for block in blocks:
        mean += np.sum(z[block], axis=0, dtype=float) / len(rows)
    for block in blocks:
        squares += np.sum((z[block] - mean) ** 2, axis=0)
    return squares / len(rows)
