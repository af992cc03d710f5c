"""What a fit leaves behind for the report: numbers and names, and no people."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pns_infer as pi
import pns_models as pm

from pns_estimate.fit.fitting import CalibratedFit
from pns_estimate.methods import Method
from pns_estimate.tables.columns import TwoValues
from pns_estimate.tables.training_data import EncodedTable, TrainingData


@dataclasses.dataclass(frozen=True)
class FitSummary:
    """Plain values about data and fit, as JSON holds them.

    Attributes:
      method: its name.
      method_sentence: what its draws stand for.
      treatment: the column, and which value is which.
      outcome: the column, and which value is which.
      covariates: names of the columns.
      tables: by source: rows, effective sample size (the sum of weights as the fit
        counts them), share treated, share with the outcome in each arm.
      compatibility: the test of whether the tables contradict each other.
      steps: of each evaluation; empty for a method that does not iterate.
      training: loss at each.
      held_out: held-out loss at each.
      reliability: of each probability: predicted, observed and units by bin.
      ece_joint: mean expected calibration error of the cells.
      ece_mu: mean expected calibration error of the arms.
      draw_scale: the factor of the draws, its interval and profile, or None.
      notes: what else the method says of the fit, by label.
      residual: how counts of people who share covariates were weighed: by name of each
        setting its values and their weights, which sum to 1; None if they were not.
      seed: of the fit; None for a model saved before seeds were noted.
      problems: why tables and columns may not be what they are taken for.
    """

    method: str
    method_sentence: str
    treatment: TwoValues
    outcome: TwoValues
    covariates: list[str]
    tables: dict[str, Any]
    compatibility: dict[str, Any]
    steps: list[int]
    training: list[float]
    held_out: list[float]
    reliability: dict[str, Any]
    ece_joint: float | None
    ece_mu: float | None
    draw_scale: dict[str, Any] | None
    notes: dict[str, str]
    residual: dict[str, Any] | None = None
    seed: int | None = None
    problems: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "FitSummary":
        """Rebuilds what `dataclasses.asdict` made of a summary."""
        columns = {k: TwoValues(**values[k]) for k in ("treatment", "outcome")}
        return cls(**{**values, **columns})


def summarize_fit(
    data: TrainingData,
    fit: CalibratedFit,
    method: Method,
    compatibility: dict[str, Any],
    seed: int | None = None,
    problems: Sequence[str] = (),
) -> FitSummary:
    """Collects what the report shows; shares are weighted as the people are."""
    history = fit.learned.history
    return FitSummary(
        method=method.name,
        method_sentence=method.sentence,
        treatment=data.treatment,
        outcome=data.outcome,
        covariates=[str(column) for column in data.encoder.columns],
        tables={
            name: _shares(table, data.num_rows[name])
            for name, table in data.tables.items()
        },
        compatibility=compatibility,
        steps=[] if history is None else history.step.tolist(),
        training=[] if history is None else history.training.tolist(),
        held_out=[] if history is None else history.held_out.tolist(),
        **_reliability(fit),
        draw_scale=_draw_scale(fit.calibration),
        notes=dict(fit.learned.notes),
        residual=_residual(fit.learned.profile),
        seed=seed,
        problems=list(problems),
    )


def _shares(table: EncodedTable, num_rows: int) -> dict[str, Any]:
    _, x, y, weights = table
    shares: dict[str, Any] = {
        "rows": num_rows,
        "effective_size": float(weights.sum()),
        "treated": float(np.average(x, weights=weights)),
    }
    for arm, label in enumerate(("outcome_untreated", "outcome_treated")):
        chosen = x == arm
        shares[label] = (
            float(np.average(y[chosen], weights=weights[chosen]))
            if chosen.any()
            else None
        )
    return shares


def _reliability(fit: CalibratedFit) -> dict[str, Any]:
    held_out = fit.learned.held_out
    arms = np.sum(held_out.experimental, axis=(0, 2))
    if not np.sum(held_out.observational) > 0 or not arms.min() > 0:
        return {"reliability": {}, "ece_joint": None, "ece_mu": None}
    atoms = fit.learned.held_out_atoms
    if atoms is None:
        atoms = fit.sampler.atoms(held_out.z)
    result = pm.measure_reliability(atoms, held_out)
    names = ["p00", "p01", "p10", "p11", "mu0", "mu1"]
    curves = {}
    for name, curve in zip(names, (*result.joint, *result.mu), strict=True):
        seen = curve.units > 0
        curves[name] = {
            part: getattr(curve, part)[seen].tolist()
            for part in ("predicted", "observed", "units")
        }
    return {
        "reliability": curves,
        "ece_joint": result.ece_joint,
        "ece_mu": result.ece_mu,
    }


def _draw_scale(calibration: pi.DrawCalibration | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    return {
        "best": calibration.draw_scale,
        "interval": list(calibration.interval),
        "draw_scales": calibration.draw_scales.tolist(),
        "log_likelihood": calibration.log_likelihood.tolist(),
    }


def _residual(profile: pi.ResidualProfile | None) -> dict[str, Any] | None:
    if profile is None:
        return None
    marginals = {name: profile.marginal(name) for name in profile.settings._fields}
    return {
        name: {"values": values.tolist(), "weight": weight.tolist()}
        for name, (values, weight) in marginals.items()
    }
