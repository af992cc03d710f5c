"""What a report is asked: the estimand, how surely, and how to speak of the outcome."""

import dataclasses

import pns_bounds as pb

from pns_estimate._errors import Setting, UserError
from pns_estimate.answers.prediction import (
    EstimandLike,
    Target,
    check_alpha,
    find_estimand,
)


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

    def estimands(self) -> list[pb.Estimand]:
        """Returns what the page shows, the estimand asked for first."""
        first = find_estimand(self.estimand)
        return [first, *(other for other in (pb.PNS, pb.HARM) if other != first)]

    def check(self) -> None:
        """Raises unless alpha and threshold make sense for the estimand."""
        check_alpha(self.alpha)
        bounded = find_estimand(self.estimand)
        if self.threshold is not None and not (
            bounded.floor <= self.threshold < bounded.ceiling
        ):
            raise UserError(
                Setting("threshold"),
                f" must be at least {bounded.floor:g} and below {bounded.ceiling:g} for "
                f"{bounded.name!r}, got {self.threshold:g}.",
            )
