"""Ridge regression and additive splines as learners.

Both are linear in features f(z) of the covariates: the covariates themselves, or cubic
B-splines of each of them. With slopes b of each cell and of each arm,

    log p_xy(z) = a_xy + f(z) . b_xy + const,
    mu_x(z)     = p_x1(z) + P(X != x | z) sigmoid(a_x + f(z) . b_x).

The log decides p; given p, the trial decides where mu lies between its limits. The penalty
is tau b' S b. For the ridge, S is the identity and covariates are standardized; for splines
it sums squared second differences of coefficients, and a little of their ridge. The members
take values of tau in proportion to the likelihood of the held-out folds and a uniform prior
of the slopes' standard deviation, 1 / sqrt(2 tau), separately for each source. Where few
outcomes say little, members differ, and shrink less than the best single value would.

Members that see a share of the units show the error of those that see all. A penalized fit
varies less than it errs where data say little, so instead of fitting shares, these members
are draws from the posterior about the fit to all units (Nychka, 1988, shows that its
intervals cover on average over the covariates), sqrt((1 - q) / q) times as far from it: as
far as fits to a share q of the units are in regular problems.

Features are rotated so that their second moments are the identity and S is diagonal.
Divided by the root of its penalized Hessian, up to a factor, the problem is well
conditioned, and L-BFGS needs about ten steps.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from pns_bounds import BINARY
from scipy import interpolate, linalg, optimize, special

from pns_models._data import row_blocks
from pns_models._errors import UnsuitableError
from pns_models._learner import MEMBERS, RunContext
from pns_models._links import free_numbers
from pns_models._resamples import Resamples
from pns_models._rows import SOURCES

_TAILS = (0.001, 0.999)  # quantiles beyond which features stay as they are there
_FEW_VALUES = 5  # distinct values up to which a covariate has no spline
_MAX_FEATURES = 400  # of splines; more covariates have fewer knots
_LEAST_KNOTS = 6
_MAX_VALUES = 2**25  # of features that a source is fitted to
_RIDGE_SHARE = 0.01  # of the ridge in the penalty of splines
_PENALTIES = 10.0 ** np.arange(4.5, -1.5, -0.5)  # tau beside a sum over units
_NEGLIGIBLE = 10.0  # log-likelihood below the best
_TUNING_ROWS = 20_000  # of a source, by which tau is chosen
_CURVATURE = 0.2  # about the second derivative of a unit's loss

Slopes = Float[np.ndarray, "one_and_k outputs"]  # those of the constant first


class _Basis(NamedTuple):
    """Features of covariates."""

    limits: Float[np.ndarray, "2 d"]  # covariates are moved between these
    scale: Float[np.ndarray, " d"]  # by which those without a spline are divided
    # Of each covariate's spline, the ends four times; NaN behind, or everywhere.
    knots: Float[np.ndarray, "d knots"]
    mean: Float[np.ndarray, " k"]  # of the features
    penalty: Float[np.ndarray, "k k"]  # S

    def __call__(
        self,
        z: Float[np.ndarray, "n d"],
        rotation: Float[np.ndarray, "k r"] | None = None,
    ) -> Float[np.ndarray, "n k_or_r"]:
        """Computes centered features, some rows at a time; rotated if asked for."""
        size = len(self.mean) if rotation is None else rotation.shape[1]
        result = np.empty((len(z), size), np.float32)
        for part in row_blocks(len(z), len(self.mean)):
            features = self._features(z[part]) - self.mean
            result[part] = features if rotation is None else features @ rotation
        return result

    def _features(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        z = np.clip(z.astype(np.float64), *self.limits)
        parts = []
        for column, scale, knots in zip(z.T, self.scale, self.knots, strict=True):
            knots = knots[np.isfinite(knots)]
            is_spline = len(knots) > 0
            parts.append(
                _splines(column, knots) if is_spline else column[:, None] / scale
            )
        return np.concatenate(parts, axis=1)


def _splines(
    column: Float[np.ndarray, " n"], knots: Float[np.ndarray, " knots"]
) -> Float[np.ndarray, "n functions"]:
    """Computes cubic B-splines; the last one, which follows from the others, is left out."""
    return interpolate.BSpline.design_matrix(column, knots, 3).toarray()[:, :-1]


def _make_basis(z: Float[np.ndarray, "n d"], num_knots: int) -> _Basis:
    """Puts knots at quantiles; without knots it is the basis of a ridge."""
    z = z.astype(np.float64)
    limits = np.quantile(z, _TAILS, axis=0)
    is_rare = limits[0] == limits[1]  # a covariate that hardly varies keeps its range
    limits[:, is_rare] = z.min(axis=0)[is_rare], z.max(axis=0)[is_rare]
    z = np.clip(z, *limits)
    scale = np.where(z.std(axis=0) > 0, z.std(axis=0), 1.0)
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
    penalty = linalg.block_diag(*blocks)
    basis = _Basis(limits, scale, knots, np.zeros(len(penalty)), penalty)
    return basis._replace(mean=basis(z).mean(axis=0, dtype=np.float64))


@MEMBERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class LinearMembers:
    """Models that are linear in the same features.

    Attributes:
      fold: the one that each member did not see.
      basis: the features.
      log: slopes of the cells.
      trial: slopes of the arms.
      penalties: tau of the log and of the trial, for each member.
    """

    kind: ClassVar[str] = "linear"
    fold: Int[np.ndarray, " m"]
    basis: _Basis
    log: Float[np.ndarray, "m one_and_k cells"]
    trial: Float[np.ndarray, "m one_and_k arms"]
    penalties: Float[np.ndarray, "m sources"]

    def raw(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m n raw"]:
        """Computes every member's raw numbers of rows, on the scale of the data."""
        slopes = np.concatenate([self.log, self.trial], axis=2)
        return free_numbers(slopes[:, :1] + self.basis(z) @ slopes[:, 1:])

    def take(self, order: Int[np.ndarray, " some"]) -> "LinearMembers":
        """Picks members by number."""
        return dataclasses.replace(
            self,
            fold=self.fold[order],
            log=self.log[order],
            trial=self.trial[order],
            penalties=self.penalties[order],
        )

    def save(self, folder: Path) -> None:
        """Writes all arrays."""
        np.savez(folder / "basis.npz", **self.basis._asdict())
        arrays = {name: part for name, part in vars(self).items() if name != "basis"}
        np.savez(folder / "members.npz", **arrays)

    @classmethod
    def load(cls, folder: Path) -> "LinearMembers":
        """Reads what `save` wrote."""
        with np.load(folder / "basis.npz", allow_pickle=False) as stored:
            basis = _Basis(**stored)
        with np.load(folder / "members.npz", allow_pickle=False) as stored:
            return cls(basis=basis, **stored)


