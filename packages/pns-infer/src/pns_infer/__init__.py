"""Precision-corrected inference for bounds that are maxima and minima of estimates."""

from pns_infer.averages.assignment import (
    AssignmentCheck,
    AssignmentWarning,
    check_assignment,
)
from pns_infer.averages.debiased import DebiasedAverage, debiased_average
from pns_infer.averages.decisions import (
    PolicyValue,
    held_out_rule,
    net_benefit,
    policy_value,
    recommend,
    value_curve,
)
from pns_infer.averages.frequencies import (
    Difference,
    frequency_interval,
    trial_difference,
)
from pns_infer.averages.group_averages import (
    GroupAverages,
    group_averages,
    sorted_groups,
)
from pns_infer.averages.held_out import (
    HeldOutUnits,
    TooFewUnitsError,
    make_held_out_units,
)
from pns_infer.averages.overlap import balanced_counts
from pns_infer.averages.prepare_units import PreparedUnits, prepare_units
from pns_infer.averages.score_test import score_test
from pns_infer.averages.source_model import SourceComparison, compare_sources
from pns_infer.bootstrap.draws import bootstrap_draws
from pns_infer.bootstrap.multiplier import (
    BootstrapResult,
    NotConvergedWarning,
    solve_bootstrap,
)
from pns_infer.bootstrap.problem import (
    BootstrapProblem,
    CountColumns,
    SolveConfig,
    TwoStage,
)
from pns_infer.calibration.draw_scale import (
    DrawCalibration,
    calibrate_draws,
    choose_calibration_rows,
    scale_draws,
    shift_draws,
)
from pns_infer.calibration.linear_draws import LinearDraws
from pns_infer.calibration.neighborhoods import neighborhoods
from pns_infer.calibration.residual_draws import draw_residual, residual_mean
from pns_infer.calibration.residual_profile import (
    ResidualProfile,
    ResidualSettings,
    profile_residual,
)
from pns_infer.calibration.ridges import RidgeCorrection, fit_ridges
from pns_infer.calibration.shared_error import SharedError, shared_error
from pns_infer.core.average import AverageInterval, average_interval
from pns_infer.core.band import Band, heterogeneity_test, threshold_set, uniform_band
from pns_infer.core.compatibility import compatibility_test
from pns_infer.core.covariance import frequency_covariance, term_covariance
from pns_infer.core.credible import credible_intervals
from pns_infer.core.critical import TooFewDrawsError, draws_needed
from pns_infer.core.intervals import (
    CorrectedIntervals,
    intervals_from_draws,
    intervals_from_estimates,
)
from pns_infer.core.metrics import score_intervals

__all__ = [
    "AssignmentCheck",
    "AssignmentWarning",
    "AverageInterval",
    "Band",
    "BootstrapProblem",
    "BootstrapResult",
    "CorrectedIntervals",
    "CountColumns",
    "DebiasedAverage",
    "Difference",
    "DrawCalibration",
    "GroupAverages",
    "HeldOutUnits",
    "LinearDraws",
    "NotConvergedWarning",
    "PolicyValue",
    "PreparedUnits",
    "ResidualProfile",
    "ResidualSettings",
    "RidgeCorrection",
    "SharedError",
    "SolveConfig",
    "SourceComparison",
    "TooFewDrawsError",
    "TooFewUnitsError",
    "TwoStage",
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
    "fit_ridges",
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
    "shared_error",
    "shift_draws",
    "solve_bootstrap",
    "sorted_groups",
    "term_covariance",
    "threshold_set",
    "trial_difference",
    "uniform_band",
    "value_curve",
]
