"""The methods that have a name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from pns_estimate._errors import Setting, UserError
from pns_estimate.methods.protocol import Method

_Known = TypeVar("_Known", bound=Method)

_METHODS: dict[str, Method] = {}
METHODS: Mapping[str, Method] = MappingProxyType(_METHODS)
"""Every uncertainty method that has a name, by it; `register_method` adds one."""


def register_method(method: _Known) -> _Known:
    """Makes a method known by its name, to `PnsEstimator`, command and report.

    Args:
      method: see the protocol `Method`; its name must be new.

    Example:
      >>> import dataclasses
      >>> again = dataclasses.replace(get_method("plug_in"), name="plug_in_2")
      >>> register_method(again) is METHODS["plug_in_2"]
      True
      >>> del _METHODS["plug_in_2"]  # this example leaves nothing behind
    """
    if method.name in _METHODS:
        raise ValueError(
            f"there is a method {method.name!r} already; known are {list(_METHODS)}."
        )
    _METHODS[method.name] = method
    return method


def get_method(name: str) -> Method:
    """Returns the method of this name.

    Example:
      >>> method = get_method("bootstrap_last_layer")
      >>> method.sentence
      'a multiplier bootstrap of the last layer of one network'
    """
    if name not in _METHODS:
        problem = f" must be one of {list(_METHODS)}, got {name!r}."
        raise UserError(Setting("method"), problem)
    return _METHODS[name]
