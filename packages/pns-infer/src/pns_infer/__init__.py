"""Precision-corrected inference for bounds that are maxima and minima of estimates."""

from pns_infer.averages.covariate_tests import (
    AssignmentCheck,
    AssignmentWarning,
    SourceComparison,
    check_assignment,
    compare_sources,
    score_test,
)
from pns_infer.averages.debiased import (
    DebiasedAverage,
    Difference,
    debiased_average,
    frequency_interval,
    trial_difference,
)
from pns_infer.averages.decisions import (
    held_out_rule,
    net_benefit,
    policy_value,
    recommend,
    value_curve,
)
from pns_infer.averages.groups import group_averages, sorted_groups
from pns_infer.averages.held_out import HeldOutUnits, make_held_out_units
from pns_infer.averages.prepare_units import PreparedUnits, prepare_units
from pns_infer.bootstrap.multiplier import (
    BootstrapResult,
    bootstrap_draws,
    solve_bootstrap,
)
from pns_infer.bootstrap.problem import BootstrapProblem, SolveConfig
from pns_infer.calibration.draw_scale import (
    DrawCalibration,
    LinearDraws,
    calibrate_draws,
    choose_calibration_rows,
    scale_draws,
)
from pns_infer.calibration.neighborhoods import neighborhoods
from pns_infer.calibration.residual_draws import draw_residual, residual_mean
from pns_infer.calibration.residual_profile import (
    ResidualProfile,
    ResidualSettings,
    profile_residual,
)
from pns_infer.core.credible import credible_intervals
from pns_infer.core.critical import TooFewDrawsError, draws_needed
from pns_infer.core.frequencies import (
    balanced_counts,
    compatibility_test,
    frequency_covariance,
    intervals_from_estimates,
)
from pns_infer.core.intervals import (
    CorrectedIntervals,
    intervals_from_draws,
    score_intervals,
)
from pns_infer.core.many_points import (
    AverageInterval,
    Band,
    average_interval,
    heterogeneity_test,
    uniform_band,
)

__all__ = [
    "AssignmentCheck",
    "AssignmentWarning",
    "AverageInterval",
    "Band",
    "BootstrapProblem",
    "BootstrapResult",
    "CorrectedIntervals",
    "DebiasedAverage",
    "Difference",
    "DrawCalibration",
    "HeldOutUnits",
    "LinearDraws",
    "PreparedUnits",
    "ResidualProfile",
    "ResidualSettings",
    "SolveConfig",
    "SourceComparison",
    "TooFewDrawsError",
    "average_interval",
    "balanced_counts",
    "bootstrap_draws",
    "calibrate_draws",
    "check_assignment",
    "choose_calibration_rows",
    "compare_sources",
    "compatibility_test",
    "credible_intervals",
    "debiased_average",
    "draw_residual",
    "draws_needed",
    "frequency_covariance",
    "frequency_interval",
    "group_averages",
    "held_out_rule",
    "heterogeneity_test",
    "intervals_from_draws",
    "intervals_from_estimates",
    "make_held_out_units",
    "neighborhoods",
    "net_benefit",
    "policy_value",
    "prepare_units",
    "profile_residual",
    "recommend",
    "residual_mean",
    "scale_draws",
    "score_intervals",
    "score_test",
    "solve_bootstrap",
    "sorted_groups",
    "trial_difference",
    "uniform_band",
    "value_curve",
]
