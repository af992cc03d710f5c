"""Held-out units made ready for averages: shifted arms, and one target population."""

from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float
from scipy import optimize, special, stats

from pns_infer.averages.covariate_tests import SourceComparison, target_ratio
from pns_infer.averages.held_out import (
    HeldOutUnits,
    IntPerRow,
    PerRow,
    Source,
    linear_means,
)

_MOST = 12.0  # of a shift, on the logit scale


class ArmShift(NamedTuple):
    """How far the model's mean of each arm was off, and how it was shifted."""

    shift: Float[np.ndarray, "num_folds treatments"]  # added to the logit of mu
    gap: Float[np.ndarray, " treatments"]  # mean outcome minus mean mu before the shift
    standard_error: Float[np.ndarray, " treatments"]  # of the gaps
    p_value: float  # of both gaps; small if model and trial disagree beyond noise


def shift_arms(units: HeldOutUnits, fold: IntPerRow) -> tuple[HeldOutUnits, ArmShift]:
    """Shifts the logit of mu in each arm, by an intercept fitted on the other folds.

    The shifted mu need not be compatible with the joint law, which no average needs.
    """
    names = np.unique(fold)
    mu = units.atoms.mu.copy()
    shift = np.zeros((len(names), mu.shape[1]))
    for place, name in enumerate(names):
        out = fold == name
        for arm in range(mu.shape[1]):
            inside, chance = units.in_arm(arm)
            inside = inside & ~out
            if not inside.any():
                raise pb.InputError(
                    "fold", f"{name} holds all units of arm {arm}; use fewer folds."
                )
            weights = (units.weights / chance)[inside]
            # Finite at 0 and 1.
            logit = special.logit(np.clip(units.atoms.mu[:, arm], 1e-9, 1 - 1e-9))
            unit = weights.sum() / units.copies[inside].sum()
            found = _intercept(logit[inside], units.y[inside], weights, unit)
            mu[out, arm] = special.expit(logit[out] + found)
            shift[place, arm] = found
    shifted = units._replace(atoms=pb.Atoms(units.atoms.joint, mu))
    return shifted, ArmShift(shift, *_gaps(units))


def _intercept(logit: PerRow, y: IntPerRow, weights: PerRow, unit: float) -> float:
    """Finds the shift at which predictions and outcomes have the same sum.

    A further unit, of the mean weight `unit`, whose outcome is the model's own mean keeps
    the shift finite.
    """
    extra = np.clip(np.average(special.expit(logit), weights=weights), 1e-9, 1 - 1e-9)

    def gap(shift: float) -> float:
        own = extra - special.expit(special.logit(extra) + shift)
        return float(weights @ (y - special.expit(logit + shift)) + unit * own)

    for end, sign in ((-_MOST, -1), (_MOST, 1)):  # the gap falls with the shift
        if sign * gap(end) >= 0:
            return end
    return optimize.brentq(gap, -_MOST, _MOST, xtol=1e-14)


def _gaps(
    units: HeldOutUnits,
) -> tuple[Float[np.ndarray, " treatments"], Float[np.ndarray, " treatments"], float]:
    """Measures outcome minus mu over experimental rows, and tests both at once."""
    num_arms = units.atoms.mu.shape[1]
    arms = np.eye(num_arms, pb.BINARY.num_raw)[::-1]  # the last comes first in eta
    matrix = np.broadcast_to(arms, (units.num_rows, *arms.shape))
    alone = units._replace(ratio=None)
    means = linear_means(alone, matrix, -units.atoms.mu, source="experimental")
    inverse = np.linalg.pinv(means.covariance, hermitian=True)
    statistic = means.estimate @ inverse @ means.estimate
    p_value = float(stats.chi2.sf(statistic, num_arms))
    return means.estimate, means.standard_error, p_value


class PreparedUnits(NamedTuple):
    """Findings about the two sources, and the units that averages are computed from.

    Units have shifted mu (`arms` says how far), and a ratio where the laws of the
    sources' covariates differ.
    """

    units: HeldOutUnits
    arms: ArmShift
    comparison: SourceComparison

    def toward(self, source: Source) -> "PreparedUnits":
        """Weights the units toward the covariates of a source; fits nothing again."""
        if self.comparison.chance is None:
            return self
        ratio = target_ratio(self.comparison.chance, self.units.is_experimental, source)
        return self._replace(units=self.units._replace(ratio=ratio))

    @property
    def effective_sizes(self) -> tuple[float, float] | None:
        """Effective sample sizes of log and trial; None where nothing is reweighted."""
        ratio, copies = self.units.ratio, self.units.copies
        if ratio is None:
            return None
        sizes = []
        for part in (~self.units.is_experimental, self.units.is_experimental):
            total, square = copies[part] @ ratio[part], copies[part] @ ratio[part] ** 2
            sizes.append(float(total) ** 2 / float(square))
        return sizes[0], sizes[1]


def prepare_units(
    units: HeldOutUnits, fold: IntPerRow, comparison: SourceComparison
) -> PreparedUnits:
    """Shifts the arms, and reweights the sources if their laws differ.

    Everything is fitted on other folds than it is used for. The comparison is from
    `compare_sources`. The target population has the covariates of both sources together;
    `PreparedUnits.toward` changes it.

    Example:
      >>> from pns_infer import compare_sources
      >>> from pns_infer.averages.held_out import example_units
      >>> units, fold = example_units(), np.arange(16) % 2
      >>> z = np.repeat([[0.0], [1.0]], 8, axis=0)
      >>> comparison = compare_sources(z, units.is_experimental, fold)
      >>> found = prepare_units(units, fold, comparison)
      >>> comparison.laws.p_value, found.units.ratio  # strata are as large in both
      (1.0, None)
    """
    shifted, arms = shift_arms(units, fold)
    prepared = PreparedUnits(shifted._replace(ratio=None), arms, comparison)
    return prepared.toward("both")
