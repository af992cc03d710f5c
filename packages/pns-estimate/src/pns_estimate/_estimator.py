"""The front door: two tables in, an interval for every person out."""

import dataclasses
import importlib.metadata
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm

from pns_estimate._columns import Encoder, Missing, TwoValues, Unseen
from pns_estimate._errors import UserError
from pns_estimate._files import complete_folder, read_table
from pns_estimate._methods import (
    METHODS,
    Method,
    Sampler,
    default_recipe,
    fit_method,
    load_sampler,
    save_sampler,
)
from pns_estimate._report import write_report
from pns_estimate._strata import run_compatibility_test
from pns_estimate._summary import FitSummary, summarise_fit
from pns_estimate._training_data import Roles, read_training_data

_FORMAT = 1
_BLOCK = 512  # people whose draws are held at a time

Name = Literal["pns", "harm", "pn", "ps"]
ESTIMANDS: dict[str, pi.Estimand] = {
    "pns": pi.PNS,
    "harm": pi.HARM,
    "pn": pi.PN,
    "ps": pi.PS,
}
# What may bind, by estimand and side, in the order of the terms.
_TERMS = {
    "pns": (
        ("mu1 - mu0", "P(y) - mu0", "mu1 - P(y)"),
        ("mu1", "1 - mu0", "p11 + p00", "mu1 - mu0 + p10 + p01"),
    ),
    "harm": (
        ("mu0 - mu1", "P(y) - mu1", "mu0 - P(y)"),
        ("mu0", "1 - mu1", "p01 + p10", "mu0 - mu1 + p00 + p11"),
    ),
    "pn": (("(P(y) - mu0) / p11",), ("(p10 + P(y) - mu0) / p11",)),
    "ps": (("(mu1 - P(y)) / p00",), ("(mu1 - p11) / p00",)),
}


