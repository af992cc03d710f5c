"""A worked example on a real trial: Hillstrom's e-mails, half of it made confounded."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pns_dgp
import pns_estimate as pe
from absl import app, flags

_CSV = flags.DEFINE_string("csv", None, "The public file.", required=True)
_OUT = flags.DEFINE_string("out", None, "A new folder.", required=True)
_SEED = flags.DEFINE_integer("seed", 0, "Names the split.")
_METHOD = flags.DEFINE_string("method", "crossfit", "As for pns-estimate.")


def propensity(hidden: pd.DataFrame) -> np.ndarray:
    """Recent customers are more likely to ask for e-mails."""
    return np.where(hidden["recency"] <= 4, 0.7, 0.3)


def main(argv: Sequence[str]) -> None:
    """Splits the trial, fits, and writes answers and report."""
    del argv
    trial = pd.read_csv(_CSV.value)
    trial = trial[trial["segment"] != "Womens E-Mail"]
    trial = trial.assign(email=(trial["segment"] == "Mens E-Mail").astype(int))
    covariates = ["history", "mens", "womens", "zip_code", "newbie", "channel"]
    columns = [*covariates, "recency", "email", "visit"]
    split = pns_dgp.confounded_split(
        trial[columns], "email", "visit", "recency", propensity, _SEED.value
    )
    estimator = pe.PnsEstimator(_METHOD.value).fit(
        split.observational, split.experimental, treatment="email", outcome="visit"
    )
    out = Path(_OUT.value)
    people = split.experimental[covariates].head(1000)
    estimator.report(out / "report.html", people)
    prediction = estimator.predict(people)
    population = estimator.population_ if estimator.has_population else None
    prediction.intervals().to_csv(out / "intervals.csv")
    estimator.save(out / "model")
    print(f"{len(split.observational)} + {len(split.experimental)} rows")
    print(f"compatibility: p = {estimator.compatibility().p_value:.3f}")
    for name in ("pns", "harm"):
        mean = (population or prediction).average(estimand=name)
        print(f"average {name}: {mean.lower:.3f} to {mean.upper:.3f}")
    print(f"report: {out / 'report.html'}")


if __name__ == "__main__":
    pe.use_compilation_cache()
    app.run(main)
