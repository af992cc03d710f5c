"""A local residual: the counts of a cell, shrunk to what a model says of it.

A model of atoms is smooth, and wrong where the truth is not. The frequencies of units that
share all their covariates, a *cell*, show it. Both are combined by

    p | data ~ Dirichlet(strength p_model + share counts),

for the cells (x, y) of the log, and likewise for the outcomes of each arm. The strength is
the prior sample size: how many units the model's prediction counts for. The share is the
part of the counts treated as new information: the model was trained on them as well, and
what it already follows must not be used again.

Both are judged by cross-fitting. For the units of a fold, the model is one that did not see
them, the counts are those of the other folds, and the Dirichlet-multinomial probability of
what happened is the likelihood. `draw_scale` scales the deviations of the model's draws
about their mean, which are part of its uncertainty: where they differ, the prediction
counts for less. A single model, and a part of the rows that it did not see, is judged the
same way: the rows that it saw lend their counts without being judged. Where units are rare
a model has learned less: in the cells of the rarest fifth of units the strength is
multiplied by `rare_factor`, a factor of at most 1 that is judged with the others.

Nothing here is approximated for large counts; of the draws' deviations the likelihood
uses the variance alone. `residual_draws` draws from the result.
"""

from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int, Num
from scipy import special

from pns_infer.calibration.draw_scale import from_raw, to_raw
from pns_infer.core import inputs

Array = Any  # NumPy or JAX

_STRENGTHS = 32 * 2.0 ** np.arange(12)
_RARE_FACTORS = 0.5 ** np.arange(4)
_RARE_STRENGTHS = np.union1d(_STRENGTHS, _STRENGTHS[0] * _RARE_FACTORS)
_RARE_SHARE = 0.2  # of all units
_SHARES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
_DRAW_SCALES = np.array([0.0, 0.5, 1.0, 1.5])
_MAX_ROWS = 16_000
_POOLING = 0.5  # standard deviation of log strength between the sources
_NEGLIGIBLE = 1e-3  # relative likelihood


