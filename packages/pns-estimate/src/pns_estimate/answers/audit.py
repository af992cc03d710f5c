"""An audit: how often intervals cover on tables like the user's, of which the truth is known.

The truth is the fitted law. Tables are drawn from it at the covariates of the user's own,
with as many rows, and fitted again with the same settings.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_models as pm
from jaxtyping import Float

from pns_estimate._errors import UserError, require
from pns_estimate._fit import fit_sampler
from pns_estimate._settings import is_whole
from pns_estimate.answers.population import Population
from pns_estimate.answers.prediction import Draws, Prediction, plug_in
from pns_estimate.answers.question import EstimandLike, check_alpha, find_estimand
from pns_estimate.methods import Sampler

CAVEAT = (
    "A fitted law is smoother than the real one, so this coverage is optimistic: a low "
    "figure is a warning, a high one is no proof."
)
_ROUNDING = 1e-6  # of ends in single precision


@dataclasses.dataclass(frozen=True)
class Audit:
    """Coverage and width on tables drawn from the fitted law.

    Coverage is the share of intervals that contain the identified set of that law.
    """

    estimand: str
    alpha: float
    num_tables: int  # pairs of tables
    num_people: int  # asked about after each fit, the same ones
    coverage: float
    by_table: list[float]  # coverage of each pair
    by_width: list[float]  # of thirds of the intervals, the narrowest first
    # Of thirds, those about whom learners differ least first; None without learners.
    by_disagreement: list[float] | None
    mean_width: float  # of the intervals
    set_width: float  # of the identified sets, on average

    @property
    def is_low(self) -> bool:
        """Whether intervals miss more than twice as often as they may."""
        return self.coverage < 1 - 2 * self.alpha

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        pairs = "a pair" if self.num_tables == 1 else f"{self.num_tables} pairs"
        return (
            f"on {pairs} of tables drawn from the fit, {self.coverage:.1%} of the intervals "
            f"of {self.num_people:,} people contain the identified set, and "
            f"{100 * (1 - self.alpha):.4g}% was asked for; their mean width is "
            f"{self.mean_width:.3f}, and that of the identified sets {self.set_width:.3f}."
        )


def run_audit(
    population: Population,
    sampler: Sampler,
    settings: Mapping[str, Any],
    num_tables: int = 1,
    alpha: float = 0.05,
    estimand: EstimandLike = "pns",
    num_people: int = 1000,
) -> Audit:
    """Draws tables from a fitted law, fits them and counts; see `PnsEstimator.audit`."""
    bounded = find_estimand(estimand)
    check_alpha(alpha)
    for name, value, least in (
        ("num_tables", num_tables, 1),
        ("num_people", num_people, 3),
    ):
        enough = is_whole(value) and value >= least
        require(enough, name, f"a whole number of at least {least}", value)
    _check_weights(population)
    rows, seed = population.rows, int(settings["seed"])
    first, place = pm.distinct_rows(rows.cell)
    atoms = sampler.atoms(rows.z[first])
    law = pb.Atoms(*(np.asarray(part, float)[place] for part in atoms))
    rng = np.random.default_rng([seed, 3])
    size = rows.copies.sum()
    chosen = rng.choice(len(law.mu), min(num_people, int(size)), p=rows.copies / size)
    ends = plug_in(bounded, pb.Atoms(*(part[chosen] for part in law)))
    tables = []
    for number in range(num_tables):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 3), number)
        drawn = draw_rows(rng, rows, law)
        again = fit_sampler(key, drawn, settings)[2]
        people = _predict(again, key, rows.z[chosen], settings, float(size))
        table = people.intervals(alpha, bounded)
        tables.append(table.assign(set_lower=ends.lower, set_upper=ends.upper))
    return summarize(tables, bounded.name, alpha)


def _check_weights(population: Population) -> None:
    is_sampled = population.tables.weights_are == "sampling"
    if is_sampled or np.any(population.rows.copies % 1):
        raise UserError(
            "an audit draws people one by one, so weights must be whole numbers of people; "
            "round them and fit with frequency weights, or audit a fit without weights."
        )


def draw_rows(rng: np.random.Generator, rows: pm.Rows, law: pb.Atoms) -> pm.Rows:
    """Draws choices and outcomes of the log, and outcomes of the trial.

    Arms, covariates, folds and groups stay; outcomes within a group are independent.

    Args:
      rng: decides the draws.
      rows: of the tables.
      law: of each row.
    """
    chance = np.array(law.joint)
    arms = np.stack([1 - law.mu, law.mu], axis=2)
    is_own = np.eye(pb.BINARY.num_treatments)[rows.treatment][..., None]
    chance[rows.is_trial] = (is_own * arms)[rows.is_trial]
    chance = chance.reshape(len(chance), -1)
    chance /= chance.sum(axis=1, keepdims=True)
    counts = rng.multinomial(rows.copies.astype(int), chance)
    place, cell = np.nonzero(counts)
    treatment, outcome = np.unravel_index(cell, pb.BINARY.joint_shape)
    units = counts[place, cell].astype(float)
    drawn = rows.take(place)._replace(
        treatment=treatment, outcome=outcome, weights=units, copies=units
    )
    return drawn.merged()[0]


def _predict(
    sampler: Sampler,
    key: jax.Array,
    z: Float[np.ndarray, "n d"],
    settings: Mapping[str, Any],
    sample_size: float,
) -> Prediction:
    first, place = pm.distinct_rows(z)
    draws = Draws(
        sampler, jax.random.fold_in(key, 2), z[first], int(settings["num_draws"])
    )
    nobody = np.zeros(len(z), bool)
    people = pd.DataFrame(index=range(len(z)))
    return Prediction(people, z[first], place, nobody, sampler, draws, sample_size)


def summarize(tables: Sequence[pd.DataFrame], estimand: str, alpha: float) -> Audit:
    """Counts intervals that contain the identified set, which each table has beside them."""
    all_people = pd.concat(tables, keys=range(len(tables)))
    is_covered = (all_people["lower"] <= all_people["set_lower"] + _ROUNDING) & (
        all_people["upper"] >= all_people["set_upper"] - _ROUNDING
    )
    width = (all_people["upper"] - all_people["lower"]).clip(lower=0)
    differ = all_people.get("disagreement")
    if differ is not None and differ.isna().any():
        differ = None
    return Audit(
        estimand=estimand,
        alpha=alpha,
        num_tables=len(tables),
        num_people=len(tables[0]),
        coverage=float(is_covered.mean()),
        by_table=is_covered.groupby(level=0).mean().tolist(),
        by_width=_by_third(width, is_covered),
        by_disagreement=None if differ is None else _by_third(differ, is_covered),
        mean_width=float(width.mean()),
        set_width=float((all_people["set_upper"] - all_people["set_lower"]).mean()),
    )


def _by_third(values: pd.Series, is_covered: pd.Series) -> list[float]:
    """Averages over thirds of people, those with the least value first."""
    order = np.argsort(values.to_numpy(), kind="stable")
    thirds = np.array_split(is_covered.to_numpy()[order], 3)
    return [float(third.mean()) for third in thirds]
