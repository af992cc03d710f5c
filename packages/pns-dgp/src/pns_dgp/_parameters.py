"""Structural models to and from JSON."""

import json
import os
from pathlib import Path

from pns_dgp._acic import AcicModel
from pns_dgp._covariates import AcicCovariates, Covariates
from pns_dgp._curved import CurvedModel
from pns_dgp._li import LiModel
from pns_dgp._model import StructuralModel

_KINDS = {kind.__name__: kind for kind in (LiModel, AcicModel, CurvedModel)}


def save_model(model: StructuralModel, path: str | os.PathLike) -> None:
    """Writes a model's parameters as JSON; the file appears when complete.

    Example:
      >>> import json
      >>> import tempfile
      >>> from pathlib import Path
      >>> from pns_dgp import li_model_1
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = Path(folder, "model.json")
      ...     save_model(li_model_1(), path)
      ...     content = json.loads(path.read_text())
      >>> content["model"], content["parameters"]["effect"]
      ('LiModel', -0.7795)
    """
    path = Path(path)
    content = {"model": type(model).__name__, "parameters": model.parameters()}
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(content, indent=1) + "\n")
    unfinished.replace(path)


def load_model(
    path: str | os.PathLike, covariates: Covariates | None = None
) -> LiModel | AcicModel | CurvedModel:
    """Reads a model that `save_model` wrote, or the card of a benchmark.

    Args:
      path: the JSON file.
      covariates: the rows of a model that was made with `RowCovariates`, which are not
        saved with it.

    Example:
      >>> import tempfile
      >>> from pathlib import Path
      >>> from pns_dgp import li_model_1, random_li_model
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = Path(folder, "model.json")
      ...     save_model(random_li_model(seed=100), path)
      ...     model = load_model(path)
      >>> model == random_li_model(seed=100), model == li_model_1()
      (True, False)
    """
    try:
        content = json.loads(Path(path).read_text())
        kind = _KINDS[content["model"]]
        parameters = dict(content["parameters"])
        if kind is not AcicModel:
            return kind(**parameters)
        described = parameters["covariates"]
        origin = described["source"]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a saved model: {error!r}.") from error
    parameters["covariates"] = covariates or AcicCovariates()
    if parameters["covariates"].describe() != described:
        raise ValueError(
            f"{path} was made with {origin}; pass the same as "
            "covariates=RowCovariates(rows)."
        )
    try:
        return AcicModel(**parameters)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a saved model: {error!r}.") from error
