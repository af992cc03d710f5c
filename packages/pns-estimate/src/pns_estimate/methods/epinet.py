"""An epinet: one network, and a small head that learned what reweighting does."""

import pns_models as pm

from pns_estimate.methods.network import NetworkMethod
from pns_estimate.methods.registry import register_method

EPINET = register_method(
    NetworkMethod(
        "epinet",
        "one network with an epistemic index, trained on randomly reweighted data",
        pm.PRESETS["default_epinet"],
    )
)
