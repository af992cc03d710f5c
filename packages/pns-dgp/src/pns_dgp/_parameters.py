"""Structural models to and from JSON."""

import json
import os
from pathlib import Path

from pns_bounds import InputError

from pns_dgp._acic import AcicModel
from pns_dgp._covariates import AcicCovariates, Covariates
from pns_dgp._curved import CurvedModel
from pns_dgp._li import LiModel
from pns_dgp._model import StructuralModel

_KINDS = {kind.__name__: kind for kind in (LiModel, AcicModel, CurvedModel)}


def save_model(model: StructuralModel, path: str | os.PathLike) -> None:
    """Writes a model's parameters as JSON; the file appears when complete.

    Example:
      >>> import tempfile
      >>> from pathlib import Path
      >>> from pns_dgp import random_li_model
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save_model(random_li_model(seed=100), Path(folder, "model.json"))
      ...     load_model(Path(folder, "model.json")).effect
      0.213
    """
    path = Path(path)
    content = {"model": type(model).__name__, "parameters": model.parameters()}
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(content, indent=1) + "\n")
    unfinished.replace(path)


def load_model(
    path: str | os.PathLike, covariates: Covariates | None = None
) -> StructuralModel:
    """Reads a model that `save_model` wrote, or the card of a benchmark.

    Args:
      path: the JSON file.
      covariates: the rows of a model that was made with `RowCovariates`, which are not
        saved with it.

    Example:
      >>> import tempfile
      >>> from pathlib import Path
      >>> from pns_dgp import random_li_model
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save_model(random_li_model(seed=100), Path(folder, "model.json"))
      ...     load_model(Path(folder, "model.json")) == random_li_model(seed=100)
      True
    """
    try:
        content = json.loads(Path(path).read_text())
        kind = _KINDS[content["model"]]
        parameters = dict(content["parameters"])
        if kind is not AcicModel:
            return kind(**parameters)
        described = parameters["covariates"]
        given = covariates or AcicCovariates()
        if given.describe() == described:
            return AcicModel(**{**parameters, "covariates": given})
        origin = described["source"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}", f"is not a saved model: {error!r}.") from error
    raise InputError(
        "covariates", f"must be RowCovariates of the rows of {path}: {origin}."
    )
