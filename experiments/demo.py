"""Runs the command pns-estimate on tables from a structural model, and checks coverage."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pns_dgp
import pns_estimate as pe
import pns_infer as pi
from absl import app, flags, logging

_OBSERVATIONAL = flags.DEFINE_integer("observational", 20_000, "Observational rows.")
_EXPERIMENTAL = flags.DEFINE_integer("experimental", 10_000, "Experimental rows.")
_PEOPLE = flags.DEFINE_integer("people", 1000, "People to answer for.")
_SEED = flags.DEFINE_integer("seed", 0, "Decides the tables.")
_OUT = flags.DEFINE_string(
    "out", None, "Folder to write; a new temporary one if unset."
)
_METHOD = flags.DEFINE_string("method", "crossfit", "As for pns-estimate.")


def make_frame(z: jax.Array | np.ndarray) -> pd.DataFrame:
    """Names the covariates."""
    return pd.DataFrame(np.asarray(z).astype(int)).add_prefix("z")


def write_tables(
    out: Path, model: pns_dgp.StructuralModel, key: jax.Array
) -> np.ndarray:
    """Writes two tables and the people to answer for; returns their covariates."""
    sizes = {"observational": _OBSERVATIONAL.value, "experimental": _EXPERIMENTAL.value}
    for source in pns_dgp.SOURCES:
        z, x, y = model.sample(key, sizes[source], source)
        table = make_frame(z).assign(x=np.asarray(x), y=np.asarray(y))
        table.to_parquet(out / f"{source}.parquet")
    people = model.sample_population(jax.random.fold_in(key, 1), _PEOPLE.value)
    make_frame(people.z).to_csv(out / "people.csv", index=False)
    return np.asarray(people.z)


def main(argv: Sequence[str]) -> None:
    """Draws tables, runs the command, scores its answers."""
    del argv
    logging.set_verbosity(logging.WARNING)  # libraries tell which devices they look for
    out = Path(_OUT.value or tempfile.mkdtemp(prefix="pns-demo-"))
    out.mkdir(parents=True, exist_ok=True)
    model = pns_dgp.li_model_1()
    z = write_tables(out, model, jax.random.key(_SEED.value))
    command = [
        *(sys.executable, "-m", "pns_estimate.command.main"),
        f"--observational={out / 'observational.parquet'}",
        f"--experimental={out / 'experimental.parquet'}",
        *("--treatment=x", "--outcome=y", f"--method={_METHOD.value}"),
        f"--predict={out / 'people.csv'}",
        f"--out={out / 'run'}",
    ]
    subprocess.run(command, check=True)
    intervals = pd.read_parquet(out / "run" / "intervals.parquet")
    truth = model.oracle(z)
    scores = pi.score_intervals(intervals, truth.pns, truth.interval)
    print(
        f"\nThe truth is known here: {scores.point_coverage:.1%} of the intervals contain "
        f"the person's PNS,\n{scores.set_coverage:.1%} the whole identified set (the nominal "
        f"level is 95%). Mean width {scores.width:.3f}; the\nidentified set itself, the "
        f"limit of infinite samples, has {scores.oracle_width:.3f}."
    )


if __name__ == "__main__":
    pe.use_compilation_cache()
    app.run(main)
