"""What a decision needs to know: gains, cost, budget and a criterion."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_infer as pi

from pns_estimate._errors import as_user_errors
from pns_estimate.answers.prediction import Prediction

Criterion = Literal["maximin", "minimax_regret"]


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


def decide(
    prediction: Prediction, decision: Decision, alpha: float = 0.05
) -> pd.DataFrame:
    """Recommends for each person; see `PnsEstimator.decide`."""
    gain = check_decision(decision)
    table = prediction.intervals(alpha, estimand=gain)
    found = pi.recommend(
        table["lower"].to_numpy(),
        table["upper"].to_numpy(),
        decision.criterion,
        decision.budget,
    )
    kept = table[["lower", "upper", "bound_lower", "bound_upper", "is_outside"]]
    return kept.assign(recommendation=found.label, score=found.score, treat=found.treat)
