"""The people of the two tables: averages, subgroups and the value of rules, debiased."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_infer as pi
from jaxtyping import Int

from pns_estimate._errors import UserError, as_user_errors
from pns_estimate.answers.decisions import Decision
from pns_estimate.answers.prediction import EstimandLike, find_estimand
from pns_estimate.answers.subgroups import Subgroup, find_subgroups
from pns_estimate.fit.held_out_rows import HeldOutRows
from pns_estimate.tables.columns import COPIES, copies_of
from pns_estimate.tables.training_data import TrainingData, WeightsAre

Source = Literal["both", "observational", "experimental"]
_Result = TypeVar("_Result")


class _Kinds(NamedTuple):
    """Rows that no average tells apart, as one.

    Attributes:
      first: a row of each kind.
      kind: of each row.
      size: rows of each kind.
    """

    first: Int[np.ndarray, " k"]
    kind: Int[np.ndarray, " n"]
    size: Int[np.ndarray, " k"]

    def shrink(self, values: np.ndarray) -> np.ndarray | None:
        """Returns what each kind has of row by row values; None if its rows differ."""
        found = values[self.first]
        return found if np.array_equal(found[self.kind], values) else None


class SortedPeople(NamedTuple):
    """Averages of people sorted by what networks that did not see them predicted.

    Attributes:
      table: a row per group, the least predicted benefit first.
      gap_lower: lower end of the interval of the last group's average PNS minus the
        first's.
      gap_upper: its upper end.
      p_value: of the hypothesis that the last group benefits no more than the first.
      effect_p_value: of the hypothesis that the treatment's effects in both are equal.
    """

    table: pd.DataFrame
    gap_lower: float
    gap_upper: float
    p_value: float
    effect_p_value: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Population:
    """Everybody in the tables, with the answer of networks that did not see them.

    No draws are needed here, and no answer inherits the networks' bias. Masks and weights
    are over all rows, the observational ones first; or functions that make them of
    the covariates. They may not depend on treatment or outcome.

    Attributes:
      people: covariates as they were given, the observational ones first.
      z: encoded covariates.
      rows: with held-out answers.
      assignment: of the experimental rows.
      weights_are: what weights mean; None if there are none.
      copies: rows of the tables that each row stands for, if the tables were streamed.
    """

    people: pd.DataFrame
    z: np.ndarray
    rows: HeldOutRows
    assignment: pi.AssignmentCheck
    weights_are: WeightsAre | None = None
    copies: Int[np.ndarray, " n"] | None = None

    @functools.cached_property
    def _prepared(self) -> pi.PreparedUnits:
        units, z = self._make_units(), self.z
        if self._kinds is not None:
            z = z[self._kinds.first]
        return _told(lambda: pi.prepare_units(units, z, self._fold))

    @functools.cached_property
    def _kinds(self) -> _Kinds | None:
        """Finds rows of the same kind; None if it would not halve their number.

        They share source, encoded covariates, fold, treatment and outcome. Weighted or
        grouped rows, and those of strata with their own probabilities, are left alone.
        """
        rows, chance = self.rows, self.assignment.probability
        is_plain = self.weights_are is None and rows.group is None
        if not is_plain or self.copies is not None or np.ptp(chance) > 0:
            return None
        key = 8 * rows.cell + 4 * rows.source + 2 * rows.x + rows.y
        first, kind, size = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )[1:]
        return _Kinds(first, kind, size) if 2 * len(first) <= len(key) else None

    @functools.cached_property
    def _fold(self) -> Int[np.ndarray, " units"]:
        """Returns the fold of each unit of `prepared`."""
        return (
            self.rows.fold if self._kinds is None else self.rows.fold[self._kinds.first]
        )

    def prepared(self, source: Source = "both") -> pi.PreparedUnits:
        """Returns units with shifted arms and one target, and what was found.

        A unit is a row, or a kind of rows if that halves their number.
        """
        if source not in ("both", "observational", "experimental"):
            raise UserError(
                "source must be 'both', 'observational' or 'experimental', got "
                f"{source!r}."
            )
        return self._prepared.toward(source)

    def _make_units(self) -> pi.HeldOutUnits:
        is_experimental = self.rows.source == 1
        chance = np.full(len(is_experimental), 0.5)
        chance[is_experimental] = self.assignment.probability
        weights, weights_are = self.rows.weights, self.weights_are or "sampling"
        some = slice(None)
        if self._kinds is not None:
            some, weights, weights_are = (
                self._kinds.first,
                self._kinds.size,
                "frequency",
            )
        return pi.make_held_out_units(
            pb.Atoms(*(part[some] for part in self.rows.atoms)),
            is_experimental[some],
            self.rows.x[some],
            self.rows.y[some],
            assignment=chance[some],
            weights=weights,
            groups=self.rows.group,
            weights_are=weights_are,
        )

    def _units_and_members(
        self, source: Source, members: Sequence[np.ndarray]
    ) -> tuple[pi.HeldOutUnits, list[np.ndarray]]:
        """Returns units, and weights by row as weights of the units."""
        units, kinds = self.prepared(source).units, self._kinds
        if kinds is None:
            return units, list(members)
        small = [m for m in map(kinds.shrink, members) if m is not None]
        if len(small) == len(members):
            return units, small
        # Rows of a kind differ in what was asked for: each becomes a unit of its own.
        of_rows = jax.tree.map(lambda part: part[kinds.kind], units)
        ones = np.ones(of_rows.num_rows)
        each = np.arange(of_rows.num_rows)
        return of_rows._replace(weights=ones, copies=ones, cluster=each), list(members)

    def average(
        self,
        mask: Any = None,
        weights: Any = None,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        source: Source = "both",
    ) -> pi.DebiasedAverage:
        """Computes an interval for the average; see `PnsEstimator.average`."""
        bounded = find_estimand(estimand)
        member = self._member(mask, weights)
        chosen = [] if member is None else [member]
        units, chosen = self._units_and_members(source, chosen)
        member = chosen[0] if chosen else None
        return _told(
            lambda: pi.debiased_average(
                units, alpha, estimand=bounded, member=member, source=source
            )
        )

    def comparison(
        self,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        source: Source = "both",
    ) -> pd.DataFrame:
        """Puts the average beside what the trial and plain counting give."""
        bounded = find_estimand(estimand)
        units = self.prepared(source).units
        table = {}
        for name, alone in (("trial alone", True), ("frequencies of both", False)):
            table[name] = _told(
                lambda alone=alone: pi.frequency_interval(
                    units, alpha, estimand=bounded, source=source, trial_alone=alone
                )
            )
        table["both, by covariates"] = self.average(None, None, alpha, bounded, source)
        columns = ("lower", "upper", "bound_lower", "bound_upper")
        return pd.DataFrame(
            {c: [float(getattr(row, c)) for row in table.values()] for c in columns},
            index=pd.Index(table, name=bounded.name),
        )

    def difference(self, alpha: float = 0.05) -> pi.Difference:
        """Computes the trial's own difference in means."""
        return _told(lambda: pi.trial_difference(self.prepared().units, alpha))

    def subgroups(
        self,
        columns: Sequence[str] | None = None,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        source: Source = "both",
    ) -> pd.DataFrame:
        """Averages subgroups at once; see `PnsEstimator.subgroups`."""
        bounded = find_estimand(estimand)
        groups = find_subgroups(self.people, columns, self.copies)
        units, members = self._units_and_members(source, [g.member for g in groups])
        is_usable = [_is_usable(units, member) for member in members]
        usable = [group for group, good in zip(groups, is_usable, strict=True) if good]
        if not usable:
            raise UserError(
                "no subgroup has people of the log and of both arms of the trial; name "
                "other columns."
            )
        found = _told(
            lambda: pi.group_averages(
                units,
                np.array(members)[is_usable],
                alpha,
                estimand=bounded,
                source=source,
            )
        )
        table = _group_table(usable, self.copies, found)
        absent = [group for group, g in zip(groups, is_usable, strict=True) if not g]
        if absent:
            table = pd.concat([table, _group_table(absent, self.copies, None)])
        return table

    def sorted_groups(
        self, num_groups: int = 5, alpha: float = 0.05, source: Source = "both"
    ) -> SortedPeople:
        """Averages people sorted by predicted benefit."""
        units = self.prepared(source).units
        found = _told(
            lambda: pi.sorted_groups(
                units, self._fold, alpha, num_groups=num_groups, source=source
            )
        )
        table = pd.DataFrame(
            {
                f"{name}_{end}": getattr(getattr(found, name), end)
                for name in ("benefit", "harm")
                for end in ("lower", "upper", "bound_lower", "bound_upper")
            }
            | {"effect": found.effect, "effect_error": found.effect_error},
            index=pd.RangeIndex(1, num_groups + 1, name="group"),
        )
        return SortedPeople(
            table, found.gap_lower, found.gap_upper, found.p_value, found.effect_p_value
        )

    def value(
        self,
        decision: Decision | None = None,
        alpha: float = 0.05,
        source: Source = "both",
    ) -> pd.DataFrame:
        """Values a rule, treating all and treating none; see `PnsEstimator.value`."""
        gains, cost, budget, criterion = decision or Decision()
        units = self.prepared(source).units

        def compute() -> dict[str, pi.PolicyValue]:
            gain = pi.net_benefit(gains, cost)
            rule = pi.held_out_rule(units, gain, criterion, budget, self._fold, source)
            rules = {
                "rule": rule,
                "treat all": np.ones_like(rule),
                "treat none": np.zeros_like(rule),
            }
            return {
                name: pi.policy_value(units, gain, each, alpha, source)
                for name, each in rules.items()
            }

        values = _told(compute)
        return pd.DataFrame(
            [value._asdict() for value in values.values()],
            index=pd.Index(values, name="policy"),
        )

    def value_curve(
        self,
        decision: Decision | None = None,
        alpha: float = 0.05,
        source: Source = "both",
    ) -> pd.DataFrame:
        """Values treating the best share of people, for shares from 0 to 1."""
        gains, cost, _, criterion = decision or Decision()
        units = self.prepared(source).units
        curve = _told(
            lambda: pi.value_curve(
                units,
                pi.net_benefit(gains, cost),
                criterion=criterion,
                fold=self._fold,
                alpha=alpha,
                source=source,
            )
        )
        return pd.DataFrame(curve._asdict()).set_index("share")

    def _member(self, mask: Any, weights: Any) -> np.ndarray | None:
        """Returns the weights of a subgroup over all rows, or None for everybody."""
        if mask is None and weights is None:
            return None
        count = len(self.people)
        member = np.ones(count)
        for name, given in (("mask", mask), ("weights", weights)):
            if given is None:
                continue
            values = np.asarray(given(self.people) if callable(given) else given)
            if values.shape != (count,) or (name == "mask" and values.dtype != bool):
                kind = "booleans" if name == "mask" else "numbers"
                if self.copies is not None:
                    raise UserError(
                        f"{name} must be a function that makes {kind} of the covariates: "
                        "of tables that were streamed, rows that agree are one."
                    )
                raise UserError(
                    f"{name} must be {count} {kind}, one for each row of both tables, the "
                    "observational ones first; or a function that makes them of the "
                    "covariates."
                )
            member = member * values.astype(float)
        return member


