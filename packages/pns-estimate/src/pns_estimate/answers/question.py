"""What is asked: the estimand, how surely, whom to treat, how to speak of the outcome."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pns_bounds as pb
import pns_infer as pi

from pns_estimate._errors import Setting, UserError, as_user_errors, require

_LONGEST_LABEL = 60
EstimandLike = str | pb.Estimand
Target = Literal["set", "parameter"]
Side = Literal["both", "lower", "upper"]
Source = Literal["both", "observational", "experimental"]
Criterion = Literal["maximin", "minimax_regret"]


def find_estimand(estimand: EstimandLike) -> pb.Estimand:
    """Returns the estimand of a name; an estimand is returned as it is."""
    if isinstance(estimand, pb.Estimand):
        return estimand
    known = f"one of {list(pb.ESTIMANDS)}, or a pns_bounds.Estimand"
    require(estimand in pb.ESTIMANDS, "estimand", known, estimand)
    return pb.ESTIMANDS[estimand]


def check_alpha(alpha: float) -> None:
    """Raises unless 0 < alpha < 1."""
    if not 0 < alpha < 1:
        problem = f" must lie in (0, 1), got {alpha}; 0.05 asks for 95%."
        raise UserError(Setting("alpha"), problem)


class Decision(NamedTuple):
    """Whom to treat, in the user's own units.

    Attributes:
      gains: of treating one who responds only if treated, either way, neither way, and
        only if untreated. By default an outcome gained is worth 1 and one lost -1.
      cost: of a treatment.
      budget: greatest share of people who can be treated; None if all can.
      criterion: for those whose interval contains 0: 'maximin' does not treat them,
        'minimax_regret' does where less can be lost by it.
    """

    gains: Sequence[Any] = (1.0, 0.0, 0.0, -1.0)
    cost: float = 0.0
    budget: float | None = None
    criterion: Criterion = "maximin"


def check_decision(decision: Decision) -> pb.Estimand:
    """Returns the net benefit; raises unless gains, cost, budget and criterion are usable."""
    nobody = np.zeros(0)
    with as_user_errors():
        gain = pi.net_benefit(decision.gains, decision.cost)
        pi.recommend(nobody, nobody, decision.criterion, decision.budget)
    return gain


@dataclasses.dataclass(frozen=True)
class Question:
    """Settings of a report.

    Attributes:
      estimand: what comes first on the page; PNS and harm are shown beside it.
      target: what a person's interval covers: 'set' or 'parameter'.
      alpha: the probability of missing, for all intervals on the page.
      threshold: count who surely exceeds it; None for the curve alone.
      outcome_is_bad: whether the outcome is unwanted. Decides what the page calls
        benefit and harm; None uses neither word.
      about: who is asked about, in words.
      subgroups: columns to make subgroups of; those that tell most if None.
      treatment_label: what the page calls the treatment, such as 'e-mail'; its absence
        is then 'no e-mail'. None takes the column and its value.
      outcome_label: what it calls the outcome, such as 'a visit'.
      unit: what it calls a person: 'customer', or 'child/children'.
      gains_in: the money, or whatever else, that gains and costs are in.

    Example:
      >>> Question(estimand="harm", alpha=0.1, outcome_is_bad=True).threshold is None
      True
    """

    estimand: EstimandLike = "pns"
    target: Target = "set"
    alpha: float = 0.05
    threshold: float | None = None
    outcome_is_bad: bool | None = None
    about: str = "the rows given"
    subgroups: Sequence[str] | None = None
    treatment_label: str | None = None
    outcome_label: str | None = None
    unit: str | None = None
    gains_in: str | None = None

    def estimands(self) -> list[pb.Estimand]:
        """Returns what the page shows, the estimand asked for first."""
        first = find_estimand(self.estimand)
        return [first, *(other for other in (pb.PNS, pb.HARM) if other != first)]

    def check(self) -> None:
        """Raises unless alpha and threshold make sense for the estimand, and labels."""
        check_alpha(self.alpha)
        for name in ("treatment_label", "outcome_label", "unit", "gains_in"):
            label = getattr(self, name)
            is_short = isinstance(label, str) and label.isprintable()
            is_short = is_short and 0 < len(label.strip()) <= _LONGEST_LABEL
            wanted = f"one line of 1 to {_LONGEST_LABEL} letters"
            require(label is None or is_short, name, wanted, label)
        bounded = find_estimand(self.estimand)
        if self.threshold is not None and not (
            bounded.floor <= self.threshold < bounded.ceiling
        ):
            raise UserError(
                Setting("threshold"),
                f" must be at least {bounded.floor:g} and below {bounded.ceiling:g} for "
                f"{bounded.name!r}, got {self.threshold:g}.",
            )
