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

Slopes = Float[np.ndarray, "one_and_k outputs"]  # those of the constant first


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
        slopes: list[list[Slopes]] = []
        penalties = []
        for source in range(len(SOURCES)):
            rows = np.flatnonzero(resamples.total[:, source].any(axis=(1, 2)))
            rows = rows[:: 1 + len(rows) * len(bends) // _MAX_VALUES]
            rotated = basis(z, rotation, rows)
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
    # Logs of p by each member, for the trial; empty for the log itself.
    anchors: Sequence[Float[np.ndarray, "n cells"]]
    bends: Float[np.ndarray, " k"]  # the diagonal of S

    def some(
        self,
        member: int,
        chosen: slice,
        counts: Float[np.ndarray, "n treatments levels"],
    ) -> "_Part":
        """Picks the rows that have units; anchors are those of a member."""
        has_units = np.asarray(counts.any(axis=(1, 2)))
        # If most have, all are taken without a copy; those without units add nothing.
        seen = slice(None) if 2 * has_units.sum() > len(counts) else has_units
        anchor = self.anchors[member][chosen][seen] if self.anchors else None
        return _Part(self.rotated[chosen][seen], anchor, counts[seen])


class _Part(NamedTuple):
    """Rows of a source to fit or to judge by."""

    rotated: Float[np.ndarray, "n k"]
    anchor: Float[np.ndarray, "n cells"] | None
    counts: Float[np.ndarray, "n treatments levels"]


def _tune(data: _Data) -> Float[np.ndarray, " m"]:
    """Chooses tau of each member by what the first members do not see."""
    resamples = data.resamples
    every = slice(None, None, -(-len(data.rows) // _TUNING_ROWS))
    total = resamples.total[data.rows[every], data.source]
    training, judging = [], []
    for fold in range(resamples.folded.num_folds):  # the first members, in order
        training.append(resamples.counts(fold)[data.rows[every], data.source])
        seen = resamples.seen(fold)[data.rows[every], data.source]
        judging.append(total - seen)
    starts: list[Slopes | None] = [None for _ in training]
    losses: list[float] = []
    for penalty in _PENALTIES:
        loss = 0.0
        for fold, (seen, held_out) in enumerate(zip(training, judging, strict=True)):
            part = data.some(fold, every, seen)
            slopes = _minimize(part, penalty * data.bends, starts[fold])
            loss += _loss(slopes, data.some(fold, every, held_out))[0]
            starts[fold] = slopes
        losses.append(loss)
        if loss > min(losses) + _NEGLIGIBLE:
            break  # weaker penalties are worse still
    prior = -np.log(_PENALTIES[: len(losses)]) / 2  # the grid is even in log tau
    likelihood = np.cumsum(special.softmax(prior - np.array(losses)))
    size = len(resamples.member_fold)
    places = np.searchsorted(likelihood, (np.arange(size) + 0.5) / size)
    return _PENALTIES[places]


def _fit_members(data: _Data, penalties: Float[np.ndarray, " m"]) -> list[Slopes]:
    """Fits every member."""
    result: list[Slopes] = []
    slopes = None
    for member, penalty in enumerate(penalties):
        counts = data.resamples.counts(member)[data.rows, data.source]
        part = data.some(member, slice(None), counts)
        slopes = _minimize(part, penalty * data.bends, slopes)
        result.append(slopes)
    return result


def _minimize(
    part: _Part, penalty: Float[np.ndarray, " k"], start: Slopes | None
) -> Slopes:
    """Minimizes the penalized loss of a source."""
    units = max(float(part.counts.sum()), 1.0)
    outputs = BINARY.num_cells if part.anchor is None else BINARY.num_treatments
    shape = (1 + part.rotated.shape[1], outputs)
    weight = np.r_[0.0, penalty / units][:, None]
    scale = 1 / np.sqrt(_CURVATURE + 2 * weight)

    def objective(flat: Float[np.ndarray, " size"]) -> tuple[float, np.ndarray]:
        slopes = flat.reshape(shape) * scale
        value, gradient = _loss(slopes, part)
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


def _loss(slopes: Slopes, part: _Part) -> tuple[float, Slopes]:
    """Computes the negative log-likelihood of a source, and its gradient."""
    rotated, anchor, counts = part
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
