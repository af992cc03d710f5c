"""A model as a folder of plain tables, with its exact truth.

observational.parquet   covariates z..., x, y
experimental.parquet    covariates z..., x, y
test.parquet            covariates z..., p00, p01, p10, p11, mu0, mu1, pns, harm,
                        lower, upper
card.json, README.md    how it was made

Structural models alone are saved as JSON.
"""

import importlib.metadata
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pyarrow as pa
from jaxtyping import Float

from pns_dgp._acic import AcicModel
from pns_dgp._covariates import make_covariates
from pns_dgp._curved import CurvedModel
from pns_dgp._li import LiModel
from pns_dgp._model import SOURCES, Sample, StructuralModel, Truth, check_count, require

_KINDS = {kind.__name__: kind for kind in (LiModel, AcicModel, CurvedModel)}
_FORMAT = "pns-benchmark 1"
_TRUTH = (*reversed(pb.BINARY.eta_names), "pns", "harm", "lower", "upper")


class Benchmark(NamedTuple):
    """What a benchmark folder holds."""

    observational: Sample
    experimental: Sample
    z_test: Float[np.ndarray, "num_test num_covariates"]
    truth: Truth
    card: dict[str, Any]


def export_benchmark(
    model: StructuralModel,
    folder: str | os.PathLike,
    seed: int,
    num_observational: int,
    num_experimental: int,
    num_test: int,
) -> Benchmark:
    """Writes tables, truth and card of a model, and returns them.

    The folder must not exist yet, and appears when complete. Rows of the test table are
    drawn from the same law; the seed names the draw.

    Example:
      >>> from pns_dgp import random_curved_model
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     made = export_benchmark(random_curved_model(0), f"{folder}/a", 0, 30, 20, 10)
      >>> made.card["rows"]
      {'observational': 30, 'experimental': 20, 'test': 10}
    """
    folder, seed, names = Path(folder), int(seed), _covariate_names(model)
    counts = (num_observational, num_experimental, num_test)
    rows = dict(zip((*SOURCES, "test"), counts, strict=True))
    require(not folder.exists(), "folder", f"{folder} exists already; name a new one.")
    for part, count in rows.items():
        check_count(count, f"num_{part}")
    require(0 <= seed < 2**32, "seed", f"must lie in [0, 2^32), got {seed}.")
    taken = sorted({"x", "y", *_TRUTH} & set(names))
    require(not taken, "model", f"must not name covariates {taken}, as other columns.")
    table_key, test_key = jax.random.split(jax.random.key(seed))
    tables = {
        source: jax.tree.map(np.asarray, model.sample(table_key, rows[source], source))
        for source in SOURCES
    }
    z_test = np.asarray(model.sample_population(test_key, num_test).z)
    truth = model.oracle(z_test)
    packages = ("pns-dgp", "pns-bounds", "jax", "numpy", "scipy")
    card = {
        "format": _FORMAT,
        "model": type(model).__name__,
        "parameters": model.parameters(),
        "seed": seed,
        "rows": {part: int(count) for part, count in rows.items()},
        "covariates": names,
        "averages": {k: float(v.mean()) for k, v in _truth_columns(truth).items()},
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }
    benchmark = Benchmark(**tables, z_test=z_test, truth=truth, card=card)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Written aside, then renamed: the folder is complete or absent.
    with tempfile.TemporaryDirectory(
        prefix=f".{folder.name}-", dir=folder.parent
    ) as aside:
        unfinished = Path(aside, folder.name)
        unfinished.mkdir()
        _write_files(unfinished, benchmark)
        unfinished.rename(folder)
    return benchmark


