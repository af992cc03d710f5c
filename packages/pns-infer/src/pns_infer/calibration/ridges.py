"""Ridge corrections: what a model misses along one linear combination of covariates.

A model of atoms is smooth. Where outcomes change abruptly along an *index*, a linear
combination of covariates, units with nearly the same index share the model's error though
they need not share a single covariate. So along the index the observed numbers of units O
and those that the model expects, E, are summed in a moving normal window, and the model's
probability of each outcome is multiplied by

    ratio = (N O / E + strength) / (N + strength),    N the units in the window,

a function of the index alone, a *ridge function*; this is projection pursuit with one step
for each index. Two indices are tried for each source: the one that predicts the outcomes
of the arms best, and the one that predicts the chosen treatment best, each by the
likelihood of a single-index model within the linear combinations that the model itself
uses. Window and strength have the greatest likelihood on units of folds that neither the
model nor the ratios saw; where none raises it, nothing is corrected.
"""

from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int, Num
from scipy import ndimage, optimize

from pns_infer.core.inputs import (
    Trials,
    check_shape,
    sum_by,
    trial_atoms,
    trial_counts,
    trial_laws,
)

Array = Any  # NumPy or JAX
Bins = Float[np.ndarray, "bins trials outcomes"]

_NUM_INDICES = 2  # of the outcome and of the treatment
_NUM_BINS, _REACH = 4096, 5.0  # of an index with variance 1, from -5 to 5
_WINDOWS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)  # standard deviations of a window
_STRENGTHS = (100.0, 400.0)
_LEAST_GAIN = 2.0  # of log-likelihood: one for each of two settings
_MAX_RATIO = 8.0
# The search for an index.
_SEARCH_WINDOW, _SEARCH_PRIOR, _SEARCH_ROWS = 0.1, 10.0, 60_000
_SEARCH_BINS, _NUM_ANGLES, _NUM_STARTS, _NUM_STEPS = 512, 64, 300, 60


class RidgeCorrection(NamedTuple):
    """Ratios along two indices, on the log scale; zeros where nothing is corrected.

    Attributes:
      directions: the indices are `z @ directions.T + offsets`, with variance 1.
      offsets: see above.
      observational: of the cells of the log, by bin of each index.
      experimental: of the outcomes of each arm, by bin of each index.
      windows: of each source (log, trial) and index; 0 where nothing is corrected.
    """

    directions: Float[np.ndarray, "indices d"]
    offsets: Float[np.ndarray, " indices"]
    observational: Float[np.ndarray, "indices bins trials outcomes"]
    experimental: Float[np.ndarray, "indices bins treatments levels"]
    windows: Float[np.ndarray, "sources indices"]

    def apply(self, z: Float[Array, "n d"], atoms: pb.Atoms) -> pb.Atoms:
        """Corrects a model's atoms [n] of units with covariates z.

        A corrected mu that the corrected joint law does not admit is moved to the
        nearest value that it does.
        """
        place = _bins(np.asarray(z, float) @ self.directions.T + self.offsets)
        tables = (self.observational, self.experimental)
        laws = []
        for law, table in zip(trial_laws(atoms), tables, strict=True):
            logs = sum(table[i][place[:, i]] for i in range(_NUM_INDICES))
            laws.append(_multiply(law, np.exp(logs)))
        return trial_atoms(*laws, dtype=np.asarray(atoms.mu).dtype)


class RidgeFit(NamedTuple):
    """Result of `fit_ridges`."""

    correction: RidgeCorrection  # for the model that saw all folds
    held_out: pb.Atoms  # corrected, of each row by what did not see it
    gain: tuple[float, float]  # held-out log-likelihood that was added, by source


class _Part(NamedTuple):
    """A model, the rows whose units it was corrected by, and its indices."""

    seen: Bool[np.ndarray, " n"]
    place: Int[np.ndarray, "n indices"]
    directions: Float[np.ndarray, "indices d"]
    offsets: Float[np.ndarray, " indices"]


