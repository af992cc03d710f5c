"""Fits tables larger than memory with the command pns-estimate, and says what it took.

Draws a folder of Parquet files for each table from Li Model 1, a file at a time: 15 binary
covariates, three columns made of them (text, a number, a boolean), treatment and outcome.
People have at most 32,768 different covariate vectors, so many rows agree; where nearly
all rows differ, a streamed fit is an error. The last line is JSON: rows, seconds of the
command, and the peak of its resident memory.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pns_dgp
import pns_infer as pi
from absl import app, flags

_OBSERVATIONAL = flags.DEFINE_integer("observational", 2_000_000, "Rows of the log.")
_EXPERIMENTAL = flags.DEFINE_integer("experimental", 500_000, "Rows of the trial.")
_PEOPLE = flags.DEFINE_integer("people", 1_000_000, "People to answer for.")
_ROWS = flags.DEFINE_integer("rows_per_file", 500_000, "Rows of each file.")
_MEMORY_GB = flags.DEFINE_float("memory_gb", 6.0, "As for pns-estimate.")
_FIT = flags.DEFINE_bool("fit", True, "Fit and answer, or write the folders alone.")
_SEED = flags.DEFINE_integer("seed", 0, "Decides the tables.")
_OUT = flags.DEFINE_string(
    "out", None, "Folder to write; a new temporary one if unset."
)
_SCORED = 10_000  # people whose intervals are compared with the truth


def make_frame(z: np.ndarray) -> pd.DataFrame:
    """Names the binary covariates, and makes three columns of other kinds of them."""
    z = z.astype(np.int8)
    table = pd.DataFrame(z).add_prefix("z")
    regions = np.array(["east", "north", "south", "west"])
    return table.assign(
        region=regions[2 * z[:, 0] + z[:, 1]],
        visits=z[:, 2:6].sum(axis=1) / 2,
        is_member=z[:, 6] > z[:, 7],
    )


def write_folder(
    folder: Path,
    model: pns_dgp.StructuralModel,
    key: jax.Array,
    count: int,
    source: pns_dgp.Source | None,
) -> None:
    """Writes a table, a file at a time; people without a source have covariates alone."""
    folder.mkdir()
    for number, start in enumerate(range(0, count, _ROWS.value)):
        own = jax.random.fold_in(key, number)
        size = min(_ROWS.value, count - start)
        if source is None:
            table = make_frame(np.asarray(model.sample_population(own, size).z))
        else:
            z, x, y = (np.asarray(part) for part in model.sample(own, size, source))
            table = make_frame(z).assign(x=x.astype(np.int8), y=y.astype(np.int8))
        table.to_parquet(folder / f"part-{number:05}.parquet", index=False)


def main(argv: Sequence[str]) -> None:
    """Writes the folders, runs the command, and compares some answers with the truth."""
    del argv
    out = Path(_OUT.value or tempfile.mkdtemp(prefix="pns-large-"))
    out.mkdir(parents=True, exist_ok=True)
    model, key = pns_dgp.li_model_1(), jax.random.key(_SEED.value)
    sizes = {"observational": _OBSERVATIONAL.value, "experimental": _EXPERIMENTAL.value}
    for source in pns_dgp.SOURCES:
        write_folder(out / source, model, key, sizes[source], source)
    write_folder(
        out / "people", model, jax.random.fold_in(key, 2**31), _PEOPLE.value, None
    )
    command = [
        *(sys.executable, "-m", "pns_estimate.command.main"),
        *(f"--{source}={out / source}" for source in pns_dgp.SOURCES),
        *("--treatment=x", "--outcome=y", f"--predict={out / 'people'}"),
        *(f"--memory_gb={_MEMORY_GB.value}", f"--out={out / 'run'}"),
    ]
    if not _FIT.value:
        print(" ".join(command))
        return
    start = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    intervals = pd.read_parquet(out / "run" / "intervals.parquet")
    people = pd.read_parquet(out / "people" / "part-00000.parquet").head(_SCORED)
    z = people[[f"z{i}" for i in range(15)]].to_numpy()
    truth = model.oracle(z)
    scores = pi.score_intervals(intervals.head(len(z)), truth.pns, truth.interval)
    found = {
        **sizes,
        "columns": people.shape[1] + 2,
        "people": len(intervals),
        "seconds": round(seconds),
        "peak_memory_gb": round(peak, 2),
        "set_coverage": round(float(scores.set_coverage), 3),
        "width": round(float(scores.width), 3),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    app.run(main)
