"""Draws as raw numbers, on whose scale they are scaled and calibrated.

Raw numbers are logits of the cells, then a number for each arm: its anchor, the logit of the
position of mu between the limits that the joint law sets, see `pns_bounds.anchor`; or freely
the logit of mu, which is then moved between the limits. So whatever is done to raw numbers,
they stand for a compatible law.

Draws of a network may be too much alike, or too different. If their deviations are right,
then averaged over the draws the *joint* probability of what happened to a group of similar
units is as great as can be: too small a scale is punished where the group shares an error,
too large a scale wastes probability elsewhere. The truth need not be known.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int, Num
from scipy import special

from pns_infer.calibration.neighborhoods import neighborhoods
from pns_infer.core import inputs

Array = Any  # NumPy or JAX
Link = Literal["anchored", "free"]


def to_raw(atoms: pb.Atoms) -> Float[Array, "*points raw"]:
    """Computes the raw numbers of compatible atoms."""
    joint, mu = atoms
    xp = mu.__array_namespace__()
    tiny = float(np.finfo(mu.dtype).tiny)  # what underflowed is moved just inside
    logits = xp.log(xp.maximum(joint, tiny))
    logits = logits.reshape(*joint.shape[:-2], pb.BINARY.num_cells)
    arms = pb.anchor_inverse(atoms, boundary="inside")
    return xp.concatenate([logits, arms], axis=-1)


def from_raw(raw: Float[Array, "*points raw"], link: Link = "anchored") -> pb.Atoms:
    """Computes the compatible atoms that raw numbers stand for."""
    xp, num_cells = raw.__array_namespace__(), pb.BINARY.num_cells
    logits = raw[..., :num_cells]
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    joint = weights / xp.sum(weights, axis=-1, keepdims=True)
    joint = joint.reshape(*raw.shape[:-1], *pb.BINARY.joint_shape)
    arms = raw[..., num_cells:]
    if link == "free":
        return pb.project_to_compatible(pb.Atoms(joint, special.expit(arms)))
    return pb.Atoms(joint, pb.anchor(joint, arms))


def scale_about_mean(
    values: Float[Array, "num_draws ..."],
    draw_scale: float | Float[Array, " num_draws"],
) -> Float[Array, "num_draws ..."]:
    """Scales the deviations of draws from their mean."""
    shape, num_draws = np.shape(draw_scale), len(values)
    if shape not in ((), (num_draws,)):
        raise pb.InputError(
            "draw_scale",
            f"must be one number, or one for each of the {num_draws} draws, got shape "
            f"{list(shape)}.",
        )
    xp = values.__array_namespace__()
    mean = xp.mean(values, axis=0, keepdims=True)
    scale = xp.asarray(draw_scale, dtype=values.dtype)
    return mean + scale.reshape(-1, *[1] * (values.ndim - 1)) * (values - mean)


_POINTS = 32  # at a time: what is computed on the way stays in the processor's cache


class LinearDraws(NamedTuple):
    """Draws center + factors . coefficients of the raw numbers of each point.

    Attributes:
      center: logits of p00, p01, p10 and p11, then the numbers of mu0 and mu1.
      factors: what each coefficient adds to them.
      coefficients: of each draw, the same for all points.
      link: what the numbers of mu0 and mu1 are: 'anchored' or 'free'.

    Example:
      >>> logits = np.log([[0.2, 0.3, 0.1, 0.4]])
      >>> center = np.concatenate([logits, np.zeros((1, 2))], axis=1)
      >>> factors = np.eye(6)[None, :, 5:]  # one number moves mu1
      >>> draws = LinearDraws(center, factors, np.array([[-1.0], [1.0]]))
      >>> draws.atoms().mu[:, 0].round(3).tolist()
      [[0.55, 0.534], [0.55, 0.766]]
      >>> draws.scale(0.0).atoms().mu[:, 0].round(3).tolist()
      [[0.55, 0.65], [0.55, 0.65]]
    """

    center: Float[np.ndarray, "n raw"]
    factors: Float[np.ndarray, "n raw rank"]
    coefficients: Float[np.ndarray, "num_draws rank"]
    link: Link = "anchored"

    def scale(self, draw_scale: float | Float[Array, " num_draws"]) -> "LinearDraws":
        """Scales draws about their mean, as `scale_draws`; changes coefficients alone."""
        scaled = scale_about_mean(self.coefficients, draw_scale)
        return self._replace(coefficients=scaled)

    def atoms(self) -> pb.Atoms:
        """Computes compatible atoms [num_draws, n]; draws of a point are contiguous."""
        num_points, num_draws = len(self.center), len(self.coefficients)
        dtype = np.result_type(*self[:3])
        joint = np.empty((num_points, *pb.BINARY.joint_shape, num_draws), dtype)
        mu = np.empty((num_points, *pb.BINARY.mu_shape, num_draws), dtype)
        atoms = pb.Atoms(np.moveaxis(joint, -1, 0), np.moveaxis(mu, -1, 0))

        def fill(start: int) -> None:
            part = slice(start, start + _POINTS)
            raw = self.factors[part] @ self.coefficients.T  # [points, raw, draws]
            raw += self.center[part, :, None]
            drawn = from_raw(np.moveaxis(raw, -1, 0), self.link)
            for whole, some in zip(atoms, drawn, strict=True):
                whole[:, part] = some

        list(inputs.map_threads(fill, range(0, num_points, _POINTS)))
        return atoms


_DRAW_SCALES = np.geomspace(1 / 8, 8, 25)
_MAX_GROUPS, _GROUP_SIZE, _MAX_ROWS = 1000, 8, 8000
_ALLOWED = 1.92  # log-likelihood ratio of a 95% interval


class DrawCalibration(NamedTuple):
    """The factor with the greatest joint likelihood, and the profile of those tried.

    The interval holds factors whose log-likelihood lies within 1.92 of the greatest: a
    95% interval if groups are independent.
    """

    draw_scale: float
    interval: tuple[float, float]
    draw_scales: Float[np.ndarray, " num_scales"]
    log_likelihood: Float[np.ndarray, " num_scales"]  # summed over groups


def scale_draws(
    draws: pb.Atoms, draw_scale: float | Float[Array, " num_draws"]
) -> pb.Atoms:
    """Scales draws [num_draws, ...] about their mean, on the logit scale.

    Works on the logits of the joint law and of the position of mu between its limits,
    so every scaled draw is again a compatible law. A scale of 1 changes nothing, 0
    makes all draws equal; there may be one for each draw.

    Example:
      >>> joint = np.full((2, 1, 2, 2), 0.25)  # mu lies between 0.25 and 0.75
      >>> draws = pb.Atoms(joint, np.array([[[0.5, 0.4]], [[0.5, 0.6]]]))
      >>> scale_draws(draws, 0.0).mu[:, 0, 1].round(6).tolist()
      [0.5, 0.5]
    """
    return from_raw(scale_about_mean(to_raw(draws), draw_scale))


def calibrate_draws(
    draws: pb.Atoms,
    observational: Num[Array, "num_points treatments levels"],
    experimental: Num[Array, "num_points treatments levels"],
    groups: Int[Array, " num_points"] | None = None,
) -> DrawCalibration:
    """Chooses the scale of draws by the joint likelihood of held-out units.

    Draws are [num_draws, num_points] at the held-out points. Units of points with the
    same group are judged jointly; every point by itself if None, which suits discrete
    covariates. For continuous ones take `neighborhoods(z, size)`;
    `choose_calibration_rows` chooses for you. The best scale lies between those tried,
    by a parabola in log scale.

    Example:
      >>> rng, joint = np.random.default_rng(0), np.full((300, 200, 2, 2), 0.25)
      >>> delta = rng.normal(size=(300, 200, 2))
      >>> draws = pb.Atoms(joint, pb.anchor(joint, 0.5 * delta))  # too narrow
      >>> mu = pb.anchor(joint[0], rng.normal(size=(200, 2)))  # the truth
      >>> experimental = rng.multinomial(400, np.stack([1 - mu, mu], axis=-1))
      >>> found = calibrate_draws(draws, np.zeros((200, 2, 2)), experimental)
      >>> round(found.draw_scale), found.interval[0] < 2 < found.interval[1]
      (2, True)
    """
    draws = inputs.checked_atoms("draws", draws, ("num_draws", "num_points"))
    raw = to_raw(pb.Atoms(*(np.asarray(part, np.float64) for part in draws)))
    num_points = raw.shape[1]
    counts = inputs.trial_counts(observational, experimental, num_points)
    if not sum(part.sum() for part in counts) > 0:
        raise pb.InputError("counts", "hold no units to calibrate the draws by.")
    groups = np.arange(num_points) if groups is None else np.asarray(groups)
    inputs.check_shape("groups", groups, (num_points,))
    _, groups = np.unique(groups, return_inverse=True)
    scaled = (from_raw(scale_about_mean(raw, scale)) for scale in _DRAW_SCALES)
    profile = np.array([_joint_log_likelihood(d, counts, groups) for d in scaled])
    x, best = np.log(_DRAW_SCALES), int(np.argmax(profile))
    level = profile[best] - _ALLOWED
    low = _crossing(x[best::-1], profile[best::-1], level)
    high = _crossing(x[best:], profile[best:], level)
    top = _vertex(x, profile, best)
    return DrawCalibration(top, (low, high), _DRAW_SCALES, profile)


def _joint_log_likelihood(
    draws: pb.Atoms, counts: list[inputs.Trials], groups: Int[np.ndarray, " num_points"]
) -> float:
    """Sums over groups the log of the mean over draws of the joint likelihood."""
    tiny = np.finfo(np.float64).tiny
    by_point = np.zeros(draws.mu.shape[:2])
    for part, law in zip(counts, inputs.trial_laws(draws), strict=True):
        by_point += np.einsum("nto,dnto->dn", part, np.log(np.maximum(law, tiny)))
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


def _crossing(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], level: float
) -> float:
    """Finds where a profile, from its top outward, falls to a level; else its end."""
    below = np.flatnonzero(y < level)
    if not len(below):
        return float(np.exp(x[-1]))
    pair = [below[0], below[0] - 1]
    return float(np.exp(np.interp(level, y[pair], x[pair])))


def choose_calibration_rows(
    z: Float[Array, "num_rows num_covariates"],
    observational: Num[Array, "num_rows treatments levels"],
    experimental: Num[Array, "num_rows treatments levels"],
) -> tuple[Int[np.ndarray, " num_chosen"], Int[np.ndarray, " num_chosen"] | None]:
    """Chooses a few thousand held-out rows to calibrate by, and their groups.

    Where rows hold two units or more on average the covariates are discrete: every row
    is judged by itself, and at most 8,000 are drawn. Otherwise covariates do not
    repeat: rows are grouped with their neighbors, and at most 1,000 groups are drawn.
    Covariates must be on comparable scales, say standardized. Returns the places of the
    chosen rows, ascending, and their groups; None if every row is its own group.

    Example:
      >>> z, nothing = np.arange(16.0)[:, None], np.zeros((16, 2, 2))
      >>> rows, groups = choose_calibration_rows(z, nothing + 0.25, nothing)
      >>> [rows[groups == label].tolist() for label in np.unique(groups)]
      [[8, 9, 10, 11, 12, 13, 14, 15], [0, 1, 2, 3, 4, 5, 6, 7]]
    """
    rng = np.random.default_rng(0)
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
