"""Reliability: predicted probabilities against what happened to held-out units."""

from typing import NamedTuple, Protocol

import numpy as np
import pns_bounds as pb
from jaxtyping import Float
from numpy.typing import ArrayLike

from pns_models._data import Counts
from pns_models._errors import TooFewRowsError, require

_NUM_BINS = 15


class ReliabilityCurve(NamedTuple):
    """Predicted probability against frequency, in bins of equal width.

    Attributes:
      predicted: mean prediction; NaN in a bin without units.
      observed: frequency of the event.
      units: how many units.
    """

    predicted: Float[np.ndarray, " bins"]
    observed: Float[np.ndarray, " bins"]
    units: Float[np.ndarray, " bins"]

    @property
    def ece(self) -> float:
        """Expected calibration error: mean absolute gap, weighted by units."""
        gap = np.abs(np.nan_to_num(self.predicted - self.observed))
        return float(gap @ self.units / self.units.sum())


class Reliability(NamedTuple):
    """Curves of the four cells p_xy and of mu in both arms.

    Attributes:
      joint: one per cell, in the order 00, 01, 10, 11.
      mu: one per arm.
    """

    joint: tuple[ReliabilityCurve, ...]
    mu: tuple[ReliabilityCurve, ...]

    @property
    def ece_joint(self) -> float:
        """Mean expected calibration error of the cells."""
        return float(np.mean([curve.ece for curve in self.joint]))

    @property
    def ece_mu(self) -> float:
        """Mean expected calibration error of the arms."""
        return float(np.mean([curve.ece for curve in self.mu]))


class HasAtoms(Protocol):
    """A model: it estimates the atoms of rows."""

    def atoms(self, z: ArrayLike) -> pb.Atoms:
        """Estimates the atoms of rows z [n, d]."""
        ...


def measure_reliability(model: HasAtoms | pb.Atoms, counts: Counts) -> Reliability:
    """Compares probabilities with what happened.

    Args:
      model: a fitted model, or the atoms that one gave the rows of `counts`.
      counts: units that it was not trained on, such as `fit(...).held_out`.

    Raises:
      TooFewRowsError: without observational units, or without units of an arm.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> joint = np.array([[[0.2, 0.3], [0.1, 0.4]]])  # of one row
      >>> atoms = pb.Atoms(joint, mu=np.array([[0.5, 0.7]]))
      >>> happened = np.array([[[30.0, 70.0], [30.0, 70.0]]])  # by arm and y
      >>> counts = Counts(np.zeros((1, 1)), 100 * joint, happened)
      >>> reliability = measure_reliability(atoms, counts)
      >>> [round(curve.ece, 3) for curve in reliability.mu]
      [0.2, 0.0]
      >>> round(reliability.ece_joint, 3), round(reliability.ece_mu, 3)
      (0.0, 0.1)
    """
    observational = np.asarray(counts.observational, np.float64)
    experimental = np.asarray(counts.experimental, np.float64)
    arms = experimental.sum((0, 2))
    if not observational.sum() > 0 or not arms.min() > 0:
        raise TooFewRowsError(
            "reliability needs observational units and units of both arms of the "
            f"experiment, got {observational.sum():g} observational, {arms[0]:g} in "
            f"control and {arms[1]:g} in treatment; hold some out with "
            "held_out_fraction.",
            part="held-out",
            observational=observational.sum(),
            experimental=experimental.sum(),
        )
    atoms = model if isinstance(model, pb.Atoms) else model.atoms(counts.z)
    joint, mu = map(np.asarray, atoms)
    shape = (len(counts.z), *pb.BINARY.joint_shape)
    require(
        joint.shape == shape and mu.shape == shape[:2],
        "atoms",
        f"must have joint {list(shape)} and mu {list(shape[:2])}, one for each row of "
        f"counts, got {list(joint.shape)} and {list(mu.shape)}.",
    )
    units = observational.sum((1, 2))
    return Reliability(
        joint=tuple(
            _curve(joint[:, x, y], observational[:, x, y], units)
            for x, y in np.ndindex(pb.BINARY.joint_shape)
        ),
        mu=tuple(
            _curve(mu[:, arm], experimental[:, arm, 1], experimental[:, arm].sum(1))
            for arm in (0, 1)
        ),
    )


def _curve(
    predicted: Float[np.ndarray, " n"],
    events: Float[np.ndarray, " n"],
    units: Float[np.ndarray, " n"],
) -> ReliabilityCurve:
    bins = np.minimum((predicted * _NUM_BINS).astype(int), _NUM_BINS - 1)
    total, hits, sums = (
        np.bincount(bins, weights=w, minlength=_NUM_BINS)
        for w in (units, events, units * predicted)
    )
    with np.errstate(invalid="ignore"):
        return ReliabilityCurve(sums / total, hits / total, total)
