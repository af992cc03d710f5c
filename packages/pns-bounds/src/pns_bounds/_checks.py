"""Checks of arguments: what was expected, what came, which rows, what to do.

Values can be checked only where they are known. Under `jax.jit`, `vmap` or `grad` the
arrays are traced: shapes and options are still checked, values are not.
"""

from typing import Any

import numpy as np

from pns_bounds._arrays import (
    Array,
    as_floating,
    is_traced,
    namespace,
    rounding_tolerance,
)
from pns_bounds._errors import InputError
from pns_bounds._layout import BINARY, Layout


def require_rows(
    argument: str,
    ok: Array,
    shown: Array,
    problem: str,
    remedy: str,
    error: type[InputError] = InputError,
) -> None:
    """Raises unless every row is fine; does nothing while JAX is tracing.

    Args:
      argument: the name that the message starts with.
      ok: [...] booleans, one per row.
      shown: [..., k] or [..., k, l] values; those of the first bad row are printed.
      problem: what was expected and did not hold.
      remedy: what the caller can do.
      error: the class to raise.
    """
    if is_traced(ok) or is_traced(shown):  # grad knows `ok`, but not the values
        return
    good = np.asarray(ok)
    if good.all():
        return
    first = tuple(int(i) for i in np.argwhere(~good)[0])
    value = np.asarray(shown)[first].tolist()
    if good.ndim == 0:
        rows = f"got {value}"
    else:
        index = first[0] if len(first) == 1 else first
        rows = (
            f"{int((~good).sum())} of {good.size} rows are affected, "
            f"the first at index {index}: {value}"
        )
    raise error(argument, f"{problem}; {rows}. {remedy}")


def require_shape(name: str, array: Array, trailing: tuple[int, ...]) -> None:
    """Raises unless the last axes of an array have the given lengths."""
    if array.shape[max(array.ndim - len(trailing), 0) :] != trailing:
        expected = ", ".join(["...", *map(str, trailing)])
        raise InputError(
            name, f"must have shape [{expected}], got {list(array.shape)}."
        )


def require_same_rows(name: str, leading: tuple, other_name: str, other: tuple) -> None:
    """Raises unless two arrays share their leading dimensions."""
    if leading != other:
        raise InputError(
            name,
            f"and {other_name} must share their leading dimensions, "
            f"got {list(leading)} and {list(other)}.",
        )


def require_option(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raises unless a keyword has one of its allowed values."""
    if value not in allowed:
        raise InputError(name, f"must be one of {list(allowed)}, got {value!r}.")


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
