"""Uncertainty methods: one registry, one protocol, and the samplers they leave behind."""

from pns_estimate.methods import crossfit, network
from pns_estimate.methods.protocol import (
    METHODS,
    SAMPLERS,
    Keys,
    Method,
    MethodFit,
    Sampler,
    disagreement,
    get_method,
    register_method,
    split_key,
)
from pns_estimate.methods.wrapper import ScaledSampler

__all__ = [
    "METHODS",
    "SAMPLERS",
    "Keys",
    "Method",
    "MethodFit",
    "Sampler",
    "ScaledSampler",
    "crossfit",
    "disagreement",
    "get_method",
    "network",
    "register_method",
    "split_key",
]
