"""A local residual: the counts of a cell, shrunk to what a model says of it.

A model of atoms is smooth, and wrong where the truth is not. Units that share all their
covariates, a *cell*, show it: their frequencies. Both are combined by

    p | data ~ Dirichlet(strength p_model + share counts),

for the four observational outcomes, and likewise for the two outcomes of each arm. The
strength says how many units the model's word is worth. The share says how much of the
counts the model does not know yet: it was trained on them as well, and what it already
follows must not be used again.

Both are judged by cross-fitting. For the units of a fold, the model is that of members who
did not see them, the counts are those of the other folds, and the Dirichlet-multinomial
probability of what happened is the likelihood. `draw_scale` scales the members' own
deviations about their mean, which are part of the model's uncertainty: where they differ
their word is worth less. One network with an index, and a part of the rows that it did not
see, is judged the same way: its draws stand for the members, and the rows that it saw lend
their counts without being judged. Where people are rare a model has learned less: in the
cells of the rarest fifth of units its word is worth `rare_factor` times the strength, a
factor of at most 1 that is judged with the others.

Nothing here is approximated for large counts; of the members' deviations the likelihood
knows the variance alone. `residual_draws` draws from the result.
"""

from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int, Num
from scipy import special

from pns_infer.calibration.draw_scale import combine_members
from pns_infer.core.inputs import checked_counts

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
_ALLOWED = 1.92  # log-likelihood ratio of a 95% interval


class ResidualSettings(NamedTuple):
    """Settings of a local residual, one for each draw or for each point of a profile.

    Attributes:
      draw_scale: factor of the members' deviations about their mean.
      observational_strength: units that the model's word is worth beside the log.
      experimental_strength: the same beside the trial.
      observational_share: how much of the log's counts the model does not know yet.
      experimental_share: the same of the trial's.
      rare_factor: of both strengths, in rare cells.
    """

    draw_scale: Float[np.ndarray, " n"]
    observational_strength: Float[np.ndarray, " n"]
    experimental_strength: Float[np.ndarray, " n"]
    observational_share: Float[np.ndarray, " n"]
    experimental_share: Float[np.ndarray, " n"]
    rare_factor: Float[np.ndarray, " n"]


