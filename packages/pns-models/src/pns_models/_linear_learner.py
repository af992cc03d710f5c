"""Ridge regression, additive splines and kernel regression as learners.

All are linear in features f(z) of the covariates, see `_features`. With slopes b of each
cell and of each arm,

    log p_xy(z) = a_xy + f(z) . b_xy + const,
    mu_x(z)     = p_x1(z) + P(X != x | z) sigmoid(a_x + f(z) . b_x).

The log decides p; given p, the trial decides where mu lies between its limits. The penalty
is tau b' S b. For ridge and kernel, S is the identity; for splines it sums squared second
differences of coefficients, and a little of their ridge. The members take values of tau in
proportion to the likelihood of the held-out folds and a uniform prior of the slopes'
standard deviation, 1 / sqrt(2 tau), separately for each source. Where few outcomes say
little, members differ, and shrink less than the best single value would.

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
from scipy import optimize, special

from pns_models._data import row_blocks
from pns_models._errors import UnsuitableError
from pns_models._features import Basis, make_basis, rotate
from pns_models._learner import MEMBERS, RunContext
from pns_models._links import free_numbers
from pns_models._resamples import Resamples
from pns_models._rows import SOURCES

_MAX_FEATURES = 400  # of splines; more covariates have fewer knots
_LEAST_KNOTS = 6
_MAX_COVARIATES = 50  # of a kernel
_MAX_VALUES = 2**25  # of features that a source is fitted to
_PENALTIES = 10.0 ** np.arange(4.5, -1.5, -0.5)  # tau beside a sum over units
_NEGLIGIBLE = 10.0  # log-likelihood below the best
_TUNING_ROWS = 20_000  # of a source, by which tau is chosen
_CURVATURE = 0.2  # about the second derivative of a unit's loss
_CONSTANT_PENALTY = 1e-6  # a unit, so that cells without units have finite logits

Slopes = Float[np.ndarray, "m one_and_k outputs"]  # those of the constant first


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
    basis: Basis
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
            basis = Basis(**stored)
        with np.load(folder / "members.npz", allow_pickle=False) as stored:
            return cls(basis=basis, **stored)


@dataclasses.dataclass(frozen=True)
class LinearLearner:
    """Fits ridge regressions, additive splines or kernel regressions.

    Attributes:
      num_knots: of the spline of each covariate; 0 for none.
      num_landmarks: of the kernel; 0 for none.
    """

    num_knots: int = 0
    num_landmarks: int = 0

    @property
    def name(self) -> str:
        """What reports call it."""
        if self.num_landmarks:
            return "kernel regression"
        return "additive splines" if self.num_knots else "ridge regression"

    def fit(
        self,
        key: PRNGKeyArray,
        resamples: Resamples,
        context: RunContext,
    ) -> LinearMembers:
        """Fits a member to each resample."""
        z = resamples.z
        some = z[:: -(-len(z) // _TUNING_ROWS)]
        basis = make_basis(some, self._knots(z.shape[1]), self.num_landmarks)
        bends, rotation = rotate(basis, some)
        slopes: list[Slopes] = []
        penalties = []
        for source in range(len(SOURCES)):
            rows = np.flatnonzero(resamples.total[:, source].any(axis=(1, 2)))
            rows = rows[:: 1 + len(rows) * len(bends) // _MAX_VALUES]
            rotated = basis(z, rotation, rows)
            # The law of the log by each member anchors its arms.
            anchors = slopes[0] if source else None
            data = _Data(resamples, source, rows, rotated, anchors, bends)
            penalties.append(_tune(data))
            slopes.append(_fit_members(data, penalties[-1]))
        log, trial = (
            np.concatenate([each[:, :1], rotation @ each[:, 1:]], axis=1)
            for each in slopes
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
        most = _MAX_FEATURES // num_covariates - 2
        is_wide = self.num_landmarks and num_covariates > _MAX_COVARIATES
        if is_wide or (self.num_knots and most < _LEAST_KNOTS):
            most = _MAX_FEATURES // (_LEAST_KNOTS + 2)
            raise UnsuitableError(
                f"there are {num_covariates} covariates, and it is for at most "
                f"{_MAX_COVARIATES if self.num_landmarks else most}."
            )
        return min(self.num_knots, most)


class _Data(NamedTuple):
    """What the fits of one source share."""

    resamples: Resamples
    source: int
    rows: Int[np.ndarray, " n"]  # cells with units of the source
    rotated: Float[np.ndarray, "n k"]  # their features
    anchors: Slopes | None  # of the log by each member, for the trial
    bends: Float[np.ndarray, " k"]  # the diagonal of S

    def some(
        self,
        members: Int[np.ndarray, " m"],
        chosen: slice,
        counts: Sequence[Float[np.ndarray, "cells sources treatments levels"]],
    ) -> "_Part":
        """Picks the rows that have units; one array of counts for each member."""
        own = [
            each[self.rows[chosen], self.source].astype(np.float32) for each in counts
        ]
        units = np.stack(own, axis=1)
        has_units = units.any(axis=(1, 2, 3))
        # If most have, all are taken without a copy; those without units add nothing.
        seen = slice(None) if 2 * has_units.sum() > len(units) else has_units
        rotated = self.rotated[chosen][seen]
        anchor = None
        if self.anchors is not None:
            anchor = _raw(self.anchors[members], rotated)
            anchor -= special.logsumexp(anchor, axis=2, keepdims=True)
        return _Part(rotated, anchor, units[seen])


class _Part(NamedTuple):
    """Rows of a source, and what members see of them."""

    rotated: Float[np.ndarray, "n k"]
    anchor: Float[np.ndarray, "n m cells"] | None  # logs of p
    counts: Float[np.ndarray, "n m treatments levels"]


def _tune(data: _Data) -> Float[np.ndarray, " members"]:
    """Chooses tau of each member by what the first members do not see."""
    resamples = data.resamples
    every = slice(None, None, -(-len(data.rows) // _TUNING_ROWS))
    folds = range(resamples.folded.num_folds)
    first, total = np.array(folds), resamples.total  # one member of each fold, in order
    training = data.some(first, every, [resamples.counts(i) for i in folds])
    judging = data.some(first, every, [total - resamples.seen(i) for i in folds])
    slopes: Slopes | None = None
    losses: list[float] = []
    for penalty in _PENALTIES:
        slopes = _minimize(training, np.full(len(first), penalty), data.bends, slopes)
        losses.append(float(_loss(slopes, judging)[0].sum()))
        if losses[-1] > min(losses) + _NEGLIGIBLE:
            break  # weaker penalties are worse still
    prior = -np.log(_PENALTIES[: len(losses)]) / 2  # the grid is even in log tau
    likelihood = np.cumsum(special.softmax(prior - np.array(losses)))
    size = len(resamples.member_fold)
    places = np.searchsorted(likelihood, (np.arange(size) + 0.5) / size)
    return _PENALTIES[places]


def _fit_members(data: _Data, penalties: Float[np.ndarray, " members"]) -> Slopes:
    """Fits every member, those that share their units at a time."""
    result: list[Slopes] = []
    for own in np.split(np.arange(len(penalties)), data.resamples.per_fold):
        part = data.some(own, slice(None), [data.resamples.counts(int(i)) for i in own])
        start = result[-1] if result else None
        result.append(_minimize(part, penalties[own], data.bends, start))
    return np.concatenate(result)


def _minimize(
    part: _Part,
    penalties: Float[np.ndarray, " m"],
    bends: Float[np.ndarray, " k"],
    start: Slopes | None,
) -> Slopes:
    """Minimizes the penalized loss of each member, all at once."""
    units = np.maximum(part.counts.sum(axis=(0, 2, 3), dtype=float), 1.0)
    outputs = BINARY.num_cells if part.anchor is None else BINARY.num_treatments
    shape = (len(units), 1 + len(bends), outputs)
    weight = np.full((*shape[:2], 1), _CONSTANT_PENALTY)
    weight[:, 1:, 0] = np.outer(penalties / units, bends)
    scale = 1 / np.sqrt(_CURVATURE + 2 * weight)

    def objective(flat: Float[np.ndarray, " size"]) -> tuple[float, np.ndarray]:
        slopes = flat.reshape(shape) * scale
        values, gradient = _loss(slopes, part)
        gradient = gradient / units[:, None, None] + 2 * weight * slopes
        value = (values / units).sum() + (weight * slopes**2).sum()
        return float(value), (gradient * scale).ravel()

    first = np.zeros(shape) if start is None else start / scale
    options = {"maxiter": 50, "ftol": 1e-7, "gtol": 1e-4}
    found = optimize.minimize(
        objective, first.ravel(), jac=True, method="L-BFGS-B", options=options
    )
    return found.x.reshape(shape) * scale


def _raw(
    slopes: Slopes, rotated: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, "n m outputs"]:
    """Computes what slopes answer, by one product for all members."""
    flat = np.concatenate(list(slopes.astype(np.float32)), axis=1)
    raw = rotated @ flat[1:] + flat[0]
    return raw.reshape(len(rotated), len(slopes), -1)


def _loss(slopes: Slopes, part: _Part) -> tuple[Float[np.ndarray, " m"], Slopes]:
    """Computes each member's negative log-likelihood of a source, and its gradient."""
    values, gradient = np.zeros(len(slopes)), np.zeros(slopes.shape)
    for rows in row_blocks(*part.rotated.shape):
        rotated, counts = part.rotated[rows], part.counts[rows]
        raw = _raw(slopes, rotated)
        if part.anchor is None:
            cells = counts.reshape(raw.shape)
            logs = special.log_softmax(raw, axis=2)
            terms = cells * logs
            by_raw = cells.sum(axis=2, keepdims=True) * np.exp(logs) - cells
        else:
            mu, change = _arms(raw, part.anchor[rows])
            terms = counts * np.log(mu)
            share = counts / mu
            by_raw = (share[..., 0] - share[..., 1]) * change
        values -= terms.reshape(*terms.shape[:2], -1).sum(axis=(0, 2), dtype=float)
        flat = by_raw.reshape(len(rotated), -1)
        by_slope = (rotated.T @ flat).reshape(-1, *slopes.shape[::2])
        gradient[:, 0] += by_raw.sum(axis=0, dtype=float)
        gradient[:, 1:] += by_slope.transpose(1, 0, 2)
    return values, gradient


def _arms(
    raw: Float[np.ndarray, "n m arms"],
    anchor: Float[np.ndarray, "n m cells"],
) -> tuple[Float[np.ndarray, "n m arms levels"], Float[np.ndarray, "n m arms"]]:
    """Computes P(Y_x = y) of both levels, and the derivative of that of level 1."""
    joint = np.exp(anchor).reshape(*anchor.shape[:2], *BINARY.joint_shape)
    place = special.expit(raw)
    other = joint[:, :, ::-1].sum(axis=3)  # P(X != x)
    by_level = other[..., None] * np.stack([1 - place, place], axis=3)
    mu = np.maximum(joint + by_level, np.finfo(np.float32).tiny)
    return mu, other * place * (1 - place)
