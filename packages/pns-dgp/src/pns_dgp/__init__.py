"""Structural models of treatment and outcome, with their exact truth."""

from pns_dgp._acic import acic_model
from pns_dgp._covariates import load_acic_csv
from pns_dgp._curved import random_curved_model
from pns_dgp._files import export_benchmark, load_model, read_benchmark, save_model
from pns_dgp._li import LI_PANEL_SEEDS, is_near_degenerate, li_model_1, random_li_model
from pns_dgp._model import (
    SOURCES,
    PotentialOutcomes,
    Sample,
    Source,
    StructuralModel,
    Truth,
    truth_from_cells,
)
from pns_dgp._split import confounded_split
from pns_dgp._worlds import FAMILIES, World, make_world

__all__ = [
    "FAMILIES",
    "LI_PANEL_SEEDS",
    "SOURCES",
    "PotentialOutcomes",
    "Sample",
    "Source",
    "StructuralModel",
    "Truth",
    "World",
    "acic_model",
    "confounded_split",
    "export_benchmark",
    "is_near_degenerate",
    "li_model_1",
    "load_acic_csv",
    "load_model",
    "make_world",
    "random_curved_model",
    "random_li_model",
    "read_benchmark",
    "save_model",
    "truth_from_cells",
]
