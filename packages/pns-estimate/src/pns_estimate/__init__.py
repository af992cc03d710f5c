"""Who benefits from a treatment: intervals for every person, from two tables."""

from pns_estimate._errors import UserError
from pns_estimate._estimator import PnsEstimator
from pns_estimate._methods import judge_spread, make_bootstrap

__all__ = ["PnsEstimator", "UserError", "judge_spread", "make_bootstrap"]
