"""A bootstrap ensemble: several networks, each trained on reweighted data."""

import pns_models as pm

from pns_estimate.methods.network import NetworkMethod
from pns_estimate.methods.registry import register_method

ENSEMBLE = register_method(
    NetworkMethod(
        "ensemble",
        "several networks, each trained on randomly reweighted data",
        pm.PRESETS["default_ensemble"],
    )
)