def fit_ridges(
    rng: np.random.Generator,
    z: Float[Array, "n d"],
    observational: Num[Array, "n treatments levels"],
    experimental: Num[Array, "n treatments levels"],
    fold: Int[Array, " n"],
    models: pb.Atoms,
    subspaces: Float[Array, "num_models d b"],
) -> RidgeFit:
    """Fits corrections along two indices of each source, cross-fitted.

    Args:
      rng: decides which rows the indices are searched by if there are many.
      z: covariates of each row.
      observational: counts `[..., x, y]` of each row, units of one fold.
      experimental: counts `[..., arm, y]`.
      fold: of each row, from 0.
      models: [num_folds + 1, n] atoms of every row: those of the model that did not see
        fold 0, fold 1 and so on, then of the one that saw all.
      subspaces: for each of these models, columns whose products with z are the linear
        combinations that it uses, uncorrelated and of variance 1.

    Returns:
      The correction of the last model, and corrected held-out atoms.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> z = np.linspace(-1, 1, 200)[:, None]
      >>> observational = np.full((200, 2, 2), 25)
      >>> arms = [[50, 50], [70, 30]], [[50, 50], [40, 60]]
      >>> experimental = np.where(z[..., None] < 0, *arms)
      >>> models = pb.Atoms(np.full((3, 200, 2, 2), 0.25), np.full((3, 200, 2), 0.5))
      >>> rng, fold = np.random.default_rng(0), np.arange(200) % 2
      >>> tables, basis = (observational, experimental), np.ones((3, 1, 1)) / z.std()
      >>> fit = fit_ridges(rng, z, *tables, fold, models, basis)
      >>> fit.held_out.mu[[50, 150], 1].round(1).tolist()  # 0.5 before
      [0.3, 0.6]
    """
    z, fold = np.asarray(z, float), np.asarray(fold)
    subspaces = np.asarray(subspaces, float)
    counts = trial_counts(observational, experimental, len(z))
    num_models = int(fold.max()) + 2
    what = ", a model for each fold and one for all"
    check_shape("mu of models", models.mu, (num_models, len(z), "treatments"), what)
    check_shape("subspaces", subspaces, (num_models, z.shape[1], "b"), what)
    parts = [
        _find_indices(rng, z, counts, fold != j, subspaces[j])
        for j in range(num_models)
    ]
    laws = [trial_laws(pb.Atoms(*each)) for each in zip(*models, strict=True)]
    log, trial = (
        _correct_source(parts, fold, count, list(law))
        for count, law in zip(counts, zip(*laws, strict=True), strict=True)
    )
    correction = RidgeCorrection(
        parts[-1].directions,
        parts[-1].offsets,
        log.tables,
        trial.tables,
        windows=np.array([log.windows, trial.windows]),
    )
    dtype = np.asarray(models.mu).dtype
    held_out = trial_atoms(log.held_out, trial.held_out, dtype)
    return RidgeFit(correction, held_out, (log.gain, trial.gain))


class _Corrected(NamedTuple):
    """Corrections of one source."""

    tables: Float[np.ndarray, "indices bins trials outcomes"]
    windows: list[float]
    held_out: Trials
    gain: float


def _correct_source(
    parts: list[_Part],
    fold: Int[np.ndarray, " n"],
    counts: Trials,
    laws: list[Trials],
) -> _Corrected:
    """Chooses and adds the corrections of a source, one index after the other."""
    tables, windows, gain = [], [], 0.0
    for i in range(_NUM_INDICES):
        sums = [
            _sum_bins(part, i, counts, law)
            for part, law in zip(parts, laws, strict=True)
        ]
        without = _log_likelihood(counts, _held_out(fold, laws))
        best, chosen = without + _LEAST_GAIN, None
        for window in _WINDOWS:
            smooth = [[_smooth(part, window) for part in pair] for pair in sums]
            for strength in _STRENGTHS:
                ratios = [_ratio(*pair, strength) for pair in smooth]
                trial = [
                    _multiply(law, ratio[part.place[:, i]])
                    for part, law, ratio in zip(parts, laws, ratios, strict=True)
                ]
                likelihood = _log_likelihood(counts, _held_out(fold, trial))
                if likelihood > best:
                    best, chosen = likelihood, (window, ratios, trial)
        if chosen is None:
            windows.append(0.0)
            tables.append(np.zeros((_NUM_BINS, *counts.shape[1:])))
            continue
        window, ratios, laws = chosen
        windows.append(window)
        tables.append(np.log(ratios[-1]))
        gain += best - without
    return _Corrected(np.stack(tables), windows, _held_out(fold, laws), gain)


def _held_out(fold: Int[np.ndarray, " n"], laws: list[Trials]) -> Trials:
    """Picks for each row the law of the model that did not see it."""
    result = np.empty_like(laws[0])
    for j, law in enumerate(laws[:-1]):
        result[fold == j] = law[fold == j]
    return result


def _sum_bins(part: _Part, i: int, counts: Trials, law: Trials) -> tuple[Bins, Bins]:
    """Sums the observed and the expected units of each bin of an index."""
    place, counts, law = part.place[part.seen, i], counts[part.seen], law[part.seen]
    expected = counts.sum(axis=2, keepdims=True) * law
    return sum_by(place, counts, _NUM_BINS), sum_by(place, expected, _NUM_BINS)


def _smooth(sums: Bins, window: float) -> Bins:
    """Sums over a normal window whose weight in the middle is 1."""
    sigma = window * len(sums) / (2 * _REACH)
    smooth = ndimage.gaussian_filter1d(sums, sigma, axis=0, mode="constant")
    return smooth * (np.sqrt(2 * np.pi) * sigma)


