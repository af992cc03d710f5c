"""Answers for some people: encoded once, drawn once, asked as often as one likes."""

import dataclasses
import functools
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_infer as pi
from jaxtyping import Float

from pns_estimate._errors import Setting, UserError, as_user_errors
from pns_estimate.answers.question import (
    Decision,
    EstimandLike,
    Side,
    Target,
    check_alpha,
    check_decision,
    find_estimand,
)
from pns_estimate.answers.subgroups import (
    Columns,
    choose_columns,
    find_subgroups,
    warn_of_columns,
    weigh_rows,
)
from pns_estimate.methods import Sampler, disagreement

ENDS = ("lower", "upper", "bound_lower", "bound_upper")
"""Columns of every table of intervals: the interval, and the estimated bounds."""
BLOCK = 512  # units whose draws are made at a time
_MEMORY = 2**30  # bytes of draws kept in memory; the rest goes to a temporary file


class Draws:
    """Makes each block of draws when it is first asked for, and keeps it.

    Blocks share a key, so draw number b is one law for all units. Beyond `memory` bytes
    blocks are kept in a temporary file, which goes with the object.
    """

    def __init__(
        self,
        sampler: Sampler,
        key: jax.Array,
        z: Float[np.ndarray, "n d"],
        num_draws: int,
        memory: int = _MEMORY,
    ):
        """Draws nothing yet."""
        self._make = functools.partial(sampler.draws, key, num_draws=num_draws)
        self._z = z
        self._room = memory
        self._kept: list[Callable[[], pb.Atoms]] = []
        self._file: IO[bytes] | None = None

    def __iter__(self) -> Iterator[pb.Atoms]:
        """Yields Atoms [num_draws, at most BLOCK units]."""
        for number, start in enumerate(range(0, len(self._z), BLOCK)):
            if number == len(self._kept):
                block = self._make(self._z[start : start + BLOCK])
                self._kept.append(self._keep(block))
            yield self._kept[number]()

    def _keep(self, block: pb.Atoms) -> Callable[[], pb.Atoms]:
        self._room -= sum(part.nbytes for part in block)
        if self._room >= 0:
            return lambda: block
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115, closed with us
            weakref.finalize(self, self._file.close)
        return functools.partial(pb.Atoms, *map(self._write, block))

    def _write(self, part: np.ndarray) -> np.ndarray:
        """Moves an array to the file; returns a view of it there."""
        assert self._file is not None
        offset = self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(part).data)
        self._file.flush()
        return np.memmap(self._file, part.dtype, "r", offset, part.shape)


@contextmanager
def _argument_errors() -> Iterator[None]:
    """Says which argument is wrong; of too few draws, what to do about them."""
    with as_user_errors():
        try:
            yield
        except pi.TooFewDrawsError as error:
            raise UserError(
                f"{error.num_draws} draws are too few for {error.purpose}, which needs "
                f"{error.needed} or, to keep its noise small, ten times as many; fit with "
                "a larger ",
                Setting("num_draws"),
                ", or take a larger ",
                Setting("alpha"),
                ".",
            ) from error


