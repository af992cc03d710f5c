"""Anchored and epistemic networks for probabilities of causation, and their training."""

from pns_models._anchored import (
    AnchoredConfig,
    EnsembleConfig,
    SLearnerConfig,
    TLearnerConfig,
)
from pns_models._crossfit import CrossFit, cross_fit
from pns_models._data import Counts, FoldedCounts, distinct_rows, empty_table
from pns_models._default_learners import LEARNERS
from pns_models._epinet import EpinetConfig
from pns_models._errors import (
    DamagedModelError,
    DivergedError,
    LostProcessError,
    NoDrawsError,
    TooFewRowsError,
    UnsuitableError,
)
from pns_models._files import Kinds
from pns_models._hypermodel import HypermodelConfig
from pns_models._learner import MEMBERS, Learner, Members
from pns_models._linear_learner import LinearLearner
from pns_models._links import atoms_from_raw
from pns_models._model import FittedModel
from pns_models._network import Backbone, Kernel, Network, register_network
from pns_models._network_learner import NetworkLearner
from pns_models._network_members import NetworkMembers
from pns_models._placement import make_mesh
from pns_models._presets import PRESETS
from pns_models._processes import is_writer, join_processes
from pns_models._recipe import Recipe, TrainConfig, make_member_training
from pns_models._reliability import Reliability, measure_reliability
from pns_models._resamples import Resamples
from pns_models._rows import SOURCES, Rows, deal_folds, deal_held_out, rows_from_tables
from pns_models._sklearn_learner import SklearnLearner
from pns_models._stack import Linear, Stack
from pns_models._standardizer import Standardizer, make_standardizer
from pns_models._training import History, fit
from pns_models._tree_learner import TreeLearner

__all__ = [
    "LEARNERS",
    "MEMBERS",
    "PRESETS",
    "SOURCES",
    "AnchoredConfig",
    "Backbone",
    "Counts",
    "CrossFit",
    "DamagedModelError",
    "DivergedError",
    "EnsembleConfig",
    "EpinetConfig",
    "FittedModel",
    "FoldedCounts",
    "History",
    "HypermodelConfig",
    "Kernel",
    "Kinds",
    "Learner",
    "Linear",
    "LinearLearner",
    "LostProcessError",
    "Members",
    "Network",
    "NetworkLearner",
    "NetworkMembers",
    "NoDrawsError",
    "Recipe",
    "Reliability",
    "Resamples",
    "Rows",
    "SLearnerConfig",
    "SklearnLearner",
    "Stack",
    "Standardizer",
    "TLearnerConfig",
    "TooFewRowsError",
    "TrainConfig",
    "TreeLearner",
    "UnsuitableError",
    "atoms_from_raw",
    "cross_fit",
    "deal_folds",
    "deal_held_out",
    "distinct_rows",
    "empty_table",
    "fit",
    "is_writer",
    "join_processes",
    "make_member_training",
    "make_mesh",
    "make_standardizer",
    "measure_reliability",
    "register_network",
    "rows_from_tables",
]
