"""A model as a folder of tables that anybody can read, with its exact truth.

observational.parquet   covariates z..., x, y
experimental.parquet    covariates z..., x, y
test.parquet            covariates z..., p00, p01, p10, p11, mu0, mu1, pns, harm,
                        lower, upper
card.json, README.md    how it was made
"""

import importlib.metadata
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pns_bounds as pb
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from pns_dgp._model import SOURCES, Sample, StructuralModel, Truth, check_count

_FORMAT = "pns-benchmark 1"
_TRUTH = ("p00", "p01", "p10", "p11", "mu0", "mu1", "pns", "harm", "lower", "upper")


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
    """Writes tables, truth and card of a model; the folder appears when complete.

    Args:
      model: any structural model.
      folder: must not exist yet.
      seed: names the draw.
      num_observational: rows of the observational table.
      num_experimental: rows of the experimental table.
      num_test: rows of the test table, drawn from the same law.

    Returns:
      What was written.

    Example:
      >>> import tempfile
      >>> import numpy as np
      >>> from pns_dgp import RowCovariates, acic_model
      >>> rows = np.random.default_rng(0).normal(size=(500, 3))
      >>> model = acic_model(num_active=2, covariates=RowCovariates(rows))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     written = export_benchmark(model, f"{folder}/new", 0, 100, 20_000, 20_000)
      >>> _, x, y = written.experimental
      >>> round(float(y[x == 1].mean()), 2), round(float(y[x == 0].mean()), 2)
      (0.51, 0.54)
      >>> written.truth.atoms.mu.mean(axis=0)[::-1].round(2).tolist()
      [0.51, 0.54]
    """
    folder, seed, names = Path(folder), int(seed), _covariate_names(model)
    counts = (num_observational, num_experimental, num_test)
    _check_export(folder, seed, counts, names)
    table_key, test_key = jax.random.split(jax.random.key(seed))
    tables = {
        source: jax.tree.map(np.asarray, model.sample(table_key, count, source))
        for source, count in zip(SOURCES, counts[:2], strict=True)
    }
    z_test = np.asarray(model.sample_population(test_key, num_test).z)
    truth = model.oracle(z_test)
    card = _make_card(model, seed, counts, truth)
    benchmark = Benchmark(**tables, z_test=z_test, truth=truth, card=card)
    _write_folder(folder, benchmark)
    return benchmark


def _check_export(
    folder: Path, seed: int, counts: tuple[int, ...], names: list[str]
) -> None:
    if folder.exists():
        raise ValueError(f"{folder} exists already; name a new folder.")
    for count in counts:
        check_count(count)
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must lie in [0, 2^32), got {seed}.")
    taken = {"x", "y", *_TRUTH} & set(names)
    if taken:
        raise ValueError(
            f"covariates may not be named {sorted(taken)}: the tables have columns of "
            "their own by these names."
        )


def _make_card(
    model: StructuralModel, seed: int, counts: tuple[int, ...], truth: Truth
) -> dict[str, Any]:
    """Says what was drawn, and by what."""
    parts = (*SOURCES, "test")
    return {
        "format": _FORMAT,
        "model": type(model).__name__,
        "parameters": model.parameters(),
        "seed": seed,
        "rows": {part: int(n) for part, n in zip(parts, counts, strict=True)},
        "covariates": _covariate_names(model),
        "averages": {
            name: float(values.mean()) for name, values in _truth_columns(truth).items()
        },
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("pns-dgp", "pns-bounds", "jax", "numpy", "scipy")
        },
    }


def _write_folder(folder: Path, benchmark: Benchmark) -> None:
    """Writes beside the folder, then renames: it is complete or absent."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write_files(unfinished, benchmark)
        unfinished.chmod(0o755)  # mkdtemp makes it private
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def read_benchmark(folder: str | os.PathLike) -> Benchmark:
    """Reads a folder that `export_benchmark` wrote; arrays are bit for bit the same.

    Args:
      folder: the benchmark.

    Raises:
      ValueError: if the folder is not a benchmark or is incomplete.

    Example:
      >>> import tempfile
      >>> import numpy as np
      >>> from pns_dgp import RowCovariates, acic_model
      >>> rows = np.random.default_rng(0).normal(size=(500, 3))
      >>> model = acic_model(num_active=2, covariates=RowCovariates(rows))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     written = export_benchmark(model, f"{folder}/new", 0, 300, 200, 100)
      ...     found = read_benchmark(f"{folder}/new")
      >>> bool(np.all(found.experimental.z == written.experimental.z)), found.card["rows"]
      (True, {'observational': 300, 'experimental': 200, 'test': 100})
      >>> float(np.abs(found.truth.pns - model.oracle(found.z_test).pns).max())
      0.0
    """
    folder = Path(folder)
    try:
        card = json.loads((folder / "card.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder} is not a benchmark: card.json: {error}.") from error
    if not isinstance(card, dict) or card.get("format") != _FORMAT:
        raise ValueError(f"{folder} is not in the format '{_FORMAT}'.")
    names = card["covariates"]
    samples = {}
    for source in SOURCES:
        table = _read_table(folder / f"{source}.parquet", [*names, "x", "y"])
        samples[source] = Sample(
            z=_matrix(table, names),
            x=table["x"].to_numpy(),
            y=table["y"].to_numpy(),
        )
    table = _read_table(folder / "test.parquet", [*names, *_TRUTH])
    return Benchmark(
        **samples, z_test=_matrix(table, names), truth=_read_truth(table), card=card
    )


def _read_truth(table: pa.Table) -> Truth:
    column = {name: table[name].to_numpy() for name in _TRUTH}
    joint = np.stack([column[name] for name in _TRUTH[:4]], axis=-1)
    return Truth(
        atoms=pb.Atoms(
            joint=joint.reshape(-1, 2, 2),
            mu=np.stack([column["mu0"], column["mu1"]], axis=-1),
        ),
        pns=column["pns"],
        harm=column["harm"],
        interval=pb.Interval(column["lower"], column["upper"]),
    )


def _covariate_names(model: StructuralModel) -> list[str]:
    covariates = getattr(model, "covariates", None)
    if covariates is not None:
        return list(covariates.names)
    return [f"Z{i + 1}" for i in range(model.num_covariates)]


def _truth_columns(truth: Truth) -> dict[str, np.ndarray]:
    joint, mu = truth.atoms
    cells = [joint[:, x, y] for x, y in np.ndindex(2, 2)]
    ends = [truth.interval.lower, truth.interval.upper]
    values = [*cells, mu[:, 0], mu[:, 1], truth.pns, truth.harm, *ends]
    return dict(zip(_TRUTH, values, strict=True))


def _write_files(folder: Path, benchmark: Benchmark) -> None:
    card = benchmark.card
    names = card["covariates"]
    for source in SOURCES:
        z, x, y = getattr(benchmark, source)
        columns = {**dict(zip(names, z.T, strict=True)), "x": x, "y": y}
        pq.write_table(pa.table(columns), folder / f"{source}.parquet")
    columns = dict(zip(names, benchmark.z_test.T, strict=True))
    columns |= _truth_columns(benchmark.truth)
    pq.write_table(pa.table(columns), folder / "test.parquet")
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


def _read_table(path: Path, names: list[str]) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from error
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise ValueError(f"{path} lacks the columns {missing[:5]}.")
    return table


def _matrix(table: pa.Table, names: list[str]) -> np.ndarray:
    return np.stack([table[name].to_numpy() for name in names], axis=1)