class ResidualProfile(NamedTuple):
    """Cross-fitted likelihood over settings, those that matter.

    Attributes:
      settings: the points of the grid.
      weight: of each point, likelihood times prior normalized to sum to 1.
      log_likelihood: of each point, the pull of the sources to each other included.
      rare_size: cells with at most so many units, of both sources together, are rare.
    """

    settings: ResidualSettings
    weight: Float[np.ndarray, " n"]
    log_likelihood: Float[np.ndarray, " n"]
    rare_size: float

    def sample(self, rng: np.random.Generator, num_draws: int) -> ResidualSettings:
        """Draws settings in proportion to their weight."""
        chosen = rng.choice(len(self.weight), num_draws, p=self.weight)
        return ResidualSettings(*(field[chosen] for field in self.settings))

    def mean(self) -> ResidualSettings:
        """Averages the settings over the profile: one of each, within their range."""
        return ResidualSettings(
            *(
                # Weights sum to 1 up to rounding; a share of 1 must not exceed 1.
                np.clip([self.weight @ field], field.min(), field.max())
                for field in self.settings
            )
        )

    def marginal(
        self, name: str
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Sums weights over all settings but one.

        Args:
          name: of a field of `ResidualSettings`.

        Returns:
          Its values, ascending, and their weights, which sum to 1.
        """
        values, place = np.unique(getattr(self.settings, name), return_inverse=True)
        return values, np.bincount(place, self.weight)

    def model_weight(
        self,
        source: str,
        size: Num[Array, "*shape"],
        is_rare: Bool[np.ndarray, "*shape"] | bool = False,
    ) -> Float[np.ndarray, "*shape"]:
        """Averages over the profile what the model counts for beside a cell's counts.

        The weight strength / (strength + share size) is not linear in the settings, so
        it is far from the weight at their averages where the profile is wide.

        Args:
          source: "observational" or "experimental".
          size: units of the cells, or of one of their arms.
          is_rare: which cells are rare.

        Returns:
          The weight of the model; what is left to 1 is that of the cell's frequencies.
        """
        strength, share = (
            getattr(self.settings, f"{source}_{name}") for name in ("strength", "share")
        )
        sizes, place = np.unique(np.asarray(size, float), return_inverse=True)
        common, rare = (
            _average_weight(strength * factor, share, self.weight, sizes)[place]
            for factor in (1.0, self.settings.rare_factor)
        )
        return np.where(is_rare, rare, common)

    def cautious(self) -> "ResidualProfile":
        """Keeps the points with the least strength that the likelihood allows.

        The strength is the geometric mean of both sources'; a value is allowed if the
        best of its points lies within 1.92 of the top, a 95% interval if rows are
        independent. Where few rows were judged the likelihood does not tell great
        strengths apart, and an average over them depends on where the grid ends.
        """
        _, log, trial, *_ = self.settings
        strength = np.sqrt(log * trial)
        best = self.log_likelihood.max()
        least = strength[self.log_likelihood >= best - _ALLOWED].min()
        kept = np.isclose(strength, least)
        return self._replace(
            settings=ResidualSettings(*(field[kept] for field in self.settings)),
            weight=self.weight[kept] / self.weight[kept].sum(),
            log_likelihood=self.log_likelihood[kept],
        )


def _average_weight(
    strength: Float[np.ndarray, " n"],
    share: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, " n"],
    size: Float[np.ndarray, " sizes"],
) -> Float[np.ndarray, " sizes"]:
    """Averages strength / (strength + share size) over the points of a profile."""
    pairs, place = np.unique(
        np.stack([strength, share], axis=1), axis=0, return_inverse=True
    )
    total = np.zeros(size.shape)
    for (k, s), part in zip(pairs, np.bincount(place, weight), strict=True):
        total += part * k / (k + s * size)
    return np.minimum(total, 1.0)  # weights sum to 1 up to rounding


def profile_residual(
    rng: np.random.Generator,
    members: pb.Atoms,
    observational: Num[Array, "n 2 2"],
    experimental: Num[Array, "n 2 2"],
    cell: Int[Array, " n"],
    num_members: float,
    judged: Bool[Array, " n"] | None = None,
    draw_scale: float | None = None,
) -> ResidualProfile:
    """Computes the cross-fitted likelihood over all settings.

    Args:
      rng: decides which rows are judged if there are many.
      members: [members_per_fold, m] atoms of each judged row by members that did not
        see it.
      observational: counts `[..., x, y]` of each row: the units of one cell and one fold.
      experimental: counts `[..., arm, y]`.
      cell: of each row.
      num_members: of the ensemble whose mean predicts; its mean has less noise than that
        of the members of one fold, which `draw_scale` accounts for. If members are
        draws of one model that predicts by its mean over all draws, `np.inf`: that mean
        has none of the noise that the mean of a few draws has.
      judged: which m rows are judged; all if None. The others lend their counts to the
        judged rows of their cell.
      draw_scale: of the members' deviations about the mean of all, from sampling theory;
        None judges it with the rest.

    Returns:
      The points of the grid that matter, and their weights.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> members = pb.Atoms(np.full((2, 80, 2, 2), 0.25), np.full((2, 80, 2), 0.5))
      >>> cell = np.arange(80) // 2  # each in two folds
      >>> observational = smooth = np.full((80, 2, 2), 25)
      >>> sign = np.where(cell % 2, 1, -1)[:, None, None]
      >>> rough = smooth + 6 * sign * np.array([[0, 0], [-1, 1]])  # mu1: 0.38 or 0.62
      >>> for experimental in (smooth, rough):
      ...     rng, tables = np.random.default_rng(0), (observational, experimental)
      ...     profile = profile_residual(rng, members, *tables, cell, num_members=4)
      ...     values, weight = profile.marginal("experimental_strength")
      ...     print(round(float(weight[values <= 128].sum()), 3))
      0.0
      1.0
    """
    members = pb.Atoms(*(np.asarray(part) for part in members))
    size, num_judged = _checked_members(members, num_members)
    judged = _checked_judged(judged, num_judged)
    shape = (len(judged), 2, 2)
    own = [
        checked_counts("observational", observational, shape).reshape(-1, 4),
        checked_counts("experimental", experimental, shape).reshape(-1, 4),
    ]
    if not sum(part[judged].sum() for part in own) > 0:
        raise ValueError("there are no units to judge the residual by.")
    cell = np.asarray(cell)
    if cell.shape != judged.shape:
        raise ValueError(
            f"cell must have shape [{len(judged)}], got {list(cell.shape)}."
        )
    totals = [_cell_sums(part, cell) for part in own]
    rest = [total - part for total, part in zip(totals, own, strict=True)]
    units, cell_size = (np.concatenate(p, axis=1).sum(axis=1) for p in (own, totals))
    rare_size = _find_rare_size(cell_size, units)
    some = _choose_rows(rng, num_judged)
    members = pb.Atoms(*(part[:, some] for part in members))
    rows = np.flatnonzero(judged)[some]
    own, rest = ([part[rows] for part in parts] for parts in (own, rest))
    is_rare = cell_size[rows] <= rare_size
    tried, scales = _scales(draw_scale, 1 / size - 1 / num_members)
    observational, experimental = (
        np.stack([_grids(*source, is_rare, scale) for scale in tried])
        for source in zip(_laws(members), own, rest, strict=True)
    )
    return _join_sources(observational, experimental, scales, rare_size)


def _scales(
    draw_scale: float | None, noise: float
) -> tuple[Float[np.ndarray, " scales"], Float[np.ndarray, " scales"]]:
    """Returns scales for the mean of a fold's members, and those for the mean of all.

    Args:
      draw_scale: for the mean of all; None for a grid.
      noise: the variance by which a fold's mean is the noisier one, in that of a member.
    """
    if draw_scale is None:
        return _DRAW_SCALES, np.sqrt(np.maximum(_DRAW_SCALES**2 - noise, 0))
    if not 0 <= draw_scale < np.inf:
        raise ValueError(f"draw_scale must be finite and not negative: {draw_scale}.")
    scales = np.array([float(draw_scale)])
    return np.sqrt(scales**2 + noise), scales


def _checked_members(members: pb.Atoms, num_members: float) -> tuple[int, int]:
    """Returns how many members and rows there are."""
    joint, mu = members
    if mu.ndim != 3 or mu.shape[2:] != (2,) or joint.shape != (*mu.shape, 2):
        raise ValueError(
            "members must be atoms of shape [members_per_fold, m], got joint "
            f"{list(joint.shape)} and mu {list(mu.shape)}."
        )
    size = len(mu)
    if not 2 <= size <= num_members:
        raise ValueError(
            "every fold needs 2 members or more, and no more than the ensemble has; "
            f"got {size} of num_members={num_members}."
        )
    return size, mu.shape[1]


def _checked_judged(
    judged: Bool[Array, " n"] | None, num_judged: int
) -> Bool[np.ndarray, " n"]:
    if judged is None:
        return np.ones(num_judged, bool)
    judged = np.asarray(judged)
    if judged.ndim != 1 or judged.dtype != bool or judged.sum() != num_judged:
        raise ValueError(
            f"judged must be a list of booleans, true for {num_judged} rows, those that "
            f"members have atoms of; got {judged.dtype} of shape {list(judged.shape)}, "
            f"true for {np.count_nonzero(judged)}."
        )
    return judged


def _cell_sums(
    counts: Float[np.ndarray, "n 4"], cell: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n 4"]:
    _, cell = np.unique(cell, return_inverse=True)
    return np.stack([np.bincount(cell, part)[cell] for part in counts.T], axis=1)


def _find_rare_size(
    cell_size: Float[np.ndarray, " n"], units: Float[np.ndarray, " n"]
) -> float:
    """Finds the greatest cell of the rarest units; 0 if all cells are of one size."""
    order = np.argsort(cell_size)
    below = np.cumsum(units[order])
    size = cell_size[order][np.searchsorted(below, _RARE_SHARE * below[-1])]
    return float(size) if size < cell_size.max() else 0.0


def _choose_rows(rng: np.random.Generator, num_rows: int) -> Int[np.ndarray, " m"]:
    rows = np.arange(num_rows)
    if len(rows) > _MAX_ROWS:
        rows = np.sort(rng.choice(rows, _MAX_ROWS, replace=False))
    return rows


class _Law(NamedTuple):
    """What members say of one source.

    Attributes:
      mean: of the members.
      variance: of the members, in that of one unit's outcome.
    """

    mean: Float[np.ndarray, "n trials outcomes"]
    variance: Float[np.ndarray, "n trials"]


def _laws(members: pb.Atoms) -> list[_Law]:
    """Computes mean and variance of the members for each source.

    The mean is that of their free numbers, as for predictions.
    """
    mean = combine_members(members, np.zeros((1, len(members.mu))))
    laws = []
    for drawn, (law,) in zip(_outcomes(members), _outcomes(mean), strict=True):
        of_members = np.var(drawn, axis=0, ddof=1).sum(axis=-1)
        of_outcome = (law * (1 - law)).sum(axis=-1)
        laws.append(_Law(law, of_members / np.maximum(of_outcome, 1e-12)))
    return laws


def _outcomes(atoms: pb.Atoms) -> list[Float[np.ndarray, "m n trials outcomes"]]:
    """Returns the outcomes' probabilities: one trial of the log, two arms."""
    joint, mu = (np.asarray(part, float) for part in atoms)
    return [joint.reshape(*mu.shape[:2], 1, 4), np.stack([1 - mu, mu], axis=-1)]


def _grids(
    law: _Law,
    own: Float[np.ndarray, "n 4"],
    rest: Float[np.ndarray, "n 4"],
    is_rare: Bool[np.ndarray, " n"],
    scale: float,
) -> Float[np.ndarray, "factors strengths shares"]:
    """Computes the log-likelihood of one source for every factor of rare cells."""
    common, rare = (
        _likelihoods(
            _Law(law.mean[part], scale**2 * law.variance[part]),
            own[part],
            rest[part],
            strengths,
        )
        for part, strengths in ((~is_rare, _STRENGTHS), (is_rare, _RARE_STRENGTHS))
    )
    # Factor number j is a shift by j places, for factors and strengths step by two.
    first, size = len(_RARE_FACTORS) - 1, len(_STRENGTHS)
    shifts = [rare[first - j : first - j + size] for j in range(len(_RARE_FACTORS))]
    return common + np.stack(shifts)


def _likelihoods(
    law: _Law,
    own: Float[np.ndarray, "n 4"],
    rest: Float[np.ndarray, "n 4"],
    strengths: Float[np.ndarray, " strengths"],
) -> Float[np.ndarray, "strengths shares"]:
    """Sums over rows the logs of Dirichlet-multinomials.

    A Dirichlet about a law that itself varies is taken as the Dirichlet about its mean
    with the same variance in all.
    """
    own, rest = (part.reshape(law.mean.shape) for part in (own, rest))
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
