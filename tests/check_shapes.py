"""Checks, while tests run, the shapes and dtypes that annotations state.

jaxtyping's pytest plugin applies `after_the_call` to every function of our packages; the
option is in pyproject.toml. It differs from plain beartype in four ways. Only
annotations of arrays are checked: the type checker checks the others, and tests pass
wrong values on purpose. NumPy and JAX arrays may take each other's place. A list in
place of an array passes, since the public functions convert it. And arguments are
checked once a call has returned, so that our own error about a wrong shape comes first;
jaxtyping then reports a wrong argument as an error "whilst checking the return value".
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
    checked = {
        name: _of_any_library(hint, is_argument=name != "return")
        for name, hint in hints.items()
        if _is_of_arrays(hint)
    }
    if not checked:
        return function
    function.__annotations__ = checked
    return beartype.beartype(function)


def _of_any_library(hint: typing.Any, is_argument: bool) -> typing.Any:
    """Lets any library's arrays pass, and what is no array as an argument."""
    if typing.get_origin(hint) is tuple:
        parts = typing.get_args(hint)
        return tuple[tuple(_of_any_library(part, is_argument) for part in parts)]
    choices = _choices(hint)
    if not any(map(_is_array, choices)):
        return hint
    passing = [
        part.dtype[typing.Any, part.dim_str] if _is_array(part) else part
        for part in choices
    ]
    return typing.Union[(*passing, *([_NO_ARRAY] if is_argument else []))]


def _choices(hint: typing.Any) -> tuple[typing.Any, ...]:
    """Returns the parts of a union, or the hint."""
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    return typing.get_args(hint) if is_union else (hint,)


def _is_array(hint: typing.Any) -> bool:
    """Tells whether a hint is that of one array."""
    return isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)


def _is_of_arrays(hint: typing.Any) -> bool:
    """Tells whether an array is a part of a hint."""
    return _is_array(hint) or any(map(_is_of_arrays, typing.get_args(hint)))
