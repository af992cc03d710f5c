"""What a fit leaves behind for the report: numbers and names, and no people."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm

from pns_estimate.fit.fitting import CalibratedFit
from pns_estimate.fit.strata import Compatibility
from pns_estimate.methods import Method
from pns_estimate.tables.columns import TwoValues
from pns_estimate.tables.preparation import PreparedTables


@dataclasses.dataclass(frozen=True)
class SourceSummary:
    """Sizes and weighted shares of one source."""

    rows: int  # of the table
    effective_size: float  # the sum of weights as the fit counts them
    treated: float
    outcome_untreated: float | None  # of the untreated; None if there are none
    outcome_treated: float | None


@dataclasses.dataclass(frozen=True)
class HeldOutCurve:
    """Predicted against observed, and the number of units, by bin."""

    predicted: list[float]
    observed: list[float]
    units: list[float]


@dataclasses.dataclass(frozen=True)
class DrawScale:
    """How well each scale of the draws explains held-out units: the best, and a profile."""

    best: float
    interval: list[float]
    draw_scales: list[float]
    log_likelihood: list[float]


@dataclasses.dataclass(frozen=True)
class Marginal:
    """Values of a setting, and their weights, which sum to 1."""

    values: list[float]
    weight: list[float]


@dataclasses.dataclass(frozen=True)
class FitSummary:
    """What is known of data and fit, as JSON can hold it.

    Attributes:
      method: its name.
      method_sentence: what its draws stand for.
      treatment: the column, and which value is which.
      outcome: the column, and which value is which.
      covariates: names of the columns.
      tables: sizes and shares, by source.
      compatibility: the test of whether the tables contradict each other.
      steps: of each evaluation; empty for a method that does not iterate.
      training: loss at each.
      held_out: held-out loss at each.
      reliability: of each probability; empty if no units were held out.
      ece_joint: mean expected calibration error of choices and outcomes in the log.
      ece_mu: mean expected calibration error of outcomes in the arms of the trial.
      draw_scale: how the draws were scaled; None if they were not.
      notes: what else the method says of the fit, by label.
      residual: how counts of units who share covariates were weighed, by setting; None
        if they were not.
      seed: of the fit; None for a model saved before seeds were noted.
      problems: why tables and columns may not be what they are taken for.
    """

    method: str
    method_sentence: str
    treatment: TwoValues
    outcome: TwoValues
    covariates: list[str]
    tables: dict[str, SourceSummary]
    compatibility: Compatibility
    steps: list[int]
    training: list[float]
    held_out: list[float]
    reliability: dict[str, HeldOutCurve]
    ece_joint: float | None
    ece_mu: float | None
    draw_scale: DrawScale | None
    notes: dict[str, str]
    residual: dict[str, Marginal] | None = None
    seed: int | None = None
    problems: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "FitSummary":
        """Rebuilds what `dataclasses.asdict` made of a summary."""
        scale, residual = values.get("draw_scale"), values.get("residual")
        parts = {
            "treatment": TwoValues(**values["treatment"]),
            "outcome": TwoValues(**values["outcome"]),
            "tables": _each(SourceSummary, values["tables"]),
            "compatibility": Compatibility(**values["compatibility"]),
            "reliability": _each(HeldOutCurve, values["reliability"]),
            "draw_scale": None if scale is None else DrawScale(**scale),
            "residual": None if residual is None else _each(Marginal, residual),
        }
        return cls(**{**values, **parts})


def _each(kind: type, values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: kind(**entry) for name, entry in values.items()}


def summarize_fit(
    prepared: PreparedTables,
    fit: CalibratedFit,
    method: Method,
    compatibility: Compatibility,
    seed: int | None = None,
) -> FitSummary:
    """Collects what the report shows; shares are weighted as the units are."""
    history, meaning = fit.learned.history, prepared.meaning
    reliability = _reliability(fit)
    curves = () if reliability is None else (*reliability.joint, *reliability.mu)
    layout = pb.BINARY
    names = [f"p{x}{y}" for x, y in np.ndindex(layout.joint_shape)]
    names += [f"mu{x}" for x in range(layout.num_treatments)]
    return FitSummary(
        method=method.name,
        method_sentence=method.sentence,
        treatment=meaning.treatment,
        outcome=meaning.outcome,
        covariates=[str(column) for column in meaning.encoder.columns],
        tables={
            source.name: _shares(
                prepared.rows, number, prepared.read.num_rows[source.name]
            )
            for number, source in enumerate(pm.SOURCES)
        },
        compatibility=compatibility,
        steps=[] if history is None else history.step.tolist(),
        training=[] if history is None else history.training.tolist(),
        held_out=[] if history is None else history.held_out.tolist(),
        reliability={n: _curve(*c) for n, c in zip(names, curves, strict=bool(curves))},
        ece_joint=None if reliability is None else reliability.ece_joint,
        ece_mu=None if reliability is None else reliability.ece_mu,
        draw_scale=_draw_scale(fit.calibration),
        notes=dict(fit.learned.notes),
        residual=_residual(fit.learned.profile),
        seed=seed,
        problems=list(prepared.problems),
    )


def _shares(rows: pm.Rows, source: int, num_rows: int) -> SourceSummary:
    own = rows.source == source
    x, y, weights = rows.treatment[own], rows.outcome[own], rows.weights[own]
    rates = [
        float(np.average(y[x == arm], weights=weights[x == arm]))
        if (x == arm).any()
        else None
        for arm in range(pb.BINARY.num_treatments)
    ]
    treated = float(np.average(x, weights=weights))
    return SourceSummary(num_rows, float(weights.sum()), treated, *rates)


def _reliability(fit: CalibratedFit) -> pm.Reliability | None:
    held_out = fit.learned.held_out
    arms = np.sum(held_out.experimental, axis=(0, 2))
    if not np.sum(held_out.observational) > 0 or not arms.min() > 0:
        return None
    atoms = fit.learned.held_out_atoms
    if atoms is None:
        atoms = fit.sampler.atoms(held_out.z)
    return pm.measure_reliability(atoms, held_out)


def _curve(*parts: np.ndarray) -> HeldOutCurve:
    seen = parts[2] > 0  # predicted, observed, units
    return HeldOutCurve(*(part[seen].tolist() for part in parts))


def _draw_scale(calibration: pi.DrawCalibration | None) -> DrawScale | None:
    if calibration is None:
        return None
    return DrawScale(
        calibration.draw_scale,
        list(calibration.interval),
        calibration.draw_scales.tolist(),
        calibration.log_likelihood.tolist(),
    )


def _residual(profile: pi.ResidualProfile | None) -> dict[str, Marginal] | None:
    if profile is None:
        return None
    return {
        name: Marginal(*(part.tolist() for part in profile.marginal(name)))
        for name in profile.settings._fields
    }
