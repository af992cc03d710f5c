"""Averages and sorted groups of public trials, each made into two tables.

Hillstrom's e-mails and the turnout experiment of Gerber, Green and Larimer (2008) are split:
one part stays an experiment, the other is made confounded by a column that is then hidden.
LaLonde's training program comes with people of a survey, who are no trial's controls: the
two tables are known to contradict each other, and the answer should say so. Li Model 1 is
no trial, but its truth is known.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import pandas as pd
import pns_dgp
import pns_estimate as pe

Source = Literal["both", "observational", "experimental"]


class TwoTables(NamedTuple):
    """What is fitted: tables, names of columns, and over whose people to average."""

    observational: pd.DataFrame
    experimental: pd.DataFrame
    treatment: str
    outcome: str
    groups: str | None = None
    source: Source = "both"


def read_hillstrom(folder: Path, seed: int, fraction: float) -> TwoTables:
    """Men's e-mail against none, outcome visit; recency is hidden."""
    trial = pd.read_csv(folder / "hillstrom" / "hillstrom.csv.gz")
    trial = trial[trial["segment"] != "Womens E-Mail"]
    trial = trial.assign(email=(trial["segment"] == "Mens E-Mail").astype(int))
    trial = trial.sample(frac=fraction, random_state=seed)
    columns = ["history", "mens", "womens", "zip_code", "newbie", "channel"]
    split = pns_dgp.confounded_split(
        trial[[*columns, "recency", "email", "visit"]],
        "email",
        "visit",
        "recency",
        lambda hidden: np.where(hidden["recency"] <= 4, 0.7, 0.3),
        seed,
    )
    return TwoTables(split.observational, split.experimental, "email", "visit")


def read_gotv(folder: Path, seed: int, fraction: float) -> TwoTables:
    """The neighbors letter against none, outcome turnout; two past votes are hidden.

    Groups are the blocks of about 34 voters in which letters were assigned.
    """
    trial = pd.read_csv(folder / "gotv" / "gotv_shaming.csv.gz")
    trial = trial[trial["treatment"].str.strip().isin(["Neighbors", "No Postcard"])]
    trial = trial.assign(letter=(trial["treatment"].str.strip() == "Neighbors") * 1)
    blocks = trial["cluster"].drop_duplicates().sample(frac=fraction, random_state=seed)
    trial = trial[trial["cluster"].isin(blocks)].dropna()
    hidden = ["primary_04", "primary_02"]
    columns = ["sex", "age", "general_00", "general_02", "primary_00", "hh_size"]
    split = pns_dgp.confounded_split(
        trial[[*columns, *hidden, "letter", "primary_06", "cluster"]],
        "letter",
        "primary_06",
        hidden,
        lambda votes: np.where(votes.sum(axis=1) > 0, 0.45, 0.2),
        seed,
        cluster="cluster",
    )
    log, part = (
        table.assign(block=trial.loc[table.index, "cluster"])
        for table in (split.observational, split.experimental)
    )
    return TwoTables(log, part, "letter", "primary_06", "block")


def read_lalonde(folder: Path, seed: int, fraction: float) -> TwoTables:
    """The NSW trial; its treated and the PSID's people are the other table.

    Averages are over the trial's people: hardly anybody of the survey is like them.
    """
    trial = pd.read_csv(folder / "lalonde" / "nsw.csv")
    others = pd.read_csv(folder / "lalonde" / "psid_controls.csv.gz")
    log = pd.concat([trial[trial["treat"] == 1], others], ignore_index=True)
    columns = ["age", "education", "black", "hispanic", "married", "nodegree", "re75"]
    both, part = (
        table.sample(frac=fraction, random_state=seed)[[*columns, "treat"]]
        .astype(float)
        .assign(worked=(table["re78"] > 0).astype(int))
        for table in (log, trial)
    )
    return TwoTables(both, part, "treat", "worked", source="experimental")