def make_population(
    tables: Sequence[pd.DataFrame],
    data: TrainingData,
    rows: HeldOutRows | None,
    assignment: pi.AssignmentCheck,
) -> Population | None:
    """Joins the people of both tables; None if not everybody was held out.

    Args:
      tables: as they were given, the observational one first.
      data: the same, encoded.
      rows: with held-out answers.
      assignment: of the trial.
    """
    if rows is None:
        return None
    columns = data.encoder.columns
    parts = [table[columns].copy() for table in tables]
    for column in columns:
        if len({part[column].dtype for part in parts}) > 1:  # 1, 1.0, True: one value
            for part in parts:
                part[column] = _as_numbers(part[column])
    z = np.concatenate([table.z for table in data.tables.values()])
    people = pd.concat(parts, ignore_index=True)
    copies = None
    if COPIES in tables[0].columns:
        copies = np.concatenate([copies_of(table) for table in tables])
    return Population(people, z, rows, assignment, data.weights_are, copies)


def _as_numbers(values: pd.Series) -> pd.Series:
    try:
        return values.astype(float)
    except (TypeError, ValueError):
        return values.astype(object)


def _told(call: Callable[[], _Result]) -> _Result:
    """Hands on what a function of arrays says about its arguments."""
    with as_user_errors():
        return call()


def _is_usable(units: pi.HeldOutUnits, member: np.ndarray, least: int = 5) -> bool:
    """Whether a group has people of the log and of both arms."""
    parts = [~units.is_experimental]
    parts += [units.is_experimental & (units.x == arm) for arm in (0, 1)]
    return all(np.sum(units.copies[member & part]) >= least for part in parts)


def _group_table(
    groups: Sequence[Subgroup],
    copies: Int[np.ndarray, " n"] | None,
    found: pi.GroupAverages | None,
) -> pd.DataFrame:
    columns = ("lower", "upper", "bound_lower", "bound_upper")
    values = {
        name: np.full(len(groups), np.nan) if found is None else getattr(found, name)
        for name in columns
    }
    people = [
        int(group.member.sum() if copies is None else copies[group.member].sum())
        for group in groups
    ]
    return pd.DataFrame(
        {"people": people, **values},
        index=pd.Index([group.name for group in groups], name="group"),
    )