class PnsEstimator:
    """Bounds, for every person, the probability that the treatment makes the difference.

    Args:
      method: 'epinet', 'ensemble', 'bootstrap_full', 'bootstrap_last_layer', or
        'plug_in', which corrects nothing and gives no coverage.
      num_draws: draws behind each interval; a bootstrap has its own number.
      seed: decides all randomness.
      missing: covariates without a value: 'error', or 'indicator' columns.
      unseen: categories that training had not: 'error', or 'unknown'.
      calibrate: widen or narrow the spread of draws to the largest factor that fits
        held-out people (within the 95% interval of its profile).
      recipe: network and training; the method's own if None.
      progress: show a bar while fitting, if there is a terminal.
    """

    def __init__(
        self,
        method: Method = "epinet",
        *,
        num_draws: int = 2000,
        seed: int = 0,
        missing: Missing = "error",
        unseen: Unseen = "error",
        calibrate: bool = True,
        recipe: pm.Recipe | None = None,
        progress: bool = True,
    ):
        """Stores the settings."""
        self.method: Method = method
        self.num_draws = int(num_draws)
        self.seed = int(seed)
        self.missing: Missing = missing
        self.unseen: Unseen = unseen
        self.calibrate = calibrate
        self.recipe = recipe
        self.progress = progress
        self._sampler: Sampler | None = None
        self._population: pd.DataFrame | None = None

    def fit(
        self,
        observational: Any,
        experimental: Any,
        *,
        treatment: str,
        outcome: str,
        covariates: Sequence[str] | None = None,
        weights: str | None = None,
        treatment_reference: Any = None,
        outcome_reference: Any = None,
    ) -> "PnsEstimator":
        """Learns from two tables over the same population.

        Args:
          observational: people who chose for themselves: a DataFrame, or a path to CSV
            or Parquet.
          experimental: people assigned at random.
          treatment: the column with the treatment, two values.
          outcome: the column with the outcome, two values.
          covariates: columns that describe people; all that the tables share if None,
            and then the tables must have the same columns.
          weights: a column of positive weights in both tables; a person of weight w
            counts as w people.
          treatment_reference: the value that means "not treated"; needed unless values
            are 0 and 1, or booleans.
          outcome_reference: the value that means "did not happen".

        Returns:
          The estimator itself.
        """
        self._check_settings()
        # Nothing is kept before all of it worked: a fit that fails changes nothing.
        data = read_training_data(
            observational,
            experimental,
            Roles(treatment, outcome, weights, treatment_reference, outcome_reference),
            covariates,
            self.missing,
            self.unseen,
            self.seed,
        )
        counts = data.counts()
        key = jax.random.key(self.seed)
        recipe = self.recipe or default_recipe(self.method)
        try:
            fitted = fit_method(
                key, counts, self.method, recipe, self.calibrate, self.progress
            )
        except pm.DivergedError as error:
            raise UserError(f"training failed: {error}") from error
        except ValueError as error:
            if "part needs people" in str(error):
                raise UserError(
                    "there are too few people to learn from: some of both tables are "
                    "held out to judge the fit; give larger tables."
                ) from error
            raise
        compatibility = run_compatibility_test(
            jax.random.fold_in(key, 1), counts, fitted.sampler.model.standardiser
        )
        self.treatment_, self.outcome_ = data.treatment, data.outcome
        self.encoder_ = data.encoder
        self._sampler = fitted.sampler
        self.compatibility_ = compatibility
        self.num_rows_ = float(sum(np.sum(part) for part in counts[1:]))
        self.summary_ = summarise_fit(data, fitted)
        self._population = data.people
        return self

    def intervals(
        self,
        rows: Any,
        alpha: float = 0.05,
        target: Literal["set", "parameter"] = "set",
        estimand: Name = "pns",
    ) -> pd.DataFrame:
        """Computes an interval for each person.

        Args:
          rows: people with the covariates of training; a DataFrame or a path.
          alpha: the probability of missing, at each person.
          target: 'set' covers the identified set, 'parameter' the probability itself.
          estimand: 'pns', 'harm', 'pn' or 'ps'.

        Returns:
          A DataFrame with the index of `rows`:
            lower, upper: the interval.
            bound_lower, bound_upper: half-median-unbiased estimates of the sharp bounds.
            binding_lower, binding_upper: the term that attains each end.
            empty: whether the ends cross, so that no value fits.
            outside: whether a covariate lies outside what training saw.
        """
        made = _checked_estimand(estimand)
        if target not in ("set", "parameter"):
            raise UserError(f"target must be 'set' or 'parameter', got {target!r}.")
        pi_options = {"num_rows": self._fitted().num_rows_, "target": target}
        table = read_table(rows, "prediction")
        z, outside = self.encoder_.encode(table, "prediction")
        names = _TERMS[estimand]
        if not self._get_sampler().has_draws:
            _check_alpha(alpha)
            lower, upper, terms = _plug_in(made, self._get_sampler().model.atoms(z))
            return pd.DataFrame(
                {
                    "lower": lower,
                    "upper": upper,
                    "bound_lower": lower,
                    "bound_upper": upper,
                    "binding_lower": _named(names[0], terms[0], made.floor),
                    "binding_upper": _named(names[1], terms[1], made.ceiling),
                    "empty": lower > upper,
                    "outside": outside,
                },
                index=table.index,
            )
        _check_alpha(alpha)
        result = _as_user_error(
            lambda: pi.intervals_from_draws(
                self._blocks(z), alpha, estimand=made, **pi_options
            )
        )
        return pd.DataFrame(
            {
                "lower": result.lower,
                "upper": result.upper,
                "bound_lower": result.estimate_lower,
                "bound_upper": result.estimate_upper,
                "binding_lower": _named(names[0], result.term_lower, made.floor),
                "binding_upper": _named(names[1], result.term_upper, made.ceiling),
                "empty": result.is_empty,
                "outside": outside,
            },
            index=table.index,
        )

    def band(
        self,
        rows: Any,
        alpha: float = 0.05,
        estimand: Name = "pns",
        side: Literal["both", "lower", "upper"] = "both",
    ) -> pd.DataFrame:
        """Computes a band that holds for all rows at once.

        Returns:
          A DataFrame with lower, upper and empty, and the index of `rows`.
        """
        table, band = self._band(rows, alpha, estimand, side)
        return pd.DataFrame(
            {"lower": band.lower, "upper": band.upper, "empty": band.is_empty},
            index=table.index,
        )

    def threshold_set(
        self, rows: Any, threshold: float, alpha: float = 0.05, estimand: Name = "pns"
    ) -> pd.Series:
        """Finds who surely exceeds a threshold.

        Returns:
          Booleans with the index of `rows`. With probability 1 - alpha nobody is marked
          wrongly.
        """
        table, band = self._band(rows, alpha, estimand, "lower")
        above = pi.threshold_set(band, threshold).above
        return pd.Series(above, index=table.index, name=f"{estimand} > {threshold:g}")

    def average(
        self,
        rows: Any,
        mask: Any = None,
        weights: Any = None,
        alpha: float = 0.05,
        estimand: Name = "pns",
    ) -> pi.AverageInterval:
        """Computes an interval for the mean over people.

        Args:
          rows: people with the covariates of training.
          mask: booleans, one per row: a subgroup.
          weights: not negative, one per row.
          alpha: the probability of missing.
          estimand: 'pns', 'harm', 'pn' or 'ps'.
        """
        table = read_table(rows, "prediction")
        share = _subgroup(len(table), mask, weights)
        keep = share > 0
        groups = self.average_groups(table[keep], share[keep][None], alpha, estimand)
        return pi.AverageInterval(*(field[0].item() for field in groups))

    def average_groups(
        self, rows: Any, weights: Any, alpha: float = 0.05, estimand: Name = "pns"
    ) -> pi.AverageInterval:
        """Computes `average` for several groups of the same people at once.

        Args:
          rows: people with the covariates of training.
          weights: [num_groups, num_rows], not negative.
          alpha: the probability of missing, for each group.
          estimand: 'pns', 'harm', 'pn' or 'ps'.

        Returns:
          Every field is [num_groups].
        """
        made = _checked_estimand(estimand)
        _check_alpha(alpha)
        num_rows = self._fitted().num_rows_
        z, _ = self.encoder_.encode(read_table(rows, "prediction"), "prediction")
        weights = np.asarray(weights, float)
        if (
            weights.ndim != 2
            or weights.shape[1] != len(z)
            or not np.all(np.isfinite(weights) & (weights >= 0))
            or not np.all(weights.sum(axis=1) > 0)
        ):
            raise UserError(
                f"weights must have shape [num_groups, {len(z)}], be finite and not "
                "negative, and not be all 0 in a group."
            )
        if not self._get_sampler().has_draws:
            share = weights / weights.sum(axis=1, keepdims=True)
            lower, upper, _ = _plug_in(made, self._get_sampler().model.atoms(z))
            low, high = share @ lower, share @ upper
            return pi.AverageInterval(low, high, low, high, low > high)
        return _as_user_error(
            lambda: pi.average_interval(
                self._blocks(z),
                alpha,
                num_rows=num_rows,
                weights=weights,
                estimand=made,
            )
        )

    def atoms(self, rows: Any) -> pd.DataFrame:
        """Estimates the six probabilities of each person.

        Returns:
          A DataFrame with mu0, mu1 (the chance of the outcome untreated and treated)
          and p00, p01, p10, p11 (choice x and outcome y), with the index of `rows`.
        """
        table = read_table(rows, "prediction")
        self._fitted()
        z, _ = self.encoder_.encode(table, "prediction")
        atoms = self._get_sampler().model.atoms(z)
        columns = {f"mu{x}": atoms.mu[:, x] for x in (0, 1)}
        columns |= {f"p{x}{y}": atoms.joint[:, x, y] for x, y in np.ndindex(2, 2)}
        return pd.DataFrame(columns, index=table.index)

    def compatibility(self) -> dict[str, Any]:
        """Returns the test of whether the two tables contradict each other.

        The keys are p_value, strata, and, of the worst inequality, constraint, slack and
        statistic (standard errors by which it is violated).
        """
        self._fitted()
        return dict(self.compatibility_)

    def report(self, path: Any, rows: Any = None, alpha: float = 0.05) -> None:
        """Writes one self-contained HTML file.

        Args:
          path: the file to write.
          rows: the people to report on; a sample of the training people if None.
          alpha: for all intervals in it.
        """
        self._fitted()
        if rows is None and self._population is None:
            raise UserError(
                "a loaded model has no people of its own: give rows to report on."
            )
        people = self._population if rows is None else read_table(rows, "prediction")
        write_report(Path(path), self, people, alpha)

    def save(self, folder: Any) -> None:
        """Writes the estimator to a new folder; no training data are in it."""
        self._fitted()
        with complete_folder(Path(folder)) as aside:
            save_sampler(self._get_sampler(), aside)
            card = {
                "format": _FORMAT,
                "version": importlib.metadata.version("pns-estimate"),
                "method": self.method,
                "num_draws": self.num_draws,
                "seed": self.seed,
                "scale": self._get_sampler().scale,
                "num_rows": self.num_rows_,
                "treatment": dataclasses.asdict(self.treatment_),
                "outcome": dataclasses.asdict(self.outcome_),
                "encoder": self.encoder_.to_json(),
                "compatibility": self.compatibility_,
                "summary": dataclasses.asdict(self.summary_),
            }
            (aside / "estimator.json").write_text(json.dumps(card, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Any) -> "PnsEstimator":
        """Reads what `save` wrote; answers are bit for bit the same."""
        folder = Path(folder)
        try:
            card = json.loads((folder / "estimator.json").read_text())
            found = card["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{folder} holds no model of pns-estimate, or an incomplete one."
            ) from error
        if found != _FORMAT:
            raise UserError(
                f"{folder} is in format {found}, and this version reads format "
                f"{_FORMAT}; it was written by pns-estimate {card.get('version')}."
            )
        try:
            made = cls(card["method"], num_draws=card["num_draws"], seed=card["seed"])
            made.encoder_ = Encoder.from_json(card["encoder"])
            made.treatment_ = TwoValues(**card["treatment"])
            made.outcome_ = TwoValues(**card["outcome"])
            made.compatibility_ = card["compatibility"]
            made.summary_ = FitSummary(**card["summary"])
            made.num_rows_ = card["num_rows"]
            indicator = any(c.indicator for c in made.encoder_.covariates)
            made.missing = "indicator" if indicator else "error"
            made.unseen = made.encoder_.unseen
            scale = card["scale"]
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{folder} holds an incomplete model: estimator.json lacks {error}."
            ) from error
        made._sampler = load_sampler(folder, made.method, scale)
        return made

    @staticmethod
    def default_recipe(method: Method) -> pm.Recipe:
        """Returns the recipe that a method uses by default, to change it."""
        return default_recipe(method)

    def _check_settings(self) -> None:
        for name, value, known in (
            ("method", self.method, METHODS),
            ("missing", self.missing, ("error", "indicator")),
            ("unseen", self.unseen, ("error", "unknown")),
        ):
            if value not in known:
                raise UserError(f"{name} must be one of {list(known)}, got {value!r}.")
        if self.num_draws < 200:
            raise UserError(f"num_draws must be at least 200, got {self.num_draws}.")

    def _fitted(self) -> "PnsEstimator":
        if self._sampler is None:
            raise UserError("call fit(...) first, or PnsEstimator.load(folder).")
        return self

    def _get_sampler(self) -> Sampler:
        self._fitted()
        assert self._sampler is not None
        return self._sampler

    def _blocks(self, z: np.ndarray) -> Iterator[pb.Atoms]:
        """Yields draws for one block of people after another, the same law for all."""
        key = jax.random.fold_in(jax.random.key(self.seed), 2)
        for start in range(0, len(z), _BLOCK):
            block = z[start : start + _BLOCK]
            yield self._get_sampler().draws(key, block, self.num_draws)

    def _band(self, rows, alpha, estimand, side) -> tuple[pd.DataFrame, pi.Band]:
        made = _checked_estimand(estimand)
        _check_alpha(alpha)
        if not self._get_sampler().has_draws:
            raise UserError(
                "method='plug_in' has no draws, so it has no band; fit another method."
            )
        table = read_table(rows, "prediction")
        z, _ = self.encoder_.encode(table, "prediction")
        band = _as_user_error(
            lambda: pi.uniform_band(
                self._blocks(z), alpha, estimand=made, statistic="one_sided", side=side
            )
        )
        return table, band