class ResidualSettings(NamedTuple):
    """Settings of a local residual, one for each draw or for each point of a profile.

    A strength is the prior sample size of the model beside a source, a share the part of
    the source's counts treated as new information.
    """

    draw_scale: Float[np.ndarray, " n"]  # of the draws' deviations about their mean
    observational_strength: Float[np.ndarray, " n"]
    experimental_strength: Float[np.ndarray, " n"]
    observational_share: Float[np.ndarray, " n"]
    experimental_share: Float[np.ndarray, " n"]
    rare_factor: Float[np.ndarray, " n"]  # of both strengths, in rare cells

    def of_source(
        self, source: str
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Returns the strengths and the shares of a source, a member of SOURCES."""
        return getattr(self, f"{source}_strength"), getattr(self, f"{source}_share")


class ResidualProfile(NamedTuple):
    """Cross-fitted likelihood over settings, those that matter.

    The pull of the sources to each other is part of the likelihood. Cells with at most
    `rare_size` units, of both sources together, are rare.
    """

    settings: ResidualSettings  # the points of the grid
    weight: Float[np.ndarray, " n"]  # likelihood times prior, normalized to sum to 1
    log_likelihood: Float[np.ndarray, " n"]
    rare_size: float

    def sample(self, rng: np.random.Generator, num_draws: int) -> ResidualSettings:
        """Draws settings in proportion to their weight."""
        chosen = rng.choice(len(self.weight), num_draws, p=self.weight)
        return ResidualSettings(*(field[chosen] for field in self.settings))

    def mean(self) -> ResidualSettings:
        """Averages the settings over the profile: one of each, within their range."""
        # Weights sum to 1 up to rounding; a share of 1 must not exceed 1.
        means = [
            np.clip([self.weight @ field], field.min(), field.max())
            for field in self.settings
        ]
        return ResidualSettings(*means)

    def marginal(
        self, name: str
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Returns the values of one setting, ascending, and their weights."""
        values, place = np.unique(getattr(self.settings, name), return_inverse=True)
        return values, np.bincount(place, self.weight)

    def model_weight(
        self,
        source: str,
        size: Num[Array, "*shape"],
        is_rare: Bool[np.ndarray, "*#shape"] | bool = False,
    ) -> Float[np.ndarray, "*shape"]:
        """Averages the weight of the model beside the counts of a cell over the profile.

        The weight strength / (strength + share size) is not linear in the settings, so
        it is far from the weight at their averages where the profile is wide. The size
        is that of cells, or of one of their arms; the cell's frequencies have the rest
        of the weight.
        """
        strength, share = self.settings.of_source(source)
        sizes, place = np.unique(np.asarray(size, float), return_inverse=True)
        averages = []
        for factor in (1.0, self.settings.rare_factor):
            pairs = np.stack([strength * factor, share], axis=1)
            pairs, pair = np.unique(pairs, axis=0, return_inverse=True)
            total = np.zeros(len(sizes))
            for (k, s), part in zip(pairs, np.bincount(pair, self.weight), strict=True):
                total += part * k / (k + s * sizes)
            # Weights sum to 1 up to rounding.
            averages.append(np.minimum(total, 1.0)[place])
        return np.where(is_rare, averages[1], averages[0])


def profile_residual(
    rng: np.random.Generator,
    draws: pb.Atoms,
    observational: Num[Array, "n treatments levels"],
    experimental: Num[Array, "n treatments levels"],
    cell: Int[Array, " n"],
    judged: Bool[Array, " n"] | None = None,
) -> ResidualProfile:
    """Computes the cross-fitted likelihood over all settings.

    A row holds the counts `[x, y]` and `[arm, y]` of the units of one cell and one fold.
    Of these rows m are judged, all if `judged` is None; the others lend their counts to
    the judged rows of their cell. Draws are [num_draws, m] atoms by a model that did not
    see the row, and predicts by its mean over all draws. The generator decides which
    rows are judged if there are many.

    Example:
      >>> draws = pb.Atoms(np.full((2, 80, 2, 2), 0.25), np.full((2, 80, 2), 0.5))
      >>> cell, even = np.arange(80) // 2, np.full((80, 2, 2), 25)  # cells in two folds
      >>> gap = np.where(cell % 2, 6, -6)[:, None, None] * np.array([[0, 0], [-1, 1]])
      >>> rng = np.random.default_rng(0)  # mu1 is 0.38 or 0.62, where the model says 0.5
      >>> profile = profile_residual(rng, draws, even, even + gap, cell)
      >>> values, weight = profile.marginal("experimental_strength")
      >>> round(float(weight[values <= 128].sum()), 3)
      1.0
    """
    draws = inputs.checked_atoms("draws", draws, ("num_draws", "m"))
    draws = pb.Atoms(*(np.asarray(part) for part in draws))
    num_draws, num_judged = draws.mu.shape[:2]
    if num_draws < 2:
        raise pb.InputError("draws", f"must be 2 or more, got {num_draws}.")
    judged = np.ones(num_judged, bool) if judged is None else np.asarray(judged)
    if judged.ndim != 1 or judged.dtype != bool or judged.sum() != num_judged:
        raise pb.InputError(
            "judged",
            f"must be a list of booleans, true for the {num_judged} rows that draws "
            f"are of, got {judged.dtype} of shape {list(judged.shape)}, true for "
            f"{np.count_nonzero(judged)}.",
        )
    own = inputs.trial_counts(observational, experimental, len(judged))
    if not sum(part[judged].sum() for part in own) > 0:
        raise pb.InputError("counts", "hold no units to judge the residual by.")
    inputs.check_shape("cell", cell, judged.shape)
    _, cell = np.unique(cell, return_inverse=True)
    totals = [inputs.sum_by(cell, part)[cell] for part in own]
    others = [total - part for total, part in zip(totals, own, strict=True)]
    units, cell_size = (
        np.add(*(part.sum(axis=(1, 2)) for part in parts)) for parts in (own, totals)
    )
    rare_size = _find_rare_size(cell_size, units)
    some = np.arange(num_judged)
    if num_judged > _MAX_ROWS:
        some = np.sort(rng.choice(some, _MAX_ROWS, replace=False))
    draws = pb.Atoms(*(part[:, some] for part in draws))
    rows = np.flatnonzero(judged)[some]
    is_rare = cell_size[rows] <= rare_size
    log, trial = (
        np.stack(
            [_grids(law, seen[rows], rest[rows], is_rare, s) for s in _DRAW_SCALES]
        )
        for law, seen, rest in zip(_laws(draws), own, others, strict=True)
    )
    # The mean of these draws varies about the mean of all by 1 / num_draws of a draw's
    # variance.
    scales = np.sqrt(np.maximum(_DRAW_SCALES**2 - 1 / num_draws, 0))
    return _join_sources(log, trial, scales, rare_size)


def _find_rare_size(
    cell_size: Float[np.ndarray, " n"], units: Float[np.ndarray, " n"]
) -> float:
    """Finds the greatest cell of the rarest units; 0 if all cells are of one size."""
    order = np.argsort(cell_size)
    below = np.cumsum(units[order])
    size = cell_size[order][np.searchsorted(below, _RARE_SHARE * below[-1])]
    return float(size) if size < cell_size.max() else 0.0


class _Law(NamedTuple):
    """Mean of the draws for one source, and their variance in that of an outcome."""

    mean: Float[np.ndarray, "n trials outcomes"]
    variance: Float[np.ndarray, "n trials"]


def _laws(draws: pb.Atoms) -> list[_Law]:
    """Computes mean and variance of the draws, the mean on the scale of raw numbers."""
    mean = from_raw(to_raw(draws).mean(axis=0))
    laws = []
    for drawn, law in zip(
        inputs.trial_laws(draws), inputs.trial_laws(mean), strict=True
    ):
        of_draws = np.var(drawn, axis=0, ddof=1).sum(axis=-1)
        of_outcome = (law * (1 - law)).sum(axis=-1)
        laws.append(_Law(law, of_draws / np.maximum(of_outcome, 1e-12)))
    return laws


def _grids(
    law: _Law,
    own: inputs.Trials,
    rest: inputs.Trials,
    is_rare: Bool[np.ndarray, " n"],
    scale: float,
) -> Float[np.ndarray, "factors strengths shares"]:
    """Computes the log-likelihood of one source for every factor of rare cells."""
    law = _Law(law.mean, scale**2 * law.variance)
    common, rare = (
        _likelihoods(_Law(*(a[part] for a in law)), own[part], rest[part], strengths)
        for part, strengths in ((~is_rare, _STRENGTHS), (is_rare, _RARE_STRENGTHS))
    )
    # Factor number j is a shift by j places, for factors and strengths step by two.
    first, size = len(_RARE_FACTORS) - 1, len(_STRENGTHS)
    shifts = [rare[first - j : first - j + size] for j in range(len(_RARE_FACTORS))]
    return common + np.stack(shifts)


def _likelihoods(
    law: _Law,
    own: inputs.Trials,
    rest: inputs.Trials,
    strengths: Float[np.ndarray, " strengths"],
) -> Float[np.ndarray, "strengths shares"]:
    """Sums over rows the logs of Dirichlet-multinomials.

    A Dirichlet about a law that itself varies is taken as the Dirichlet about its mean
    with the same variance in all.
    """
    result = np.zeros((len(strengths), len(_SHARES)))
    for i, strength in enumerate(strengths):
        variance = np.minimum(1 / (1 + strength) + law.variance, 1 - 1e-6)
        prior = (1 / variance - 1)[..., None] * law.mean
        for j, share in enumerate(_SHARES):
            result[i, j] = _dirichlet_multinomial(prior + share * rest, own).sum()
    return result


def _dirichlet_multinomial(
    shape: Float[np.ndarray, "... outcomes"], counts: Float[np.ndarray, "... outcomes"]
) -> Float[np.ndarray, "..."]:
    """Computes the log-probability of one sequence of outcomes with these counts."""
    shape = np.maximum(shape, 1e-9)
    total, size = shape.sum(axis=-1), counts.sum(axis=-1)
    rising = special.gammaln(shape + counts) - special.gammaln(shape)
    return rising.sum(axis=-1) + special.gammaln(total) - special.gammaln(total + size)


def _join_sources(
    observational: Float[np.ndarray, "scales factors strengths shares"],
    experimental: Float[np.ndarray, "scales factors strengths shares"],
    scales: Float[np.ndarray, " scales"],
    rare_size: float,
) -> ResidualProfile:
    """Adds both sources; their strengths are pooled in part, on the log scale.

    The variance of the residual, 1 / strength, has a uniform prior: a uniform one of its
    logarithm would have nearly all its mass at no residual wherever the likelihood is
    flat.
    """
    prior = -np.log(_STRENGTHS[:, None] * _STRENGTHS[None, :]) / 2
    gap = np.log(_STRENGTHS[:, None] / _STRENGTHS[None, :])
    pooling = -((gap / _POOLING) ** 2) / 2
    joint = (
        observational[:, :, :, None, :, None]
        + experimental[:, :, None, :, None, :]
        + pooling[:, :, None, None]
    )
    posterior = joint + prior[:, :, None, None]
    weight = np.exp(posterior - posterior.max())
    a, j, i, e, s, t = np.nonzero(weight > _NEGLIGIBLE)
    chosen = weight[a, j, i, e, s, t]
    return ResidualProfile(
        settings=ResidualSettings(
            draw_scale=scales[a],
            observational_strength=_STRENGTHS[i],
            experimental_strength=_STRENGTHS[e],
            observational_share=_SHARES[s],
            experimental_share=_SHARES[t],
            rare_factor=_RARE_FACTORS[j],
        ),
        weight=chosen / chosen.sum(),
        log_likelihood=joint[a, j, i, e, s, t],
        rare_size=rare_size,
    )
