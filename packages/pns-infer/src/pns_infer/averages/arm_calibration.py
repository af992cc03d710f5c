"""An intercept for each arm, so that held-out mu agrees with the trial on average."""

from typing import NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int
from scipy import special, stats

from pns_infer.averages.held_out import HeldOutUnits
from pns_infer.averages.linear_means import linear_means


class ArmCalibration(NamedTuple):
    """How far the model's mean of each arm was off, and what was done about it.

    Attributes:
      shift: added to the logit of mu, by fold and arm.
      gap: mean outcome minus mean mu over experimental rows, by arm, before.
      standard_error: of the gaps.
      p_value: of both gaps together; small if the model disagrees with the trial beyond
        noise.
    """

    shift: Float[np.ndarray, "num_folds 2"]
    gap: Float[np.ndarray, "2"]
    standard_error: Float[np.ndarray, "2"]
    p_value: float


def calibrate_arms(
    units: HeldOutUnits, fold: Int[np.ndarray, " n"]
) -> tuple[HeldOutUnits, ArmCalibration]:
    """Shifts the logit of mu in each arm, by an intercept fitted on the other folds.

    Args:
      units: rows of both sources.
      fold: of each row.

    Returns:
      Units with shifted mu (not necessarily compatible with their joint law, which no
      average needs), and a report.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> from pns_infer import make_held_out_units
      >>> x, y = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], [650, 350, 200, 800], axis=1)
      >>> atoms = pb.Atoms(np.full((2000, 2, 2), 0.25), np.full((2000, 2), 0.5))
      >>> units = make_held_out_units(atoms, x >= 0, x, y, assignment=0.5)
      >>> calibrated, report = calibrate_arms(units, fold=np.arange(2000) % 2)
      >>> report.gap.round(3).tolist()  # the trial's means are 0.35 and 0.8
      [-0.15, 0.3]
      >>> calibrated.atoms.mu.mean(axis=0).round(2).tolist()
      [0.35, 0.8]
    """
    fold = np.asarray(fold)
    names = np.unique(fold)
    mu = units.atoms.mu.copy()
    shift = np.zeros((len(names), 2))
    for place, name in enumerate(names):
        out = fold == name
        for arm in (0, 1):
            chance = units.assignment if arm else 1 - units.assignment
            inside = ~out & units.is_experimental & (units.x == arm)
            if not inside.any():
                raise ValueError(
                    f"no unit of arm {arm} is outside fold {name}; use fewer folds."
                )
            weights = (units.weights / chance)[inside]
            logit = _logit(units.atoms.mu[inside, arm])
            unit = weights.sum() / units.copies[inside].sum()
            shift[place, arm] = _intercept(logit, units.y[inside], weights, unit)
            logit = _logit(units.atoms.mu[out, arm])
            mu[out, arm] = special.expit(logit + shift[place, arm])
    calibrated = units._replace(atoms=pb.Atoms(units.atoms.joint, mu))
    return calibrated, ArmCalibration(shift, *_gaps(units))


def _logit(mu: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return special.logit(np.clip(mu, 1e-9, 1 - 1e-9))  # finite at 0 and 1


def _intercept(
    logit: Float[np.ndarray, " n"],
    y: Int[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    unit: float,
) -> float:
    """Finds the shift at which predictions and outcomes have the same sum.

    A further unit, of the mean weight `unit`, whose outcome is the model's own mean keeps
    the shift finite.
    """
    low, high = -12.0, 12.0
    extra = np.clip(np.average(special.expit(logit), weights=weights), 1e-9, 1 - 1e-9)
    for _ in range(60):
        middle = (low + high) / 2
        gap = weights @ (y - special.expit(logit + middle))
        gap += unit * (extra - special.expit(special.logit(extra) + middle))
        low, high = (middle, high) if gap > 0 else (low, middle)
    return (low + high) / 2


def _gaps(
    units: HeldOutUnits,
) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"], float]:
    """Measures outcome minus mu over experimental rows, and tests both at once."""
    matrix = np.zeros((units.sample_size, 2, 6))
    matrix[:, 0, 1] = matrix[:, 1, 0] = 1.0
    offset = -units.atoms.mu
    means = linear_means(
        units._replace(ratio=None), matrix, offset, None, "experimental"
    )
    inverse = np.linalg.pinv(means.covariance, hermitian=True)
    statistic = means.estimate @ inverse @ means.estimate
    return means.estimate, means.standard_error, float(stats.chi2.sf(statistic, 2))