def _as_user_error(call):
    """Turns complaints about too few draws into a user's error."""
    try:
        return call()
    except ValueError as error:
        if "draws are too few" in str(error):
            raise UserError(
                f"{error} Set num_draws, or take a larger alpha."
            ) from error
        raise


def _checked_estimand(estimand: str) -> pi.Estimand:
    if estimand not in ESTIMANDS:
        raise UserError(f"estimand must be one of {list(ESTIMANDS)}, got {estimand!r}.")
    return ESTIMANDS[estimand]


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise UserError(f"alpha must lie in (0, 1), got {alpha}; 0.05 asks for 95%.")


def _plug_in(estimand: pi.Estimand, atoms: pb.Atoms):
    """Takes the extreme terms of the estimates, uncorrected."""
    lower, upper = estimand.terms(atoms)
    low = np.maximum(lower.max(axis=-1), estimand.floor)
    high = np.minimum(upper.min(axis=-1), estimand.ceiling)
    terms = (
        np.where(low <= estimand.floor, -1, lower.argmax(axis=-1)),
        np.where(high >= estimand.ceiling, -1, upper.argmin(axis=-1)),
    )
    return low, high, terms


def _named(names: tuple[str, ...], which: np.ndarray, limit: float) -> np.ndarray:
    return np.array([*names, f"{limit:g}"], dtype=object)[which]


def _subgroup(count: int, mask: Any, weights: Any) -> np.ndarray:
    share = np.ones(count) if weights is None else np.asarray(weights, float)
    if share.shape != (count,):
        raise UserError(f"weights must be {count} numbers, one per row.")
    if mask is not None:
        chosen = np.asarray(mask)
        if chosen.shape != (count,) or chosen.dtype != bool:
            raise UserError(f"mask must be {count} booleans, one per row.")
        share = share * chosen
    if share.shape != (count,) or not np.all(share >= 0) or not share.sum() > 0:
        raise UserError(
            f"the subgroup must be {count} weights, not negative and not all 0."
        )
    return share