def interval_table(steps: Mapping[str, Any], name: str) -> pd.DataFrame:
    """Makes a table of intervals: the four ends of each step."""
    ends = {end: [float(getattr(s, end)) for s in steps.values()] for end in ENDS}
    return pd.DataFrame(ends, index=pd.Index(steps, name=name))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """People with their covariates, and everything that can be asked about them.

    Draws are made once, when a question first needs them, and once for all people who share
    their covariates: nothing else tells their answers apart. Every table of answers has the
    index of the rows.

    Attributes:
      people: the rows as they were given, covariates alone.
      z: [m, d] encoded covariates, each vector once.
      place: [n] of each person's covariates in z.
      is_outside: [n] whether a covariate lies outside what one of the tables holds.
      sampler: estimates and draws atoms.
      draws: for each row of z, block by block.
      sample_size: number of units behind the estimates.
    """

    people: pd.DataFrame
    z: np.ndarray
    place: np.ndarray
    is_outside: np.ndarray
    sampler: Sampler
    draws: Iterable[pb.Atoms]
    sample_size: float

    @_argument_errors()
    def intervals(
        self,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        target: Target = "set",
    ) -> pd.DataFrame:
        """Computes an interval for each person.

        Args:
          alpha: the probability of missing.
          estimand: a name from `pns_bounds.ESTIMANDS`, such as 'pns', 'harm', 'pn' or
            'ps'; or a `pns_bounds.Estimand`.
          target: 'set': an interval covers the identified set, all values the data
            cannot exclude; 'parameter': the true value alone, and is narrower.

        Returns:
          A DataFrame with the index of the rows:
            lower, upper: the interval.
            bound_lower, bound_upper: half-median-unbiased estimates of the sharp bounds.
            binding_lower, binding_upper: the term that attains each end.
            is_empty: whether the ends cross, so that no value fits.
            is_outside: whether a covariate lies outside what one of the tables holds: a
              number beyond its range, a category that it lacks, or a missing value if it
              misses none.
            disagreement: by how much the learners of a stack differ about the person's
              probabilities, 0.05 for five points; see `pns_models.Stack`. NaN if one
              learner has all the weight. Methods without learners lack the column.
        """
        bounded = find_estimand(estimand)
        check_alpha(alpha)
        options: dict[str, Any] = {"estimand": bounded, "target": target}
        if self.sampler.is_posterior:
            result = pi.credible_intervals(self.draws, alpha, **options)
        elif self.sampler.has_draws:
            options["sample_size"] = self.sample_size
            result = pi.intervals_from_draws(self.draws, alpha, **options)
        else:
            result = plug_in(bounded, self.sampler.atoms(self.z))
        lower = np.array([*bounded.lower_labels, f"{bounded.floor:g}"], object)
        upper = np.array([*bounded.upper_labels, f"{bounded.ceiling:g}"], object)
        columns: dict[str, Any] = {end: getattr(result, end) for end in ENDS}
        columns["binding_lower"] = lower[result.binding_lower]
        columns["binding_upper"] = upper[result.binding_upper]
        columns["is_empty"] = result.is_empty
        table = self._table(columns).assign(is_outside=self.is_outside)
        if self.disagreement is None:
            return table
        return table.assign(disagreement=self.disagreement)

    @functools.cached_property
    def disagreement(self) -> Float[np.ndarray, " n"] | None:
        """By how much learners differ about each person; None without learners."""
        found = disagreement(self.sampler, self.z)
        return None if found is None else found[self.place]

    def band(
        self, alpha: float = 0.05, estimand: EstimandLike = "pns", side: Side = "both"
    ) -> pd.DataFrame:
        """Computes a band that holds for all rows at once: lower, upper and is_empty."""
        band = self._band(alpha, estimand, side)
        columns = {"lower": band.lower, "upper": band.upper, "is_empty": band.is_empty}
        return self._table(columns)

    def threshold_set(
        self, threshold: float, alpha: float = 0.05, estimand: EstimandLike = "pns"
    ) -> pd.Series:
        """Marks who surely exceeds a threshold; all are right, with chance 1 - alpha."""
        band = self._band(alpha, estimand, "lower")
        above = band.threshold(threshold).above[self.place]
        name = f"{find_estimand(estimand).name} > {threshold:g}"
        return pd.Series(above, index=self.people.index, name=name)

    def average(
        self,
        mask: Any = None,
        weights: Any = None,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
    ) -> pi.AverageInterval:
        """Computes an interval for the mean over these people, or some of them."""
        count = len(self.place)
        share = weigh_rows(
            count, mask, weights, lambda kind: f"{count} {kind}, one per row."
        )
        groups = self.average_groups(share[None], alpha, estimand)
        return pi.AverageInterval(*(field[0].item() for field in groups))

    @_argument_errors()
    def average_groups(
        self, weights: Any, alpha: float = 0.05, estimand: EstimandLike = "pns"
    ) -> pi.AverageInterval:
        """Computes `average` for several groups of the same people at once.

        Weights are [num_groups, number of rows], and every field of what is returned
        [num_groups]; each interval holds by itself.
        """
        bounded = find_estimand(estimand)
        check_alpha(alpha)
        weights = _check_groups(weights, len(self.place))
        weights = np.stack([np.bincount(self.place, w, len(self.z)) for w in weights])
        if not self.sampler.has_draws:
            ends = plug_in(bounded, self.sampler.atoms(self.z))
            share = weights / weights.sum(axis=1, keepdims=True)
            low, high = share @ ends.lower, share @ ends.upper
            return pi.AverageInterval(low, high, low, high, low > high)
        return pi.average_interval(
            self.draws,
            alpha,
            sample_size=self.sample_size,
            weights=weights,
            estimand=bounded,
        )

    def choose_columns(self) -> Columns:
        """Chooses the columns that `subgroups` takes if none are named.

        If they would make more than 60 groups, those come first whose groups differ most
        in the middle of the estimated bounds of PNS.
        """
        ends = plug_in(pb.PNS, self.sampler.atoms(self.z))
        score = np.asarray(ends.lower + ends.upper, float)[self.place]
        return choose_columns(self.people, score)

    def subgroups(
        self,
        columns: Sequence[str] | None = None,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
    ) -> pd.DataFrame:
        """Averages subgroups of these people by draws; each interval holds by itself."""
        if columns is None:
            columns, left_out = self.choose_columns()
            warn_of_columns(left_out, stacklevel=3)
        groups = [g for g in find_subgroups(self.people, columns) if g.member.any()]
        weights = np.array([group.member for group in groups], float)
        found = self.average_groups(weights, alpha, estimand)
        return pd.DataFrame(
            {
                "people": weights.sum(axis=1).astype(int),
                **{end: getattr(found, end) for end in ENDS},
            },
            index=pd.Index([group.name for group in groups], name="group"),
        )

    def atoms(self) -> pd.DataFrame:
        """Estimates the six probabilities of each person.

        They are mu0 and mu1 (the chance of the outcome untreated and treated) and p00,
        p01, p10 and p11 (choice x and outcome y).
        """
        atoms = self.sampler.atoms(self.z)
        columns = {f"mu{x}": atoms.mu[:, x] for x in (0, 1)}
        columns |= {f"p{x}{y}": atoms.joint[:, x, y] for x, y in np.ndindex(2, 2)}
        return self._table(columns)

    def _table(self, columns: Mapping[str, Any]) -> pd.DataFrame:
        """Gives each person the row of their covariates."""
        return pd.DataFrame(columns).iloc[self.place].set_index(self.people.index)

    def decide(
        self, decision: Decision | None = None, alpha: float = 0.05
    ) -> pd.DataFrame:
        """Recommends whom to treat.

        A row has the interval of the person's net benefit, a recommendation ('treat',
        'do not', 'undecided'), the criterion's score, and whether it treats.
        """
        decision = decision or Decision()
        table = self.intervals(alpha, check_decision(decision))
        ends = (table["lower"].to_numpy(), table["upper"].to_numpy())
        found = pi.recommend(*ends, decision.criterion, decision.budget)
        return table[[*ENDS, "is_outside"]].assign(
            recommendation=found.label, score=found.score, treat=found.treat
        )

    @_argument_errors()
    def _band(self, alpha: float, estimand: EstimandLike, side: Side) -> pi.Band:
        bounded = find_estimand(estimand)
        check_alpha(alpha)
        if not self.sampler.has_draws:
            raise UserError(
                "a method without draws has no band; fit another method than 'plug_in'."
            )
        return pi.uniform_band(
            self.draws, alpha, estimand=bounded, statistic="one_sided", side=side
        )


