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
import pns_infer as pi
from absl import app, flags

_OBSERVATIONAL = flags.DEFINE_integer("observational", 20_000, "Observational rows.")
_EXPERIMENTAL = flags.DEFINE_integer("experimental", 10_000, "Experimental rows.")
_PEOPLE = flags.DEFINE_integer("people", 1000, "People to answer for.")
_SEED = flags.DEFINE_integer("seed", 0, "Decides the tables.")
_OUT = flags.DEFINE_string(
    "out", None, "Folder to write; a new temporary one if unset."
)
_METHOD = flags.DEFINE_string("method", "epinet", "As for pns-estimate.")


def frame(z: jax.Array) -> pd.DataFrame:
    """Names the covariates."""
    return pd.DataFrame(np.asarray(z).astype(int)).add_prefix("z")


def main(argv: Sequence[str]) -> None:
    """Draws tables, runs the command, scores its answers."""
    del argv
    out = Path(_OUT.value or tempfile.mkdtemp(prefix="pns-demo-"))
    out.mkdir(parents=True, exist_ok=True)
    model = pns_dgp.li_model_1()
    key = jax.random.key(_SEED.value)
    samples = {
        "observational": model.sample(key, _OBSERVATIONAL.value, "observational"),
        "experimental": model.sample(key, _EXPERIMENTAL.value, "experimental"),
    }
    for source, sample in samples.items():
        table = frame(sample.z).assign(x=np.asarray(sample.x), y=np.asarray(sample.y))
        table.to_parquet(out / f"{source}.parquet")
    people = model.sample_population(jax.random.fold_in(key, 1), _PEOPLE.value)
    frame(people.z).to_csv(out / "people.csv", index=False)
    command = [
        *(sys.executable, "-m", "pns_estimate._command"),
        f"--observational={out / 'observational.parquet'}",
        f"--experimental={out / 'experimental.parquet'}",
        *("--treatment=x", "--outcome=y", f"--method={_METHOD.value}"),
        f"--predict={out / 'people.csv'}",
        f"--out={out / 'run'}",
    ]
    subprocess.run(command, check=True)
    made = pd.read_parquet(out / "run" / "intervals.parquet")
    truth = model.oracle(people.z)
    scores = pi.score_intervals(made, truth.pns, truth.interval)
    print(
        f"\nThe truth is known here: {scores.point_coverage:.1%} of the intervals contain "
        f"the person's PNS,\n{scores.set_coverage:.1%} the whole identified set (95% were "
        f"asked for). Mean width {scores.width:.3f}; with\nendless data it would be "
        f"{scores.oracle_width:.3f}."
    )


if __name__ == "__main__":
    app.run(main)
