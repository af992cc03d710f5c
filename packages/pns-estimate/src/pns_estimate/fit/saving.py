"""A fitted estimator as a folder: a card in JSON, and the sampler's own files."""

import dataclasses
import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any, NamedTuple

from pns_estimate._errors import UserError
from pns_estimate.fit.summary import FitSummary
from pns_estimate.methods import SAMPLERS, Sampler, get_method
from pns_estimate.tables.columns import Encoder
from pns_estimate.tables.files import complete_folder

_FORMAT = 4
_DIGESTS = "checksums.json"


class FittedState(NamedTuple):
    """What a fit leaves behind, and all that predictions need.

    Attributes:
      encoder: turns covariates into numbers.
      sampler: estimates and draws atoms.
      sample_size: number of units behind the estimates, both tables together.
      summary: what the report shows of data and fit.
    """

    encoder: Encoder
    sampler: Sampler
    sample_size: float
    summary: FitSummary


def save_state(folder: Path, settings: dict[str, Any], state: FittedState) -> None:
    """Writes a new folder, which appears when complete; no training data are in it."""
    with complete_folder(folder) as aside:
        SAMPLERS.save(state.sampler, aside / "sampler")
        card = {
            "format": _FORMAT,
            "version": importlib.metadata.version("pns-estimate"),
            "settings": settings,
            "sample_size": state.sample_size,
            "encoder": state.encoder.to_json(),
            "summary": dataclasses.asdict(state.summary),
        }
        (aside / "estimator.json").write_text(json.dumps(card, indent=1) + "\n")
        digests = json.dumps(_digests(aside), indent=1)
        (aside / _DIGESTS).write_text(digests + "\n")


def load_state(folder: Path) -> tuple[dict[str, Any], FittedState]:
    """Reads settings and state; raises UserError unless all of it is there."""
    card = _read_card(folder)
    _check_digests(folder)
    try:
        settings = dict(card["settings"])
        get_method(settings["method"])  # a method that is not known is told
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
        changed = [n for n in ("estimator.json", *expected) if n not in present]
        changed += [n for n, digest in expected.items() if present.get(n) != digest]
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
