"""One code path for NumPy and JAX: the namespace, dtype and tracedness of inputs."""

import sys
from types import ModuleType
from typing import Any

import numpy as np

Array = Any  # NumPy or JAX; every function keeps the namespace and dtype of its input.


def namespace(*values: Any) -> ModuleType:
    """Returns `jax.numpy` if any of the values is a JAX array, else `numpy`."""
    for value in values:
        if hasattr(value, "__array_namespace__"):
            found = value.__array_namespace__()
            if found is not np:
                return found
    return np


def as_floating(*values: Any) -> tuple[Array, ...]:
    """Converts array-likes to one namespace and one floating dtype.

    Floating dtypes are kept (the widest wins); integers and booleans become the
    namespace's default float.
    """
    xp = namespace(*values)
    if any(isinstance(value, np.ma.MaskedArray) for value in values):
        raise TypeError("masked arrays are not taken: fill or drop masked rows first.")
    arrays = [xp.asarray(value) for value in values]
    for array in arrays:
        if not xp.isdtype(array.dtype, ("bool", "integral", "real floating")):
            raise TypeError(
                f"expected an array of numbers, got dtype {array.dtype}: fill or drop "
                "what is missing, then convert, say with .to_numpy(float)."
            )
    dtype = xp.result_type(*arrays)
    if not xp.isdtype(dtype, "real floating"):
        dtype = xp.result_type(dtype, float)
    return tuple(array.astype(dtype) for array in arrays)


def read_only(rows: Any) -> np.ndarray:
    """Makes a constant of float64 that nobody changes by accident."""
    array = np.array(rows, dtype=np.float64)
    array.setflags(write=False)
    return array


def is_traced(array: Array) -> bool:
    """Whether JAX is tracing (jit, vmap, grad), so that values are not yet known."""
    jax = sys.modules.get("jax")  # an array can be traced only if somebody imported it
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
    defined = is_normal(whole)
    safe = xp.where(defined, whole, 1)  # no division by 0, no NaN in gradients
    # The empty index makes a scalar of a 0-d array, as arithmetic does.
    return xp.where(defined, part / safe, xp.nan)[()]


def is_normal(whole: Array) -> Array:
    """Tells where a nonnegative number is great enough to divide by."""
    return whole >= smallest_normal(whole.dtype)


def smallest_normal(dtype: Any) -> float:
    """The smallest positive number of full precision; XLA takes lesser ones for 0."""
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
    except ValueError:  # bfloat16 is no NumPy type; JAX, which made it, knows it
        return sys.modules["jax"].numpy.finfo(dtype)
