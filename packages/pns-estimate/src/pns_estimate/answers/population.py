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
import pns_models as pm
from jaxtyping import Float, Int

from pns_estimate._errors import Setting, UserError, as_user_errors
from pns_estimate.answers.decisions import Decision
from pns_estimate.answers.prediction import EstimandLike, find_estimand
from pns_estimate.answers.subgroups import Subgroup, find_subgroups
from pns_estimate.methods import MethodFit
from pns_estimate.tables.preparation import PreparedTables

Source = Literal["both", "observational", "experimental"]
_Result = TypeVar("_Result")


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
        return _told(lambda: pi.prepare_units(units, fold, self.tables.comparison))

    def prepared(self, source: Source = "both") -> pi.PreparedUnits:
        """Returns units with shifted arms and one target, and what was found."""
        if source not in ("both", "observational", "experimental"):
            raise UserError(
                Setting("source"),
                f" must be 'both', 'observational' or 'experimental', got {source!r}.",
            )
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
        copies = self.tables.read.copies
        groups = find_subgroups(self.tables.read.people, columns, copies)
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
        table = _group_table(usable, copies, found)
        absent = [group for group, g in zip(groups, is_usable, strict=True) if not g]
        if absent:
            table = pd.concat([table, _group_table(absent, copies, None)])
        return table

    def sorted_groups(
        self, num_groups: int = 5, alpha: float = 0.05, source: Source = "both"
    ) -> SortedPeople:
        """Averages people sorted by predicted benefit."""
        units = self.prepared(source).units
        found = _told(
            lambda: pi.sorted_groups(
                units, self.rows.fold, alpha, num_groups=num_groups, source=source
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
            rule = pi.held_out_rule(
                units, gain, criterion, budget, self.rows.fold, source
            )
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
                fold=self.rows.fold,
                alpha=alpha,
                source=source,
            )
        )
        return pd.DataFrame(curve._asdict()).set_index("share")

    def _member(self, mask: Any, weights: Any) -> np.ndarray | None:
        """Returns the weights of a subgroup over all rows, or None for everybody."""
        if mask is None and weights is None:
            return None
        count = len(self.tables.read.people)
        member = np.ones(count)
        for name, given in (("mask", mask), ("weights", weights)):
            if given is None:
                continue
            values = np.asarray(given(self.people) if callable(given) else given)
            if values.shape != (count,) or (name == "mask" and values.dtype != bool):
                kind = "booleans" if name == "mask" else "numbers"
                if self.tables.read.place is None:
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


def make_population(tables: PreparedTables, learned: MethodFit) -> Population | None:
    """Joins the tables and held-out answers; None if not every row was held out."""
    place, atoms = learned.held_out_place, learned.held_out_atoms
    if place is None or atoms is None:
        return None
    return Population(tables, pb.Atoms(*(np.asarray(part)[place] for part in atoms)))


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
    copies: Float[np.ndarray, " n"],
    found: pi.GroupAverages | None,
) -> pd.DataFrame:
    columns = ("lower", "upper", "bound_lower", "bound_upper")
    values = {
        name: np.full(len(groups), np.nan) if found is None else getattr(found, name)
        for name in columns
    }
    people = [round(float(copies[group.member].sum())) for group in groups]
    return pd.DataFrame(
        {"people": people, **values},
        index=pd.Index([group.name for group in groups], name="group"),
    )
