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
    BootstrapResult,
    NotConvergedWarning,
    SolveStatus,
    solve_bootstrap,
)
from pns_infer._bootstrap_draws import bootstrap_draws, linear_draws
from pns_infer._bootstrap_problem import (
    TWO_TABLES,
    BootstrapProblem,
    CellLayout,
    SolveConfig,
    TwoStage,
)
from pns_infer._calibration import (
    DrawCalibration,
    calibrate_draws,
    choose_calibration_rows,
    combine_members,
    neighborhoods,
    scale_draws,
)
from pns_infer._compatibility import CompatibilityTest, compatibility_test
from pns_infer._covariance import frequency_covariance, term_covariance
from pns_infer._credible import credible_intervals
from pns_infer._critical import TooFewDrawsError
from pns_infer._intervals import (
    CorrectedIntervals,
    intervals_from_draws,
    intervals_from_estimates,
)
from pns_infer._jackknife import jackknife_scale
from pns_infer._metrics import (
    Scores,
    Summary,
    score_intervals,
    summarize_scores,
    summarize_values,
)
from pns_infer._per_point import per_point_draws
from pns_infer._residual import (
    ResidualProfile,
    ResidualSettings,
    draw_residual,
    profile_residual,
    residual_mean,
)

__all__ = [
    "TWO_TABLES",
    "AverageInterval",
    "Band",
    "BootstrapProblem",
    "BootstrapResult",
    "CellLayout",
    "CompatibilityTest",
    "CorrectedIntervals",
    "DrawCalibration",
    "HeterogeneityTest",
    "NotConvergedWarning",
    "ResidualProfile",
    "ResidualSettings",
    "Scores",
    "SolveConfig",
    "SolveStatus",
    "Summary",
    "ThresholdSet",
    "TooFewDrawsError",
    "TwoStage",
    "average_interval",
    "bootstrap_draws",
    "calibrate_draws",
    "choose_calibration_rows",
    "combine_members",
    "compatibility_test",
    "credible_intervals",
    "draw_residual",
    "frequency_covariance",
    "heterogeneity_test",
    "intervals_from_draws",
    "intervals_from_estimates",
    "jackknife_scale",
    "linear_draws",
    "neighborhoods",
    "per_point_draws",
    "profile_residual",
    "residual_mean",
    "scale_draws",
    "score_intervals",
    "solve_bootstrap",
    "summarize_scores",
    "summarize_values",
    "term_covariance",
    "threshold_set",
    "uniform_band",
]
