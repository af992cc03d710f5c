"""Anchored and epistemic networks for probabilities of causation, and their training."""

from pns_models._config import PRESETS, NetworkConfig, Recipe, TrainConfig
from pns_models._data import Counts, counts_from_tables, merge_counts, split_counts
from pns_models._diagnostics import (
    Calibration,
    Reliability,
    Spread,
    calibration,
    prior_spread,
)
from pns_models._epistemic import BootstrapEnsemble, Epinet, Frozen, Hypermodel
from pns_models._functions import PlainFunctions, plain_functions
from pns_models._links import (
    LogProbabilities,
    atoms_from_raw,
    log_probabilities,
)
from pns_models._loss import loss_by_index
from pns_models._model import FittedModel, load
from pns_models._networks import AnchoredNet, Backbone, Mlp, Network, SLearner, TLearner
from pns_models._standardiser import Standardiser, make_standardiser
from pns_models._training import DivergedError, Fit, History, fit

__all__ = [
    "PRESETS",
    "AnchoredNet",
    "Backbone",
    "BootstrapEnsemble",
    "Calibration",
    "Counts",
    "DivergedError",
    "Epinet",
    "Fit",
    "FittedModel",
    "Frozen",
    "History",
    "Hypermodel",
    "LogProbabilities",
    "Mlp",
    "Network",
    "NetworkConfig",
    "PlainFunctions",
    "Recipe",
    "Reliability",
    "SLearner",
    "Spread",
    "Standardiser",
    "TLearner",
    "TrainConfig",
    "atoms_from_raw",
    "calibration",
    "counts_from_tables",
    "fit",
    "load",
    "log_probabilities",
    "loss_by_index",
    "make_standardiser",
    "merge_counts",
    "plain_functions",
    "prior_spread",
    "split_counts",
]
