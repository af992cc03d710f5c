"""What a fit leaves behind: a summary for the report, and all of it as a folder."""

import dataclasses
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm

from pns_estimate._errors import UserError
from pns_estimate.methods import SAMPLERS, Method, MethodFit, Sampler, get_method
from pns_estimate.tables.columns import Encoder, TwoValues
from pns_estimate.tables.files import complete_file
from pns_estimate.tables.preparation import PreparedTables

_FORMAT = 4
_DIGESTS = "checksums.json"
_CONTRADICTION = 0.05  # p-value below which the tables contradict each other


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
    """Predicted against observed, and the number of units, by bin that has units."""

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
class Compatibility:
    """The test of whether the two sources contradict each other."""

    p_value: float  # of the hypothesis that they do not
    strata: int  # how many were compared
    constraint: str  # the inequality that comes nearest to failing
    slack: float  # of that inequality, negative where it fails
    statistic: float  # standard errors by which it fails
    # How far an inequality must fail in every stratum to be found with a probability of
    # at least 80%, at a level of 5%; None for a model saved before this was noted.
    detectable: float | None = None

    @property
    def is_contradiction(self) -> bool:
        """Whether the sources contradict each other."""
        return self.p_value < _CONTRADICTION


@dataclasses.dataclass(frozen=True)
class FitSummary:
    """What is known of data and fit, as JSON can hold it."""

    method: str
    method_sentence: str  # what its draws stand for
    treatment: TwoValues
    outcome: TwoValues
    covariates: list[str]
    tables: dict[str, SourceSummary]
    compatibility: Compatibility
    steps: list[int]  # of each evaluation; empty for a method that does not iterate
    training: list[float]  # loss at each
    held_out: list[float]  # held-out loss at each
    reliability: dict[str, HeldOutCurve]  # empty if no units were held out
    # Mean expected calibration errors: choices and outcomes in the log, arms in the trial.
    ece_joint: float | None
    ece_mu: float | None
    draw_scale: DrawScale | None  # how the draws were scaled, if they were
    notes: dict[str, str]  # what else the method says of the fit, by label
    # How counts of units who share covariates were weighed, by setting, if they were.
    residual: dict[str, Marginal] | None = None
    seed: int | None = None  # None for a model saved before seeds were noted
    # Why tables and columns may not be what they are taken for.
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
    method: Method,
    learned: MethodFit,
    calibration: pi.DrawCalibration | None,
    compatibility: Compatibility,
    seed: int | None = None,
) -> FitSummary:
    """Collects what the report shows; shares are weighted as the units are."""
    history, meaning = learned.history, prepared.meaning
    reliability = _reliability(learned)
    curves = {}
    if reliability is not None:
        names = [f"p{x}{y}" for x, y in np.ndindex(pb.BINARY.joint_shape)]
        names += [f"mu{x}" for x in range(pb.BINARY.num_treatments)]
        found = (*reliability.joint, *reliability.mu)
        for name, (predicted, observed, units) in zip(names, found, strict=True):
            parts = (predicted, observed, units)
            curves[name] = HeldOutCurve(*(part[units > 0].tolist() for part in parts))
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
        reliability=curves,
        ece_joint=None if reliability is None else reliability.ece_joint,
        ece_mu=None if reliability is None else reliability.ece_mu,
        draw_scale=None
        if calibration is None
        else DrawScale(
            calibration.draw_scale,
            list(calibration.interval),
            calibration.draw_scales.tolist(),
            calibration.log_likelihood.tolist(),
        ),
        notes=dict(learned.notes),
        residual=_residual(learned.profile),
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


def _reliability(learned: MethodFit) -> pm.Reliability | None:
    held_out, atoms = learned.held_out, learned.held_out_atoms
    arms = np.sum(held_out.experimental, axis=(0, 2))
    if not np.sum(held_out.observational) > 0 or not arms.min() > 0:
        return None
    if atoms is None:
        atoms = learned.sampler.atoms(np.asarray(held_out.z))
    return pm.measure_reliability(atoms, held_out)


def _residual(profile: pi.ResidualProfile | None) -> dict[str, Marginal] | None:
    if profile is None:
        return None
    return {
        name: Marginal(*(part.tolist() for part in profile.marginal(name)))
        for name in profile.settings._fields
    }


class FittedState(NamedTuple):
    """What a fit leaves behind, and all that predictions need."""

    encoder: Encoder  # turns covariates into numbers
    sampler: Sampler  # estimates and draws atoms
    sample_size: float  # number of units behind the estimates, both tables together
    summary: FitSummary  # what the report shows of data and fit


def save_state(folder: Path, settings: dict[str, Any], state: FittedState) -> None:
    """Writes a new folder, which appears when complete; no training data are in it."""
    with complete_file(folder, is_folder=True) as aside:
        SAMPLERS.save(state.sampler, aside / "sampler")
        card = {
            "format": _FORMAT,
            "version": importlib.metadata.version("pns-estimate"),
            "settings": settings,
            "sample_size": state.sample_size,
            "encoder": dataclasses.asdict(state.encoder),
            "summary": dataclasses.asdict(state.summary),
        }
        # Settings may be numbers of NumPy.
        text = json.dumps(card, indent=1, default=np.generic.item)
        (aside / "estimator.json").write_text(f"{text}\n")
        digests = json.dumps(_digests(aside), indent=1)
        (aside / _DIGESTS).write_text(f"{digests}\n")


def load_state(folder: Path) -> tuple[dict[str, Any], FittedState]:
    """Reads settings and state; raises UserError unless all of it is there."""
    card = _read_card(folder)
    _check_digests(folder)
    try:
        settings = dict(card["settings"])
        get_method(settings["method"])  # raises if it is not known
        encoder = Encoder.from_json(card["encoder"])
        summary = FitSummary.from_json(card["summary"])
        sample_size = float(card["sample_size"])
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{folder} holds an incomplete model: estimator.json lacks {error}."
        ) from error
    try:
        sampler = SAMPLERS.load(folder / "sampler")
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UserError(f"{folder} holds an incomplete model: {error}") from error
    return settings, FittedState(encoder, sampler, sample_size, summary)


def _read_card(folder: Path) -> dict[str, Any]:
    try:
        card = json.loads((folder / "estimator.json").read_text())
        found = card["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder} holds no model of pns-estimate, or an incomplete one."
        ) from error
    if found != _FORMAT:
        raise UserError(
            f"{folder} is in format {found}, and this version reads format {_FORMAT}; it "
            f"was written by pns-estimate {card.get('version')}."
        )
    return card


def _check_digests(folder: Path) -> None:
    """Raises unless every file is as it was written."""
    present = _digests(folder)
    try:
        expected = dict(json.loads((folder / _DIGESTS).read_text()))
        changed = [n for n, digest in expected.items() if present.get(n) != digest]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"{folder} holds an incomplete model: {_DIGESTS} cannot be read."
        ) from error
    if changed or "estimator.json" not in expected:
        raise UserError(
            f"{folder} holds an incomplete model: {(*changed, _DIGESTS)[0]} is missing, "
            "cut short or changed; copy the whole folder again."
        )


def _digests(folder: Path) -> dict[str, str]:
    """Hashes every file below a folder, but for the file of the hashes."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / _DIGESTS
    }
