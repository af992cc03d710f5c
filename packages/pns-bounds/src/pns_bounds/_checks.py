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
from pns_bounds._errors import InputError, require
from pns_bounds._layout import BINARY, Layout


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
