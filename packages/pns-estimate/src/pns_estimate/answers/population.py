"""The people of the two tables: averages, subgroups and the value of rules, debiased."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float, Int

from pns_estimate._errors import UserError, as_user_errors, require
from pns_estimate.answers.prediction import ENDS, interval_table
from pns_estimate.answers.question import Decision, EstimandLike, Source, find_estimand
from pns_estimate.answers.subgroups import (
    Columns,
    choose_columns,
    find_subgroups,
    warn_of_columns,
    weigh_rows,
)
from pns_estimate.tables.preparation import PreparedTables

TRIAL, MOVED = "trial alone", "trial, reweighted"
COUNTED, BOTH = "frequencies of both", "both, by covariates"
"""Steps of `Population.comparison`; the second only where it differs from the first."""

_LEAST_PEOPLE = 5  # of a subgroup in the log, and in each arm
_LEAST_IN_GROUP = 3 * _LEAST_PEOPLE  # fewer cannot be enough


class SortedPeople(NamedTuple):
    """Averages of people sorted by what networks that did not see them predicted."""

    table: pd.DataFrame  # a row per group, the least predicted benefit first
    gap_lower: float  # of the last group's average PNS minus the first's
    gap_upper: float
    p_value: (
        float  # of the hypothesis that the last group benefits no more than the first
    )
    effect_p_value: float  # of the hypothesis that the effects in both are equal


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Population:
    """Everybody in the tables, with the answer of networks that did not see them.

    No draws are needed here, and no answer inherits the networks' bias. Masks and weights
    are over all rows, the observational ones first; or functions that make them of
    the covariates. They may not depend on treatment or outcome.

    Attributes:
      tables: whom a fit saw.
      atoms: of each distinct row, by networks that did not see it.
    """

    tables: PreparedTables
    atoms: pb.Atoms

    @property
    def rows(self) -> pm.Rows:
        """Distinct rows of all tables, with their folds."""
        return self.tables.rows

    @property
    def people(self) -> pd.DataFrame:
        """Covariates as they were given, the observational ones first.

        Of tables that were streamed, rows that agree are one.
        """
        return self.tables.read.people.frame()

    @functools.cached_property
    def _prepared(self) -> pi.PreparedUnits:
        units, fold = self._make_units(), self.rows.fold
        assert fold is not None
        with as_user_errors():
            return pi.prepare_units(units, fold, self.tables.comparison)

    def prepared(self, source: Source = "both") -> pi.PreparedUnits:
        """Returns units with shifted arms and one target, and what was found."""
        known = "'both', 'observational' or 'experimental'"
        is_known = source in ("both", "observational", "experimental")
        require(is_known, "source", known, source)
        return self._prepared.toward(source)

    def _make_units(self) -> pi.HeldOutUnits:
        rows = self.rows
        chance = np.full(len(rows.z), 0.5)
        chance[rows.is_trial] = self.tables.trial.probability
        units = pi.make_held_out_units(
            self.atoms,
            rows.is_trial,
            rows.treatment,
            rows.outcome,
            assignment=chance,
            weights=rows.weights,
            groups=rows.group,
        )
        return units if rows.group is not None else units._replace(copies=rows.copies)

    @functools.cached_property
    def _first(self) -> Int[np.ndarray, " m"]:
        """The first of the given rows that each distinct row stands for."""
        place = self.tables.read.place
        assert place is not None
        return np.unique(place, return_index=True)[1]

    def find_source(self, z: Float[np.ndarray, "n d"]) -> Source | None:
        """Says whose people rows with these covariates are, row by row; None if others'."""
        rows, place = self.rows, self.tables.read.place
        if place is None:
            return None
        start = 0
        for source in pm.SOURCES:
            own = place[start : start + self.tables.read.num_rows[source.name]]
            if len(own) == len(z) and np.array_equal(rows.z[own], z):
                return "experimental" if source.role == "trial" else "observational"
            start += len(own)
        return None

    def _units_and_members(
        self, source: Source, members: Sequence[np.ndarray]
    ) -> tuple[pi.HeldOutUnits, list[np.ndarray]]:
        """Returns units, and weights of given rows as weights of the units."""
        units, place = self.prepared(source).units, self.tables.read.place
        if place is None:
            return units, list(members)
        first = self._first
        shrunk = [np.asarray(member)[first] for member in members]
        if all(
            np.array_equal(s[place], m) for s, m in zip(shrunk, members, strict=True)
        ):
            return units, shrunk
        # Rows that agree differ in what was asked for: each becomes a unit of its own.
        each = jax.tree.map(lambda part: part[place], units)
        each = each._replace(weights=self.tables.read.weights)
        if self.rows.group is None:
            copies, cluster = self.tables.read.copies, np.arange(len(place))
            each = each._replace(copies=copies, cluster=cluster)
        return each, list(members)

    @as_user_errors()
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
        return pi.debiased_average(
            units, alpha, estimand=bounded, member=member, source=source
        )

    @as_user_errors()
    def comparison(
        self,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        source: Source = "both",
    ) -> pd.DataFrame:
        """Shows what each step adds: the trial alone, both tables, covariates.

        The trial alone is about the trial's own people. Where the covariates of the tables
        have different laws, the trial reweighted to the people of the source is a step of
        its own; it and the later steps are about those people. Each step has lower,
        upper, bound_lower and bound_upper.
        """
        bounded = find_estimand(estimand)
        units = self.prepared(source).units
        own = units._replace(ratio=None)
        wanted: list[tuple[str, pi.HeldOutUnits, Source, bool]] = [
            (TRIAL, own, "experimental", True),
            (COUNTED, units, source, False),
        ]
        if units.ratio is not None and source != "experimental":
            wanted.insert(1, (MOVED, units, source, True))
        steps: dict[str, Any] = {
            name: pi.frequency_interval(
                some, alpha, estimand=bounded, source=whose, trial_alone=alone
            )
            for name, some, whose, alone in wanted
        }
        steps[BOTH] = self.average(None, None, alpha, bounded, source)
        return interval_table(steps, bounded.name)

    @as_user_errors()
    def difference(self, alpha: float = 0.05) -> pi.Difference:
        """Computes the trial's own difference in means."""
        return pi.trial_difference(self.prepared().units, alpha)

    def choose_columns(self) -> Columns:
        """Chooses the columns that `subgroups` takes if none are named.

        If they would make more than 60 groups, those come first whose groups differ most
        in the held-out prediction of PNS: the middle of a row's bounds.
        """
        lower, upper = pb.PNS.bounds(
            pb.project_to_compatible(self.atoms), incompatible="allow"
        )
        score, read = lower + upper, self.tables.read
        score = score if read.place is None else score[read.place]
        return choose_columns(read.people, score, read.copies, _LEAST_IN_GROUP)

    @as_user_errors()
    def subgroups(
        self,
        columns: Sequence[str] | None = None,
        alpha: float = 0.05,
        estimand: EstimandLike = "pns",
        source: Source = "both",
    ) -> pd.DataFrame:
        """Averages subgroups of the tables' people; all intervals hold at once.

        Categories of a column make a group each, those with very few people one together;
        numbers are cut at quartiles. Without columns, those of `choose_columns` are taken,
        and a warning names those that are left out. A group has its number of people and
        the columns of `comparison`. Groups that lack people of the log or of an arm have
        no intervals, and come last.
        """
        bounded = find_estimand(estimand)
        copies, people = self.tables.read.copies, self.tables.read.people
        if columns is None:
            columns, left_out = self.choose_columns()
            warn_of_columns(left_out, stacklevel=4)
        groups = find_subgroups(people, columns, copies, _LEAST_IN_GROUP)
        units, members = self._units_and_members(source, [g.member for g in groups])
        is_usable = np.array([_is_usable(units, member) for member in members])
        if not is_usable.any():
            raise UserError(
                "no subgroup has people of the log and of both arms of the trial; name "
                "other columns."
            )
        found = pi.group_averages(
            units, np.array(members)[is_usable], alpha, estimand=bounded, source=source
        )
        ends = np.full((len(groups), len(ENDS)), np.nan)
        ends[is_usable] = np.stack([getattr(found, end) for end in ENDS], axis=1)
        table = pd.DataFrame(
            ends, pd.Index([g.name for g in groups], name="group"), list(ENDS)
        )
        people = [round(float(copies[group.member].sum())) for group in groups]
        table.insert(0, "people", people)
        return table.iloc[np.argsort(~is_usable, kind="stable")]

    @as_user_errors()
    def sorted_groups(
        self, num_groups: int = 5, alpha: float = 0.05, source: Source = "both"
    ) -> SortedPeople:
        """Averages people sorted by predicted benefit, on people networks did not see.

        All intervals hold at once with probability 1 - alpha.
        """
        units = self.prepared(source).units
        found = pi.sorted_groups(
            units, self.rows.fold, alpha, num_groups=num_groups, source=source
        )
        table = pd.DataFrame(
            {
                f"{name}_{end}": getattr(getattr(found, name), end)
                for name in ("benefit", "harm")
                for end in ENDS
            }
            | {"effect": found.effect, "effect_error": found.effect_error},
            index=pd.RangeIndex(1, num_groups + 1, name="group"),
        )
        return SortedPeople(
            table, found.gap_lower, found.gap_upper, found.p_value, found.effect_p_value
        )

    @as_user_errors()
    def value(
        self,
        decision: Decision | None = None,
        alpha: float = 0.05,
        source: Source = "both",
    ) -> pd.DataFrame:
        """Estimates what a rule gains per person over treating nobody.

        The rule is the criterion applied to each person's held-out bounds. It, 'treat
        all' and 'treat none' have the columns of `comparison` and share_treated.
        """
        gains, cost, budget, criterion = decision or Decision()
        units = self.prepared(source).units
        gain = pi.net_benefit(gains, cost)
        rule = pi.held_out_rule(units, gain, criterion, budget, self.rows.fold, source)
        rules = {
            "rule": rule,
            "treat all": np.ones_like(rule),
            "treat none": np.zeros_like(rule),
        }
        return pd.DataFrame(
            [pi.policy_value(units, gain, r, alpha, source) for r in rules.values()],
            index=pd.Index(rules, name="policy"),
        )

    @as_user_errors()
    def value_curve(
        self,
        decision: Decision | None = None,
        alpha: float = 0.05,
        source: Source = "both",
    ) -> pd.DataFrame:
        """Estimates the value of treating the best share, with a simultaneous band.

        Each share has the columns of `comparison`.
        """
        gains, cost, _, criterion = decision or Decision()
        curve = pi.value_curve(
            self.prepared(source).units,
            pi.net_benefit(gains, cost),
            criterion=criterion,
            fold=self.rows.fold,
            alpha=alpha,
            source=source,
        )
        return pd.DataFrame(curve._asdict()).set_index("share")

    def _member(self, mask: Any, weights: Any) -> np.ndarray | None:
        """Returns the weights of a subgroup over all rows, or None for everybody."""
        if mask is None and weights is None:
            return None
        count, is_streamed = (
            len(self.tables.read.people),
            self.tables.read.place is None,
        )

        def explain(kind: str) -> str:
            if is_streamed:
                return (
                    f"a function that makes {kind} of the covariates: of tables that were "
                    "streamed, rows that agree are one."
                )
            return (
                f"{count} {kind}, one for each row of both tables, the observational ones "
                "first; or a function that makes them of the covariates."
            )

        return weigh_rows(
            count,
            mask(self.people) if callable(mask) else mask,
            weights(self.people) if callable(weights) else weights,
            explain,
        )


def _is_usable(units: pi.HeldOutUnits, member: np.ndarray) -> bool:
    """Whether a group has people of the log and of both arms."""
    parts = [~units.is_experimental]
    parts += [units.is_experimental & (units.x == arm) for arm in (0, 1)]
    return all(np.sum(units.copies[member & part]) >= _LEAST_PEOPLE for part in parts)
