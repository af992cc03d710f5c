"""One code path for NumPy and JAX: the namespace, dtype and tracedness of inputs."""

import sys
from types import ModuleType
from typing import Any

import numpy as np

from pns_bounds._errors import InputError

Array = Any  # NumPy or JAX; every function keeps the namespace and dtype of its input.


def namespace(*values: Any) -> ModuleType:
    """Returns `jax.numpy` if any of the values is a JAX array, else `numpy`."""
    for value in values:
        if hasattr(value, "__array_namespace__"):
            found = value.__array_namespace__()
            if found is not np:
                return found
    return np


def as_floating(**values: Any) -> tuple[Array, ...]:
    """Converts array-likes, given by name, to one namespace and one floating dtype.

    Floating dtypes are kept (the widest wins); integers and booleans become the
    namespace's default float.
    """
    xp = namespace(*values.values())
    arrays = []
    for name, value in values.items():
        if isinstance(value, np.ma.MaskedArray):
            raise InputError(
                name, "must not be masked: fill or drop masked rows first."
            )
        try:
            array = xp.asarray(value)
        except (TypeError, ValueError) as error:
            raise InputError(name, f"must be an array of numbers: {error}") from error
        if not xp.isdtype(array.dtype, ("bool", "integral", "real floating")):
            raise InputError(
                name,
                f"must be an array of numbers, got dtype {array.dtype}: fill or drop "
                "missing values, then convert, for example with .to_numpy(float).",
            )
        arrays.append(array)
    dtype = xp.result_type(*arrays)
    if not xp.isdtype(dtype, "real floating"):
        dtype = xp.result_type(dtype, float)
    return tuple(array.astype(dtype) for array in arrays)


def read_only(rows: Any) -> np.ndarray:
    """Makes a float64 constant that cannot be changed by accident."""
    array = np.array(rows, dtype=np.float64)
    array.setflags(write=False)
    return array


def is_traced(array: Array) -> bool:
    """Whether JAX is tracing (jit, vmap, grad), so that values are not yet known."""
    jax = sys.modules.get("jax")  # without JAX imported, nothing is traced
    return jax is not None and isinstance(array, jax.core.Tracer)


def fraction(part: Array, whole: Array) -> Array:
    """Computes part / whole; NaN where the whole is 0 or too small to divide by.

    A part that leaves [0, whole] by no more than rounding is moved there first, since
    rounding is large beside a small whole; a part further out stays visible.
    """
    xp = namespace(part, whole)
    slop = rounding_tolerance(whole.dtype)
    inside = (part >= -slop) & (part <= whole + slop)
    part = xp.where(inside, xp.clip(part, 0, xp.maximum(whole, 0)), part)
    defined = whole >= smallest_normal(whole.dtype)
    safe = xp.where(defined, whole, 1)  # no division by 0, no NaN in gradients
    # The empty index makes a scalar of a 0-d array, as arithmetic does.
    return xp.where(defined, part / safe, xp.nan)[()]


def smallest_normal(dtype: Any) -> float:
    """The smallest positive number of full precision; XLA takes smaller ones for 0."""
    return float(_finfo(dtype).tiny)


def machine_epsilon(dtype: Any) -> float:
    """The distance from 1 to the next number."""
    return float(_finfo(dtype).eps)


def rounding_tolerance(dtype: Any) -> float:
    """What counts as rounding on the scale of probabilities.

    One in a million, or eight units in the last place for the half precisions.
    """
    return max(1e-6, 8 * machine_epsilon(dtype))


def _finfo(dtype: Any) -> Any:
    try:
        return np.finfo(dtype)
    except ValueError:  # NumPy has no bfloat16; JAX, which made the array, has
        return sys.modules["jax"].numpy.finfo(dtype)