def _ratio(
    observed: Float[np.ndarray, "... outcomes"],
    expected: Float[np.ndarray, "... outcomes"],
    strength: float,
) -> Float[np.ndarray, "... outcomes"]:
    units = expected.sum(axis=-1, keepdims=True)
    plain = np.divide(
        observed, expected, out=np.ones_like(observed), where=expected > 1e-9
    )
    ratio = (units * plain + strength) / (units + strength)
    return np.clip(ratio, 1 / _MAX_RATIO, _MAX_RATIO)


def _multiply(law: Trials, ratio: Trials) -> Trials:
    law = law * ratio
    return law / law.sum(axis=-1, keepdims=True)


def _bins(
    index: Float[np.ndarray, "..."], num_bins: int = _NUM_BINS
) -> Int[np.ndarray, "..."]:
    """Finds the bin of an index; those beyond the ends share the last."""
    place = np.floor((index + _REACH) * (num_bins / (2 * _REACH)))
    return np.clip(place, 0, num_bins - 1).astype(int)


def _find_indices(
    rng: np.random.Generator,
    z: Float[np.ndarray, "n d"],
    counts: list[Trials],
    seen: Bool[np.ndarray, " n"],
    subspace: Float[np.ndarray, "d b"],
) -> _Part:
    """Finds the indices of outcome and treatment by the units that were seen."""
    taken = counts[0].reshape(-1, 1, *pb.BINARY.joint_shape).sum(axis=3)
    combinations = z @ subspace
    rows = np.flatnonzero(seen)
    if len(rows) > _SEARCH_ROWS:
        rows = np.sort(rng.choice(rows, _SEARCH_ROWS, replace=False))
    units = sum(part[seen].sum(axis=(1, 2)) for part in counts)
    directions, offsets = [], []
    for target in (counts[1], taken):
        weights = find_index(combinations[rows], target[rows])
        index = combinations @ weights
        mean = np.average(index[seen], weights=units)
        variance = np.average((index[seen] - mean) ** 2, weights=units)
        scale = 1 / np.sqrt(max(variance, 1e-12))
        directions.append(scale * (subspace @ weights))
        offsets.append(-scale * mean)
    directions, offsets = np.stack(directions), np.array(offsets)
    return _Part(seen, _bins(z @ directions.T + offsets), directions, offsets)


def find_index(
    combinations: Float[Array, "n b"], counts: Num[Array, "n trials outcomes"]
) -> Float[np.ndarray, " b"]:
    """Finds the direction, of length 1, along which outcomes are predicted best.

    The likelihood is that of a single-index model: each row's outcomes by the
    frequencies of other rows with nearly the same index. Combinations of covariates
    must be uncorrelated and of variance 1; the sign of the direction means nothing.
    """
    combinations, counts = np.asarray(combinations, float), np.asarray(counts, float)
    combinations = combinations - combinations.mean(axis=0)
    size = combinations.shape[1]
    if size == 1:
        return np.ones(1)

    def loss(weights: Float[np.ndarray, " b"]) -> float:
        index = combinations @ (weights / np.linalg.norm(weights))
        return -_single_index_likelihood(index, counts)

    best = min(_starts(size), key=loss)
    simplex = best + np.concatenate([np.zeros((1, size)), 0.03 * np.eye(size)])
    found = optimize.minimize(
        loss,
        best,
        method="Nelder-Mead",
        options={"initial_simplex": simplex, "maxfev": _NUM_STEPS * (size - 1)},
    )
    return found.x / np.linalg.norm(found.x)


def _starts(size: int) -> Float[np.ndarray, "starts b"]:
    """Lists directions that are everywhere near any other."""
    if size == 2:
        angle = np.arange(_NUM_ANGLES) * np.pi / _NUM_ANGLES
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    starts = np.random.default_rng(0).normal(size=(_NUM_STARTS, size))
    return starts / np.linalg.norm(starts, axis=1, keepdims=True)


def _single_index_likelihood(index: Float[np.ndarray, " n"], counts: Trials) -> float:
    """Sums the log-probabilities of outcomes by those of other rows nearby."""
    place = _bins(index, _SEARCH_BINS)
    sums = sum_by(place, counts, _SEARCH_BINS)
    nearby = _smooth(sums, _SEARCH_WINDOW)[place] - counts
    overall = counts.sum(axis=0)
    overall = overall / np.maximum(overall.sum(axis=-1, keepdims=True), 1e-12)
    law = np.maximum(nearby, 0) + _SEARCH_PRIOR * overall
    law = law / np.maximum(law.sum(axis=-1, keepdims=True), 1e-12)
    return _log_likelihood(counts, law)


def _log_likelihood(counts: Trials, law: Trials) -> float:
    return float(np.sum(counts * np.log(np.maximum(law, 1e-12))))
