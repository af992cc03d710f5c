"""Who benefits from a treatment: intervals for every person, from two tables."""

from typing import TYPE_CHECKING

from pns_estimate._lazy import lazy_names

if TYPE_CHECKING:
    from pns_estimate._compilation_cache import use_compilation_cache
    from pns_estimate._errors import NotFittedError, UserError
    from pns_estimate._estimator import PnsEstimator
    from pns_estimate._fit import calibrate_sampler
    from pns_estimate.answers.answers import Answers
    from pns_estimate.answers.population import Population
    from pns_estimate.answers.prediction import Prediction
    from pns_estimate.answers.question import Decision, Question
    from pns_estimate.methods import (
        METHODS,
        SAMPLERS,
        Method,
        MethodFit,
        Sampler,
        register_method,
    )
    from pns_estimate.methods.crossfit import CrossFitRecipe
    from pns_estimate.methods.network import NetworkRecipe, make_bootstrap
    from pns_estimate.tables.checks import TableWarning
else:  # the same names, each imported when it is first asked for
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = [
    "METHODS",
    "SAMPLERS",
    "Answers",
    "CrossFitRecipe",
    "Decision",
    "Method",
    "MethodFit",
    "NetworkRecipe",
    "NotFittedError",
    "PnsEstimator",
    "Population",
    "Prediction",
    "Question",
    "Sampler",
    "TableWarning",
    "UserError",
    "calibrate_sampler",
    "make_bootstrap",
    "register_method",
    "use_compilation_cache",
]
