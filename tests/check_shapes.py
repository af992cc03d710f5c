"""Checks, while tests run, the shapes and dtypes that annotations state.

jaxtyping's pytest plugin applies `after_the_call` to every function of our packages; the
option is in pyproject.toml. It differs from plain beartype in three ways. Only
annotations of arrays are checked: the type checker checks the others, and tests pass
wrong values on purpose. A list in place of an array passes, since the public functions
convert it. And arguments are checked once a call has returned, so that our own error
about a wrong shape comes first; jaxtyping then reports a wrong argument as an error
"whilst checking the return value".
"""

import types
import typing
from collections.abc import Callable, Iterator

import beartype
import jaxtyping
from beartype.vale import Is

_NO_ARRAY = typing.Annotated[object, Is[lambda value: not hasattr(value, "dtype")]]


def after_the_call(function: Callable) -> Callable:
    """Returns the function with its annotations of arrays checked."""
    hints = function.__annotations__
    if hints.get("return", typing.Any) is typing.Any:
        return function  # how jaxtyping checks the arguments before the call
    if typing.get_origin(hints["return"]) is Iterator:
        return function  # a generator, which has done nothing when the call returns
    checked = {name: hint for name, hint in hints.items() if _is_of_arrays(hint)}
    if not checked:
        return function
    for name, hint in checked.items():
        if name != "return" and any(map(_is_array, (hint, *_choices(hint)))):
            checked[name] = hint | _NO_ARRAY
    function.__annotations__ = checked
    return beartype.beartype(function)


def _choices(hint: typing.Any) -> tuple[typing.Any, ...]:
    """Returns the parts of a union."""
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    return typing.get_args(hint) if is_union else ()


def _is_array(hint: typing.Any) -> bool:
    """Tells whether a hint is that of one array."""
    return isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)


def _is_of_arrays(hint: typing.Any) -> bool:
    """Tells whether an array is a part of a hint."""
    return _is_array(hint) or any(map(_is_of_arrays, typing.get_args(hint)))
