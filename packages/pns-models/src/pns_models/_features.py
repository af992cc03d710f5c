"""Features of covariates, in which regressions are linear.

A covariate is a feature itself, or is replaced by cubic B-splines. Kernel features
describe functions of all covariates at once: with landmarks u_1, ..., u_m among the rows
and k(u, v) = exp(-|u - v|^2 / 2d), d the number of covariates, they are
k(u, landmarks) K^(-1/2), K the landmarks' own matrix. A ridge penalty of their slopes is
then that of a Gaussian process with covariance k, as far as the landmarks can tell.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import interpolate, linalg
from scipy.spatial import distance

from pns_models._data import row_blocks

_TAILS = (0.001, 0.999)  # quantiles beyond which features stay as they are there
_FEW_VALUES = 5  # distinct values up to which a covariate has no spline
_RIDGE_SHARE = 0.01  # of the ridge in the penalty of splines
_NEGLIGIBLE = 1e-6  # eigenvalues of K beside the greatest


class Basis(NamedTuple):
    """Features of covariates, and the penalty of their slopes."""

    limits: Float[np.ndarray, "2 d"]  # covariates are moved between these
    center: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]  # by which those without a spline are divided
    # Of each covariate's spline, the ends four times; NaN behind, or everywhere.
    knots: Float[np.ndarray, "d knots"]
    landmarks: Float[np.ndarray, "m d"]  # standardized
    root: Float[np.ndarray, "m r"]  # K^(-1/2)
    mean: Float[np.ndarray, " k"]  # of the features
    penalty: Float[np.ndarray, "k k"]  # S

    def __call__(
        self,
        z: Float[np.ndarray, "n d"],
        rotation: Float[np.ndarray, "k r"] | None = None,
        rows: Int[np.ndarray, " m"] | None = None,
    ) -> Float[np.ndarray, "n_or_m k_or_r"]:
        """Computes centered features, of all or some rows; rotated if asked for."""
        size = len(self.mean) if rotation is None else rotation.shape[1]
        count = len(z) if rows is None else len(rows)
        result = np.empty((count, size), np.float32)
        for part in row_blocks(count, len(self.mean)):
            block = z[part if rows is None else rows[part]]
            features = self._features(block) - self.mean
            result[part] = features if rotation is None else features @ rotation
        return result

    def _features(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        z = np.clip(z.astype(np.float64), *self.limits)
        standard = (z - self.center) / self.scale
        parts = []
        for column, plain, knots in zip(z.T, standard.T, self.knots, strict=True):
            knots = knots[np.isfinite(knots)]
            parts.append(_splines(column, knots) if len(knots) else plain[:, None])
        if len(self.landmarks):
            parts.append(_kernel(standard, self.landmarks) @ self.root)
        return np.concatenate(parts, axis=1)


def _splines(
    column: Float[np.ndarray, " n"], knots: Float[np.ndarray, " knots"]
) -> Float[np.ndarray, "n functions"]:
    """Computes cubic B-splines; the last one, which follows from the others, is left out."""
    return interpolate.BSpline.design_matrix(column, knots, 3).toarray()[:, :-1]


def _kernel(
    u: Float[np.ndarray, "n d"], landmarks: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, "n m"]:
    squares = distance.cdist(u, landmarks, "sqeuclidean")
    return np.exp(squares / (-2 * u.shape[1]))


def make_basis(
    z: Float[np.ndarray, "n d"], num_knots: int = 0, num_landmarks: int = 0
) -> Basis:
    """Chooses features; without knots and landmarks they are the covariates.

    Args:
      z: rows at whose quantiles knots lie, and from which landmarks are taken evenly.
      num_knots: of the spline of each covariate that has more than a few values.
      num_landmarks: of the kernel, at most.
    """
    z = z.astype(np.float64)
    limits = np.stack([np.quantile(column, _TAILS) for column in z.T], axis=1)
    is_rare = limits[0] == limits[1]  # a covariate that hardly varies keeps its range
    limits[:, is_rare] = z.min(axis=0)[is_rare], z.max(axis=0)[is_rare]
    np.clip(z, *limits, out=z)
    scale = z.std(axis=0)
    scale[scale == 0] = 1.0
    center = z.mean(axis=0)
    knots = np.full((z.shape[1], num_knots + 6), np.nan)
    blocks = []
    for column, row in zip(z.T, knots, strict=True):
        inner = np.unique(np.quantile(column, np.linspace(0, 1, max(num_knots, 1))))
        if min(len(inner), len(np.unique(column))) <= _FEW_VALUES:
            blocks.append([[_RIDGE_SHARE if num_knots else 1.0]])
            continue
        own = np.concatenate([inner[:1].repeat(3), inner, inner[-1:].repeat(3)])
        row[: len(own)] = own
        bend = np.diff(np.eye(len(inner) + 2), 2, axis=0)[:, :-1]
        ridge = np.diag(_splines(column, own).var(axis=0))
        blocks.append(bend.T @ bend + _RIDGE_SHARE * ridge)
    some = np.random.default_rng(0).permutation(len(z))[: 2 * num_landmarks]
    landmarks, root = _make_kernel((z[some] - center) / scale, num_landmarks)
    penalty = linalg.block_diag(*blocks, np.eye(root.shape[1]))
    mean = np.zeros(len(penalty))
    basis = Basis(limits, center, scale, knots, landmarks, root, mean, penalty)
    return basis._replace(mean=basis(z).mean(axis=0, dtype=np.float64))


def _make_kernel(
    u: Float[np.ndarray, "n d"], num_landmarks: int
) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "m r"]]:
    """Takes landmarks evenly among the distinct rows, and the root of their kernel."""
    if not num_landmarks:
        return np.zeros((0, u.shape[1])), np.zeros((0, 0))
    landmarks = np.unique(u, axis=0)
    landmarks = landmarks[:: -(-len(landmarks) // num_landmarks)]
    values, vectors = linalg.eigh(_kernel(landmarks, landmarks))
    kept = values > _NEGLIGIBLE * values[-1]
    return landmarks, vectors[:, kept] / np.sqrt(values[kept])


def rotate(
    basis: Basis, z: Float[np.ndarray, "n d"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "k k"]]:
    """Finds the rotation that makes S diagonal and the features' moments the identity."""
    features = basis(z).astype(np.float64)
    moments = features.T @ features / len(features)
    # Features may follow from each other, as those of a category do, or be constant.
    mean = max(np.trace(moments) / len(moments), 1e-6)
    moments += 1e-5 * mean * np.eye(len(moments))
    return linalg.eigh(basis.penalty, moments)
