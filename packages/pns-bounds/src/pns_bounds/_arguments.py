"""Arguments of the caller: one code path for NumPy and JAX, conversion, checks, errors.

A message says what was expected, what came, which rows, what to do. Values can be checked
only where they are known. Under `jax.jit`, `vmap` or `grad` the arrays are traced: shapes
and options are still checked, values are not.
"""

import sys
from types import ModuleType
from typing import Any

import numpy as np

from pns_bounds._layout import BINARY, Layout


class InputError(ValueError):
    """An argument cannot be used; `problem` says what was expected and what to do."""

    def __init__(self, argument: str, problem: str):
        """Joins both parts to a sentence."""
        super().__init__(f"{argument} {problem}")
        self.argument = argument
        self.problem = problem

    def __reduce__(self):
        """Keeps both parts when the error is pickled."""
        return type(self), (self.argument, self.problem)


class IncompatibleAtomsError(InputError):
    """The experimental and observational probabilities contradict each other."""


def require(ok: Any, argument: str, problem: str) -> None:
    """Raises an InputError unless a condition on an argument holds."""
    if not ok:
        raise InputError(argument, problem)


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


def require_rows(
    argument: str,
    ok: Array,
    shown: Array,
    problem: str,
    remedy: str,
    error: type[InputError] = InputError,
) -> None:
    """Raises unless `ok` [...] is true in every row; does nothing while JAX is tracing.

    The message holds the values [..., k] or [..., k, l] `shown` of the first bad row.
    """
    if is_traced(ok) or is_traced(shown):  # grad knows `ok`, but not the values
        return
    good = np.asarray(ok)
    if good.all():
        return
    first = tuple(np.argwhere(~good)[0].tolist())
    rows = f"got {np.asarray(shown)[first].tolist()}"
    if good.ndim:
        index = first[0] if len(first) == 1 else first
        rows = (
            f"{int((~good).sum())} of {good.size} rows are affected, the first at index "
            f"{index}: {rows[4:]}"
        )
    raise error(argument, f"{problem}; {rows}. {remedy}")


def require_shape(name: str, array: Array, trailing: tuple[int, ...]) -> None:
    """Raises unless the last axes of an array have the given lengths."""
    shape = array.shape[max(array.ndim - len(trailing), 0) :]
    expected = ", ".join(["...", *map(str, trailing)])
    problem = f"must have shape [{expected}], got {list(array.shape)}."
    require(shape == trailing, name, problem)


def require_same_rows(name: str, leading: tuple, other_name: str, other: tuple) -> None:
    """Raises unless two arrays share their leading dimensions."""
    require(
        leading == other,
        name,
        f"and {other_name} must share their leading dimensions, got {list(leading)} and "
        f"{list(other)}.",
    )


def require_option(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raises unless a keyword has one of its allowed values."""
    problem = f"must be one of {list(allowed)}, got {value!r}."
    require(value in allowed, name, problem)


def check_joint(joint: Array, name: str = "joint", layout: Layout = BINARY) -> None:
    """Raises unless `joint[..., x, y]` is a law of (X, Y) in every row."""
    require_shape(name, joint, layout.joint_shape)
    xp = namespace(joint)
    require_rows(
        name,
        xp.all(_is_probability(joint), axis=(-2, -1)),
        joint,
        "must hold probabilities in [0, 1]",
        "Divide counts by their total (see atoms_from_counts) and drop missing rows.",
    )
    total = xp.sum(joint, axis=(-2, -1))
    require_rows(
        name,
        xp.abs(total - 1) <= rounding_tolerance(joint.dtype),
        joint,
        "must sum to one over its cells",
        "Cell [x, y] is P(X=x, Y=y), not P(Y=y | X=x): divide by the overall total.",
    )


def check_mu(mu: Array, layout: Layout = BINARY) -> None:
    """Raises unless `mu[..., x]` holds probabilities in every row."""
    require_shape("mu", mu, layout.mu_shape)
    axes = tuple(range(-len(layout.mu_shape), 0))
    require_rows(
        "mu",
        namespace(mu).all(_is_probability(mu), axis=axes),
        mu,
        "must hold probabilities in [0, 1]",
        "mu[x] is the share of Y=1 in arm x of the experiment; drop missing rows.",
    )


def _is_probability(values: Array) -> Array:
    """Tells which values lie in [0, 1] up to rounding; NaN does not."""
    slop = rounding_tolerance(values.dtype)
    return (values >= -slop) & (values <= 1 + slop)


def shaped_pair(joint: Any, mu: Any, layout: Layout = BINARY) -> tuple[Array, Array]:
    """Converts `joint` and `mu` to one namespace and dtype, and checks their shapes."""
    joint, mu = as_floating(joint=joint, mu=mu)
    require_shape("joint", joint, layout.joint_shape)
    require_shape("mu", mu, layout.mu_shape)
    rows = mu.shape[: mu.ndim - len(layout.mu_shape)]
    require_same_rows("joint", joint.shape[:-2], "mu", rows)
    return joint, mu


def checked_pair(joint: Any, mu: Any, layout: Layout = BINARY) -> tuple[Array, Array]:
    """Converts `joint` and `mu` as `shaped_pair`, and checks their values."""
    joint, mu = shaped_pair(joint, mu, layout)
    check_joint(joint, layout=layout)
    check_mu(mu, layout)
    return joint, mu
