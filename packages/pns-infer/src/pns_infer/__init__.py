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
from pns_infer._calibration import (
    DrawCalibration,
    calibrate_draws,
    choose_calibration_rows,
    neighborhoods,
    scale_draws,
)
from pns_infer._compatibility import CompatibilityTest, compatibility_test
from pns_infer._covariance import frequency_covariance, term_covariance
from pns_infer._critical import TooFewDrawsError
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

__all__ = [
    "TWO_TABLES",
    "AverageInterval",
    "Band",
    "CellLayout",
    "CompatibilityTest",
    "CorrectedIntervals",
    "DrawCalibration",
    "HeterogeneityTest",
    "MultiplierBootstrap",
    "NotConvergedWarning",
    "Scores",
    "Summary",
    "ThresholdSet",
    "TooFewDrawsError",
    "TwoStage",
    "average_interval",
    "calibrate_draws",
    "choose_calibration_rows",
    "compatibility_test",
    "frequency_covariance",
    "heterogeneity_test",
    "intervals_from_draws",
    "intervals_from_estimates",
    "linear_draws",
    "neighborhoods",
    "per_point_draws",
    "scale_draws",
    "score_intervals",
    "summarize_scores",
    "summarize_values",
    "term_covariance",
    "threshold_set",
    "uniform_band",
]
