"""No uncertainty at all: the estimate of one network, uncorrected."""

import pns_models as pm

from pns_estimate.methods.network import NetworkMethod
from pns_estimate.methods.registry import register_method

PLUG_IN = register_method(
    NetworkMethod(
        "plug_in",
        "one network, whose estimates are taken as if they were known",
        pm.PRESETS["default"],
    )
)
