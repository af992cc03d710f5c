"""Who benefits from a treatment: intervals for every person, from two tables."""

from typing import TYPE_CHECKING

from pns_estimate._lazy import lazy_names

if TYPE_CHECKING:
    from pns_estimate._calibration import calibrate_sampler
    from pns_estimate._compilation_cache import use_compilation_cache
    from pns_estimate._decisions import Decision
    from pns_estimate._errors import NotFittedError, UserError
    from pns_estimate._estimator import PnsEstimator
    from pns_estimate._held_out_rows import HeldOutRows
    from pns_estimate._population import Population, SortedPeople
    from pns_estimate._prediction import Prediction
    from pns_estimate._question import Question
    from pns_estimate._report import write_report
    from pns_estimate._summary import FitSummary
    from pns_estimate._table_checks import TableWarning
    from pns_estimate.methods import (
        METHODS,
        Method,
        MethodFit,
        Sampler,
        ScaledSampler,
        get_method,
        register_method,
    )
    from pns_estimate.methods.bootstrap import make_bootstrap
    from pns_estimate.methods.crossfit import CrossFitRecipe
    from pns_estimate.methods.network import NetworkRecipe
else:  # the same names, each imported when it is first asked for
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_calibration": ["calibrate_sampler"],
            "_compilation_cache": ["use_compilation_cache"],
            "_decisions": ["Decision"],
            "_errors": ["NotFittedError", "UserError"],
            "_estimator": ["PnsEstimator"],
            "_held_out_rows": ["HeldOutRows"],
            "_population": ["Population", "SortedPeople"],
            "_prediction": ["Prediction"],
            "_question": ["Question"],
            "_report": ["write_report"],
            "_summary": ["FitSummary"],
            "_table_checks": ["TableWarning"],
            "methods": [
                "METHODS",
                "Method",
                "MethodFit",
                "Sampler",
                "ScaledSampler",
                "get_method",
                "register_method",
            ],
            "methods.bootstrap": ["make_bootstrap"],
            "methods.crossfit": ["CrossFitRecipe"],
            "methods.network": ["NetworkRecipe"],
        },
    )

__all__ = [
    "METHODS",
    "CrossFitRecipe",
    "Decision",
    "FitSummary",
    "HeldOutRows",
    "Method",
    "MethodFit",
    "NetworkRecipe",
    "NotFittedError",
    "PnsEstimator",
    "Population",
    "Prediction",
    "Question",
    "Sampler",
    "ScaledSampler",
    "SortedPeople",
    "TableWarning",
    "UserError",
    "calibrate_sampler",
    "get_method",
    "make_bootstrap",
    "register_method",
    "use_compilation_cache",
    "write_report",
]