def read_benchmark(folder: str | os.PathLike) -> Benchmark:
    """Reads a folder that `export_benchmark` wrote; the arrays are bit-identical.

    Example:
      >>> from pns_dgp import random_curved_model
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     made = export_benchmark(random_curved_model(0), f"{folder}/a", 0, 30, 20, 10)
      ...     bool((read_benchmark(f"{folder}/a").truth.pns == made.truth.pns).all())
      True
    """
    folder = Path(folder)
    try:
        card = json.loads((folder / "card.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise pb.InputError(
            "folder", f"{folder} is not a benchmark: card.json: {error}."
        ) from error
    is_card = isinstance(card, dict) and card.get("format") == _FORMAT
    require(is_card, "folder", f"{folder} is not in the format '{_FORMAT}'.")
    names = card["covariates"]
    samples = {}
    for source in SOURCES:
        z, columns = _read_columns(folder / f"{source}.parquet", names, ["x", "y"])
        samples[source] = Sample(z=z, **columns)
    z_test, columns = _read_columns(folder / "test.parquet", names, _TRUTH)
    eta = np.stack([columns[name] for name in pb.BINARY.eta_names], axis=-1)
    truth = Truth(
        atoms=pb.unpack_atoms(eta),
        pns=columns["pns"],
        harm=columns["harm"],
        interval=pb.Interval(columns["lower"], columns["upper"]),
    )
    return Benchmark(**samples, z_test=z_test, truth=truth, card=card)


def _covariate_names(model: StructuralModel) -> list[str]:
    if isinstance(model, AcicModel):
        return list(model.covariates.names)
    return [f"Z{i + 1}" for i in range(model.num_covariates)]


def _truth_columns(truth: Truth) -> dict[str, np.ndarray]:
    eta = pb.pack_atoms(truth.atoms)
    columns = [*eta.T[::-1], truth.pns, truth.harm, *truth.interval]
    return dict(zip(_TRUTH, columns, strict=True))


def _write_files(folder: Path, benchmark: Benchmark) -> None:
    card = benchmark.card
    names = card["covariates"]
    for source in SOURCES:
        z, x, y = getattr(benchmark, source)
        table = pd.DataFrame(z, columns=names).assign(x=x, y=y)
        table.to_parquet(folder / f"{source}.parquet", index=False)
    table = pd.DataFrame(benchmark.z_test, columns=names)
    table = table.assign(**_truth_columns(benchmark.truth))
    table.to_parquet(folder / "test.parquet", index=False)
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    (folder / "README.md").write_text(_card_page(card))


def _card_page(card: dict[str, Any]) -> str:
    rows, means = card["rows"], card["averages"]
    origin = card["parameters"].get("covariates", {}).get("source", "")
    versions = ", ".join(f"{name} {v}" for name, v in card["versions"].items())
    return f"""# Benchmark: {card["model"]}

Two tables over one population, and the exact truth for a third.

| file | rows | columns |
|---|---|---|
| observational.parquet | {rows["observational"]} | covariates, x (as each unit chose), y |
| experimental.parquet | {rows["experimental"]} | covariates, x (a fair coin), y |
| test.parquet | {rows["test"]} | covariates, then the truth given them |

There are {len(card["covariates"])} covariates. The truth: `p00` to `p11` are
P(X=x, Y=y | z), `mu0` and `mu1` are P(Y=1 | do(X=x), z), `pns` and `harm` are
P(Y_1=1, Y_0=0 | z) and P(Y_1=0, Y_0=1 | z), `lower` and `upper` are the sharp
Tian-Pearl interval for `pns`. Use it to score, never to fit.

Means over the test rows: PNS {means["pns"]:.3f}, interval from {means["lower"]:.3f} to
{means["upper"]:.3f} (width {means["upper"] - means["lower"]:.3f}).

Made with seed {card["seed"]} by {versions}.
{f"Covariates: {origin}." if origin else ""}
All parameters of the structural model are in `card.json`.
"""


def _read_columns(
    path: Path, covariates: Sequence[str], others: Sequence[str]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the covariates as one array, and the other columns by name."""
    try:
        table = pd.read_parquet(path, columns=[*covariates, *others])
    except (OSError, pa.ArrowInvalid) as error:
        raise pb.InputError("folder", f"holds an unusable {path}: {error}") from error
    z = np.stack([table[name].to_numpy() for name in covariates], axis=1)
    return z, {name: table[name].to_numpy() for name in others}


def save_model(model: StructuralModel, path: str | os.PathLike) -> None:
    """Writes a model's parameters as JSON; the file appears when complete.

    Example:
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
    path: str | os.PathLike, covariates: Any | None = None
) -> StructuralModel:
    """Reads a model that `save_model` wrote, or the card of a benchmark.

    A model whose covariates are a user's rows needs them, as they are not saved with it.

    Example:
      >>> from pns_dgp import random_li_model
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save_model(random_li_model(seed=100), Path(folder, "model.json"))
      ...     load_model(Path(folder, "model.json")) == random_li_model(seed=100)
      True
    """
    given = make_covariates(covariates)
    try:
        content = json.loads(Path(path).read_text())
        kind = _KINDS[content["model"]]
        parameters = dict(content["parameters"])
        if kind is not AcicModel:
            return kind(**parameters)
        described = parameters["covariates"]
        if given.describe() == described:
            return AcicModel(**{**parameters, "covariates": given})
        origin = described["source"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise pb.InputError(f"{path}", f"is not a saved model: {error!r}.") from error
    raise pb.InputError(
        "covariates", f"must be the rows of the model in {path}: {origin}."
    )
