"""Uncertainty methods: one file each, one registry, one protocol."""

from pns_estimate.methods import bootstrap, crossfit, ensemble, epinet, plug_in
from pns_estimate.methods.protocol import (
    Keys,
    Method,
    MethodFit,
    Sampler,
    split_key,
)
from pns_estimate.methods.registry import METHODS, get_method, register_method
from pns_estimate.methods.scaled import ScaledSampler

__all__ = [
    "METHODS",
    "Keys",
    "Method",
    "MethodFit",
    "Sampler",
    "ScaledSampler",
    "bootstrap",
    "crossfit",
    "ensemble",
    "epinet",
    "get_method",
    "plug_in",
    "register_method",
    "split_key",
]
