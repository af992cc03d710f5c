"""Draws of a bootstrap at new points: the estimate plus Jacobian times shift."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree, Shaped

from pns_infer.bootstrap.problem import BootstrapProblem, ModelFunction, TwoStage
from pns_infer.core.inputs import check_shape

Points = Shaped[Array | np.ndarray, "num_points d"]
Shifts = Float[Array | np.ndarray, "num_draws num_parameters"]


def bootstrap_draws(
    problem: BootstrapProblem,
    params: PyTree,
    shifts: Shifts,
    z: Points,
    function: ModelFunction | None = None,
    points_per_chunk: int = 1024,
) -> PyTree[Float[np.ndarray, "num_draws num_points ..."]]:
    """Evaluates every draw at points z, to first order in the shift.

    With the shifts of a bootstrap on disk, this is all that new points need; no
    training data are read.

    Args:
      problem: that was solved.
      params: the estimate, of the whole network: a pair for a TwoStage.
      shifts: of the solves.
      z: the points.
      function: maps params (of the head alone for scope='last_layer', where z are then
        features) and z to what is wanted; the outputs if None. To stay inside a
        nonlinear constraint, take the outputs and apply the link to their draws.
      points_per_chunk: points at a time.

    Returns:
      What the function returns, with a leading axis [num_draws, m, ...]: its value at the
      estimate plus its Jacobian times the shift.

    Example:
      >>> import jax.numpy as jnp
      >>> from pns_infer import BootstrapProblem
      >>> def outputs(params, z):
      ...     return z * params**2
      >>> problem = BootstrapProblem(outputs, nll=lambda outputs, counts: None)
      >>> params, shifts = jnp.array([3.0]), jnp.array([[0.1], [-0.2]])
      >>> draws = bootstrap_draws(problem, params, shifts, z=jnp.array([[1.0], [10.0]]))
      >>> draws[:, :, 0].astype(float).round(3).tolist()  # z (9 + 6 shift)
      [[9.6, 96.0], [7.8, 78.0]]
    """
    function = problem.function if function is None else function
    params, inputs = split_inputs(problem, params, jnp.asarray(z))
    return shifted_values(function, params, shifts, inputs, points_per_chunk)


def shifted_values(
    function: ModelFunction,
    params: PyTree,
    shifts: Shifts,
    z: Points,
    points_per_chunk: int = 1024,
) -> PyTree[Float[np.ndarray, "num_draws num_points ..."]]:
    """Evaluates a function at shifted parameters, to first order.

    It is compiled once for each function, so pass the same one again.
    """
    z, shifts = jnp.asarray(z), jnp.asarray(shifts)
    num_parameters = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    check_shape("shifts", shifts, ("num_draws", num_parameters))
    # A power of two of them: the last block of many points then compiles nothing.
    size = min(points_per_chunk, 1 << (max(len(z), 1) - 1).bit_length())
    missing = -len(z) % size
    filled = jnp.concatenate([z, jnp.repeat(z[:1], missing, axis=0)])
    parts = [
        jax.tree.map(np.asarray, _shifted(function, params, shifts, block))
        for block in jnp.split(filled, len(filled) // size)
    ]
    return jax.tree.map(
        lambda *leaves: np.concatenate(leaves, axis=1)[:, : len(z)], *parts
    )


def split_inputs(
    problem: BootstrapProblem, params: PyTree, z: Float[Array, "n d"], size: int = 8192
) -> tuple[PyTree, Float[Array, "n width"]]:
    """Returns parameters and inputs of what is bootstrapped: head and features."""
    if problem.scope == "full" or not isinstance(problem.outputs, TwoStage):
        return params, z
    body, head = params
    parts = [
        _apply(problem.outputs.features, body, z[i : i + size])
        for i in range(0, len(z), size)
    ]
    return head, jnp.concatenate(parts)


@functools.partial(jax.jit, static_argnums=0)
def _apply(function: ModelFunction, params: PyTree, z: jax.Array) -> jax.Array:
    return function(params, z)


@functools.partial(jax.jit, static_argnums=0)
def _shifted(
    function: ModelFunction, params: PyTree, shifts: jax.Array, z: jax.Array
) -> Any:
    vector, unravel = ravel_pytree(params)
    value, push = jax.linearize(lambda v: function(unravel(v), z), vector)
    moved = jax.lax.map(push, shifts, batch_size=min(16, len(shifts)))
    return jax.tree.map(lambda a, b: a[None] + b, value, moved)
