"""What a fit leaves behind for the report: numbers, and no people."""

import dataclasses
from typing import Any

import numpy as np
import pns_models as pm

from pns_estimate._methods import Fitted
from pns_estimate._training_data import TrainingData


@dataclasses.dataclass(frozen=True)
class FitSummary:
    """Plain values about data and fit, as JSON holds them.

    Attributes:
      tables: by name: rows, share treated, share with the outcome in each arm.
      steps: of each evaluation.
      training: loss at each.
      validation: held-out loss at each.
      reliability: of each probability: predicted, observed and people by bin.
      ece_joint: mean calibration error of the cells.
      ece_mu: mean calibration error of the arms.
      spread: scale, interval and profile of the calibration of the spread, or None.
    """

    tables: dict[str, Any]
    steps: list[int]
    training: list[float]
    validation: list[float]
    reliability: dict[str, Any]
    ece_joint: float | None
    ece_mu: float | None
    spread: dict[str, Any] | None


def summarise_fit(data: TrainingData, fitted: Fitted) -> FitSummary:
    """Collects what the report shows; shares are weighted as the people are."""
    shares = {}
    for name, (_, x, y, weights) in data.tables.items():
        shares[name] = {
            "rows": len(x),
            "treated": float(np.average(x, weights=weights)),
        }
        for arm, label in enumerate(("outcome_untreated", "outcome_treated")):
            chosen = x == arm
            shares[name][label] = (
                float(np.average(y[chosen], weights=weights[chosen]))
                if chosen.any()
                else None
            )
    reliability, ece_joint, ece_mu = {}, None, None
    held = fitted.validation
    if (
        np.sum(held.observational) > 0
        and np.sum(held.experimental, axis=(0, 2)).min() > 0
    ):
        made = pm.calibration(fitted.sampler.model, held)
        ece_joint, ece_mu = made.ece_joint, made.ece_mu
        names = ["p00", "p01", "p10", "p11", "mu0", "mu1"]
        for name, curve in zip(names, (*made.joint, *made.mu), strict=True):
            seen = curve.people > 0
            reliability[name] = {
                part: getattr(curve, part)[seen].tolist()
                for part in ("predicted", "observed", "people")
            }
    spread = None
    if fitted.spread is not None:
        spread = {
            "scale": fitted.spread.scale,
            "interval": list(fitted.spread.interval),
            "scales": fitted.spread.scales.tolist(),
            "log_likelihood": fitted.spread.log_likelihood.tolist(),
        }
    return FitSummary(
        tables=shares,
        steps=fitted.history.step.tolist(),
        training=fitted.history.training.tolist(),
        validation=fitted.history.validation.tolist(),
        reliability=reliability,
        ece_joint=ece_joint,
        ece_mu=ece_mu,
        spread=spread,
    )