def read_li_1(folder: Path, seed: int, fraction: float) -> TwoTables:
    """Li Model 1, 20,000 + 10,000 rows; the identified set is 0.207 to 0.395."""
    del folder
    model = pns_dgp.li_model_1()
    log, trial = (
        _make_frame(model.sample(jax.random.key(seed), int(fraction * size), source))
        for size, source in zip((20_000, 10_000), pns_dgp.SOURCES, strict=True)
    )
    return TwoTables(log, trial, "x", "y")


def _make_frame(sample: pns_dgp.Sample) -> pd.DataFrame:
    table = pd.DataFrame(np.asarray(sample.z).astype(int)).add_prefix("z")
    return table.assign(x=np.asarray(sample.x), y=np.asarray(sample.y))


TRIALS: dict[str, Callable[[Path, int, float], TwoTables]] = {
    "hillstrom": read_hillstrom,
    "gotv": read_gotv,
    "lalonde": read_lalonde,
    "li_1": read_li_1,
}


def run_trial(
    name: str, folder: Path, seed: int, fraction: float, method: str = "crossfit"
) -> dict[str, Any]:
    """Fits one trial; returns its averages and sorted groups as plain values."""
    tables = TRIALS[name](folder, seed, fraction)
    estimator = pe.PnsEstimator(method, seed=seed, progress=False).fit(
        tables.observational,
        tables.experimental,
        treatment=tables.treatment,
        outcome=tables.outcome,
        groups=tables.groups,
    )
    population = estimator.population_
    prepared = population.prepared(tables.source)
    people = population.sorted_groups(source=tables.source)
    some = tables.experimental.head(1000)
    return {
        "trial": name,
        "seed": seed,
        "fraction": fraction,
        "average_over": tables.source,
        "rows": [len(tables.observational), len(tables.experimental)],
        "compatibility_p_value": estimator.compatibility().p_value,
        "laws_p_value": population.tables.comparison.laws.p_value,
        "effective_rows": prepared.effective_sizes and list(prepared.effective_sizes),
        "arms_p_value": prepared.arms.p_value,
        "difference": population.difference()._asdict(),
        "averages": {
            estimand: population.comparison(
                estimand=estimand, source=tables.source
            ).to_dict("index")
            for estimand in ("pns", "harm")
        },
        "draws_of_1000": {
            estimand: list(estimator.average(some, estimand=estimand)[:2])
            for estimand in ("pns", "harm")
        },
        "sorted_groups": people.table.to_dict("list"),
        "sorted_p_value": people.p_value,
        "sorted_effect_p_value": people.effect_p_value,
    }


def format_trial(result: dict[str, Any]) -> str:
    """Writes a result as two small tables in Markdown."""
    lines = [
        f"### {result['trial']}, {result['rows'][0]:,} + {result['rows'][1]:,} rows",
        "",
        "| average | benefit (PNS) | harm |",
        "|---|---|---|",
    ]
    pns, harm = result["averages"]["pns"], result["averages"]["harm"]
    for step in pns:
        cells = [
            f"{each[step]['lower']:.3f} to {each[step]['upper']:.3f}"
            for each in (pns, harm)
        ]
        lines.append(f"| {step} | {cells[0]} | {cells[1]} |")
    cells = [
        "{:.3f} to {:.3f}".format(*end) for end in result["draws_of_1000"].values()
    ]
    lines.append(f"| from draws, 1,000 people of the trial | {cells[0]} | {cells[1]} |")
    lines += ["", "| fifth | benefit | harm | effect |", "|---|---|---|---|"]
    table = pd.DataFrame(result["sorted_groups"])
    for place, row in enumerate(table.itertuples(), 1):
        lines.append(
            f"| {place} | {row.benefit_lower:.3f} to {row.benefit_upper:.3f} | "
            f"{row.harm_lower:.3f} to {row.harm_upper:.3f} | "
            f"{row.effect:+.3f} ± {1.96 * row.effect_error:.3f} |"
        )
    return "\n".join(lines) + "\n"
