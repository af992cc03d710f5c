"""Calibration of the probabilities on held-out people, and the spread of a prior."""

from typing import Any, NamedTuple

import jax
import numpy as np

from pns_models._data import Counts
from pns_models._epistemic import Epinet, Hypermodel
from pns_models._model import FittedModel

_NUM_BINS = 15


class Reliability(NamedTuple):
    """Predicted probability against frequency, in bins of equal width.

    Attributes:
      predicted: [bins] mean prediction; NaN where nobody is.
      observed: [bins] frequency of the event.
      people: [bins] how many people.
    """

    predicted: np.ndarray
    observed: np.ndarray
    people: np.ndarray

    @property
    def ece(self) -> float:
        """Expected calibration error: mean absolute gap, weighted by people."""
        gap = np.abs(np.nan_to_num(self.predicted - self.observed))
        return float(gap @ self.people / self.people.sum())


class Calibration(NamedTuple):
    """Reliability of the four cells p_xy and of mu in both arms.

    Attributes:
      joint: one per cell, in the order 00, 01, 10, 11.
      mu: one per arm.
    """

    joint: tuple[Reliability, ...]
    mu: tuple[Reliability, ...]

    @property
    def ece_joint(self) -> float:
        """Mean calibration error of the cells."""
        return float(np.mean([r.ece for r in self.joint]))

    @property
    def ece_mu(self) -> float:
        """Mean calibration error of the arms."""
        return float(np.mean([r.ece for r in self.mu]))


class Spread(NamedTuple):
    """Standard deviations [6] of raw numbers, of a frozen prior for example.

    Attributes:
      over_z: between people, averaged over indices.
      over_index: between indices, averaged over people.
    """

    over_z: np.ndarray
    over_index: np.ndarray


def calibration(model: FittedModel, counts: Counts) -> Calibration:
    """Compares the model's probabilities with what happened.

    Args:
      model: any fitted model.
      counts: people that it was not trained on, such as `Fit.validation`.
    """
    atoms = model.atoms(counts.z)
    observational = np.asarray(counts.observational, np.float64)
    experimental = np.asarray(counts.experimental, np.float64)
    people = observational.sum((1, 2))
    if not people.sum() > 0 or not experimental.sum((0, 2)).min() > 0:
        raise ValueError(
            "calibration needs people of the observational table and of both arms of the "
            "experiment; hold some out with validation_fraction."
        )
    return Calibration(
        joint=tuple(
            _reliability(atoms.joint[:, x, y], observational[:, x, y], people)
            for x, y in np.ndindex(2, 2)
        ),
        mu=tuple(
            _reliability(
                atoms.mu[:, arm], experimental[:, arm, 1], experimental[:, arm].sum(1)
            )
            for arm in (0, 1)
        ),
    )


def prior_spread(
    network: Hypermodel | Epinet, key: jax.Array, z: Any, num_indices: int = 100
) -> Spread:
    """Measures a network's frozen prior on standardised covariates z [n, d]."""
    if not hasattr(network, "prior_raw"):
        raise TypeError(
            f"only hypermodels and epinets have a prior, not {type(network).__name__}."
        )
    indices = network.draw_indices(key, num_indices)
    raw = np.asarray(network.prior_raw(np.asarray(z, np.float32), indices))
    return Spread(
        over_z=raw.std(axis=1).mean(axis=0), over_index=raw.std(axis=0).mean(axis=0)
    )


def _reliability(predicted, events, people) -> Reliability:
    bins = np.minimum((predicted * _NUM_BINS).astype(int), _NUM_BINS - 1)
    total, hits, sums = (
        np.bincount(bins, weights=w, minlength=_NUM_BINS)
        for w in (people, events, people * predicted)
    )
    with np.errstate(invalid="ignore"):
        return Reliability(sums / total, hits / total, total)
