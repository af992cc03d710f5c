"""Precision-corrected inference for bounds that are maxima and minima of estimates."""

from pns_infer._average import AverageInterval, average_interval
from pns_infer._band import (
    Band,
    HeterogeneityTest,
    ThresholdSet,
    heterogeneity_test,
    threshold_set,
    uniform_band,
)
from pns_infer._bootstrap import (
    TWO_TABLES,
    CellLayout,
    MultiplierBootstrap,
    NotConvergedWarning,
    TwoStage,
    linear_draws,
    per_point_draws,
)
from pns_infer._compatibility import (
    CONSTRAINTS,
    CompatibilityTest,
    compatibility_test,
)
from pns_infer._covariance import frequency_covariance, term_covariance
from pns_infer._estimands import HARM, PN, PNS, PS, Estimand, linear_estimand
from pns_infer._intervals import (
    CorrectedIntervals,
    intervals_from_draws,
    intervals_from_estimates,
)
from pns_infer._metrics import (
    Scores,
    Summary,
    score_intervals,
    summarize_scores,
    summarize_values,
)
from pns_infer._spread import (
    SpreadCalibration,
    calibrate_spread,
    neighbourhoods,
    scale_draws,
)

__all__ = [
    "CONSTRAINTS",
    "HARM",
    "PN",
    "PNS",
    "PS",
    "TWO_TABLES",
    "AverageInterval",
    "Band",
    "CellLayout",
    "CompatibilityTest",
    "CorrectedIntervals",
    "Estimand",
    "HeterogeneityTest",
    "MultiplierBootstrap",
    "NotConvergedWarning",
    "Scores",
    "SpreadCalibration",
    "Summary",
    "ThresholdSet",
    "TwoStage",
    "average_interval",
    "calibrate_spread",
    "compatibility_test",
    "frequency_covariance",
    "heterogeneity_test",
    "intervals_from_draws",
    "intervals_from_estimates",
    "linear_draws",
    "linear_estimand",
    "neighbourhoods",
    "per_point_draws",
    "scale_draws",
    "score_intervals",
    "summarize_scores",
    "summarize_values",
    "term_covariance",
    "threshold_set",
    "uniform_band",
]