def plug_in(estimand: pb.Estimand, atoms: pb.Atoms) -> pi.CorrectedIntervals:
    """Takes the extreme terms of the estimates, uncorrected."""
    lower, upper = estimand.terms(atoms, undefined="limits")
    low = np.maximum(lower.max(axis=-1), estimand.floor)
    high = np.minimum(upper.min(axis=-1), estimand.ceiling)
    return pi.CorrectedIntervals(
        lower=low,
        upper=high,
        bound_lower=low,
        bound_upper=high,
        kappa_lower=np.zeros_like(low),
        kappa_upper=np.zeros_like(high),
        binding_lower=np.where(low <= estimand.floor, -1, lower.argmax(axis=-1)),
        binding_upper=np.where(high >= estimand.ceiling, -1, upper.argmin(axis=-1)),
        is_empty=low > high,
    )


def _check_groups(weights: Any, count: int) -> np.ndarray:
    weights = np.asarray(weights, float)
    if weights.ndim != 2 or weights.shape[1] != count:
        problem = f" must have shape [num_groups, {count}], got {list(weights.shape)}."
        raise UserError(Setting("weights"), problem)
    if not (weights >= 0).all() or not (weights.sum(axis=1) > 0).all():
        raise UserError("the weights of a group must be positive or 0, and not all 0.")
    return weights