@dataclasses.dataclass(frozen=True)
class LinearLearner:
    """Fits ridge regressions, or additive splines.

    Attributes:
      num_knots: of the spline of each covariate; 0 is the ridge.
    """

    num_knots: int = 0

    @property
    def name(self) -> str:
        """What reports call it."""
        return "additive splines" if self.num_knots else "ridge regression"

    def fit(
        self,
        key: PRNGKeyArray,
        resamples: Resamples,
        context: RunContext,
    ) -> LinearMembers:
        """Fits a member to each resample, or draws it if it sees a share."""
        z = resamples.z
        some = z[:: -(-len(z) // _TUNING_ROWS)]
        basis = _make_basis(some, self._knots(z.shape[1]))
        bends, rotation = _rotate(basis, some)
        slopes: list[list[Slopes]] = []
        penalties = []
        for source in range(len(SOURCES)):
            rows = np.flatnonzero(resamples.total[:, source].any(axis=(1, 2)))
            rows = rows[:: 1 + len(rows) * len(bends) // _MAX_VALUES]
            rotated = basis(z[rows], rotation)
            # The law of the log by each member, which anchors its arms.
            anchors = (
                [_log_cells(rotated, each) for each in slopes[0]] if source else []
            )
            data = _Data(resamples, source, rows, rotated, anchors, bends)
            penalties.append(_tune(data))
            slopes.append(_fit_members(data, penalties[-1]))
        log, trial = (
            np.stack([np.r_[each[:1], rotation @ each[1:]] for each in part])
            for part in slopes
        )
        return LinearMembers(
            fold=resamples.member_fold,
            basis=basis,
            log=log.astype(np.float32),
            trial=trial.astype(np.float32),
            penalties=np.stack(penalties, axis=1),
        )

    def _knots(self, num_covariates: int) -> int:
        """Returns the number of knots, fewer if there are many covariates."""
        if not self.num_knots:
            return 0
        most = _MAX_FEATURES // num_covariates - 2
        if most < _LEAST_KNOTS:
            raise UnsuitableError(
                f"there are {num_covariates} covariates, and splines are for at most "
                f"{_MAX_FEATURES // (_LEAST_KNOTS + 2)}."
            )
        return min(self.num_knots, most)


def _rotate(
    basis: _Basis, z: Float[np.ndarray, "n d"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "k k"]]:
    """Finds the rotation that makes S diagonal and the features' moments the identity."""
    features = basis(z).astype(np.float64)
    moments = features.T @ features / len(features)
    # Features may follow from each other, as those of a category do, or be constant.
    mean = max(np.trace(moments) / len(moments), 1e-6)
    moments += 1e-5 * mean * np.eye(len(moments))
    return linalg.eigh(basis.penalty, moments)


class _Data(NamedTuple):
    """What the fits of one source share."""

    resamples: Resamples
    source: int
    rows: Int[np.ndarray, " n"]  # cells with units of the source
    rotated: Float[np.ndarray, "n k"]  # their features
    # Logs of p by each member, for the trial; empty for the log itself.
    anchors: Sequence[Float[np.ndarray, "n cells"]]
    bends: Float[np.ndarray, " k"]  # the diagonal of S

    def anchor(self, member: int, part: slice) -> Float[np.ndarray, "n cells"] | None:
        """Returns a member's anchors of some rows."""
        return self.anchors[member][part] if self.anchors else None


def _tune(data: _Data) -> Float[np.ndarray, " m"]:
    """Chooses tau of each member by what the first members do not see."""
    part = slice(None, None, -(-len(data.rows) // _TUNING_ROWS))
    rows, rotated = data.rows[part], data.rotated[part]
    resamples = data.resamples
    folds = range(resamples.folded.num_folds)
    seen = [resamples.seen(fold)[rows, data.source] for fold in folds]
    total = resamples.total
    held_out = [(total - resamples.seen(fold))[rows, data.source] for fold in folds]
    starts: list[Slopes | None] = [None for _ in folds]
    losses: list[float] = []
    for penalty in _PENALTIES:
        loss = 0.0
        for fold in folds:
            anchor = data.anchor(fold, part)
            starts[fold] = slopes = _minimize(
                rotated, anchor, seen[fold], penalty * data.bends, starts[fold]
            )
            loss += _loss(slopes, rotated, anchor, held_out[fold])[0]
        losses.append(loss)
        if loss > min(losses) + _NEGLIGIBLE:
            break  # weaker penalties are worse still
    prior = -np.log(_PENALTIES[: len(losses)]) / 2  # the grid is even in log tau
    likelihood = np.cumsum(special.softmax(prior - np.array(losses)))
    size = len(resamples.member_fold)
    places = np.searchsorted(likelihood, (np.arange(size) + 0.5) / size)
    return _PENALTIES[places]


def _fit_members(data: _Data, penalties: Float[np.ndarray, " m"]) -> list[Slopes]:
    """Fits every member; with a share of the units, draws it about its fit."""
    resamples = data.resamples
    noise = _centered_noise(data, len(penalties)) if resamples.share < 1 else None
    result: list[Slopes] = []
    slopes = None
    for member, penalty in enumerate(penalties):
        fold = int(resamples.member_fold[member])
        counts = resamples.seen(fold)[data.rows, data.source]
        seen = counts.any(axis=(1, 2))
        anchor = data.anchors[member][seen] if data.anchors else None
        penalty = penalty * data.bends
        slopes = _minimize(data.rotated[seen], anchor, counts[seen], penalty, slopes)
        result.append(slopes)
        if noise is not None:
            hessian = _information(slopes, data.rotated[seen], anchor, counts[seen])
            hessian = hessian + np.r_[0.0, 2 * penalty][:, None]
            odds = (1 - resamples.share) / resamples.share
            result[-1] = slopes + np.sqrt(odds / hessian) * noise[member]
    return result


def _centered_noise(data: _Data, size: int) -> Float[np.ndarray, "m one_and_k outputs"]:
    """Draws standard normal numbers that sum to 0 over the members of a fold."""
    outputs = BINARY.num_treatments if data.anchors else BINARY.num_cells
    rng = np.random.default_rng([data.resamples.seed, data.source])
    num_folds = data.resamples.folded.num_folds
    shape = (size // num_folds, num_folds, 1 + len(data.bends), outputs)
    noise = rng.standard_normal(shape)
    noise -= noise.mean(axis=0)
    noise *= np.sqrt(len(noise) / max(len(noise) - 1, 1))
    return noise.reshape(size, *shape[2:])


def _information(
    slopes: Slopes,
    rotated: Float[np.ndarray, "n k"],
    anchor: Float[np.ndarray, "n cells"] | None,
    counts: Float[np.ndarray, "n treatments levels"],
) -> Float[np.ndarray, " outputs"]:
    """Computes the Fisher information of each output, of a feature with variance 1."""
    if anchor is None:
        law = np.exp(_log_cells(rotated, slopes))
        return (counts.sum(axis=(1, 2))[:, None] * law * (1 - law)).sum(axis=0)
    mu, change = _arms(slopes, rotated, anchor)
    return (counts.sum(axis=2) * change**2 / mu.prod(axis=2)).sum(axis=0)


def _minimize(
    rotated: Float[np.ndarray, "n k"],
    anchor: Float[np.ndarray, "n cells"] | None,
    counts: Float[np.ndarray, "n treatments levels"],
    penalty: Float[np.ndarray, " k"],
    start: Slopes | None,
) -> Slopes:
    """Minimizes the penalized loss of a source."""
    units = counts.sum()
    outputs = BINARY.num_cells if anchor is None else BINARY.num_treatments
    shape = (1 + rotated.shape[1], outputs)
    weight = np.r_[0.0, penalty / units][:, None]
    scale = 1 / np.sqrt(_CURVATURE + 2 * weight)

    def objective(flat: Float[np.ndarray, " size"]) -> tuple[float, np.ndarray]:
        slopes = flat.reshape(shape) * scale
        value, gradient = _loss(slopes, rotated, anchor, counts)
        value = value / units + float((weight * slopes**2).sum())
        return value, ((gradient / units + 2 * weight * slopes) * scale).ravel()

    first = np.zeros(shape) if start is None else start / scale
    options = {"maxiter": 50, "ftol": 1e-7, "gtol": 1e-4}
    found = optimize.minimize(
        objective, first.ravel(), jac=True, method="L-BFGS-B", options=options
    )
    return found.x.reshape(shape) * scale


def _log_cells(
    rotated: Float[np.ndarray, "n k"], slopes: Slopes
) -> Float[np.ndarray, "n cells"]:
    """Computes the logs of p."""
    raw = rotated @ slopes[1:].astype(np.float32) + slopes[0].astype(np.float32)
    return raw - special.logsumexp(raw, axis=1, keepdims=True)


def _loss(
    slopes: Slopes,
    rotated: Float[np.ndarray, "n k"],
    anchor: Float[np.ndarray, "n cells"] | None,
    counts: Float[np.ndarray, "n treatments levels"],
) -> tuple[float, Slopes]:
    """Computes the negative log-likelihood of a source, and its gradient."""
    if anchor is None:
        cells = counts.reshape(len(counts), -1)
        logs = _log_cells(rotated, slopes)
        value = -float((cells * logs).sum())
        by_raw = cells.sum(axis=1, keepdims=True) * np.exp(logs) - cells
    else:
        mu, change = _arms(slopes, rotated, anchor)
        value = -float((counts * np.log(mu)).sum())
        by_raw = (counts[..., 0] / mu[..., 0] - counts[..., 1] / mu[..., 1]) * change
    by_raw = by_raw.astype(np.float32)
    return value, np.vstack([by_raw.sum(axis=0, dtype=float), rotated.T @ by_raw])


def _arms(
    slopes: Slopes,
    rotated: Float[np.ndarray, "n k"],
    anchor: Float[np.ndarray, "n cells"],
) -> tuple[Float[np.ndarray, "n arms levels"], Float[np.ndarray, "n arms"]]:
    """Computes P(Y_x = y) of both levels, and the derivative of that of level 1."""
    joint = np.exp(anchor).reshape(-1, *BINARY.joint_shape)
    slopes = slopes.astype(np.float32)
    place = special.expit(rotated @ slopes[1:] + slopes[0])
    other = joint[:, ::-1].sum(axis=2)  # P(X != x)
    by_level = other[..., None] * np.stack([1 - place, place], axis=2)
    mu = np.maximum(joint + by_level, np.finfo(np.float32).tiny)
    return mu, other * place * (1 - place)
