"""The paper's algorithm, which solves anew for every point: a slow reference."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from pns_infer.bootstrap.curvature import influence
from pns_infer.bootstrap.draws import Points, split_inputs
from pns_infer.bootstrap.equation import multipliers
from pns_infer.bootstrap.multiplier import BootstrapResult
from pns_infer.bootstrap.problem import ModelFunction
from pns_infer.bootstrap.solve import make_solver


def per_point_draws(
    result: BootstrapResult, z: Points, function: ModelFunction | None = None
) -> Float[np.ndarray, "num_draws num_points ..."]:
    """Computes the draws of a bootstrap again, point by point, without its shifts.

    For every number at every point one solve gives the influence of each column of each
    cell, and each draw sums multiplied influences.

    Returns what `BootstrapResult.draws` returns, for a function with one array as its
    result.
    """
    problem, equation = result.problem, result.equation
    function = problem.function if function is None else function
    params, inputs = split_inputs(problem, result.params, jnp.asarray(z))
    solve = make_solver(equation, result.config, transpose=True)
    points = []
    for i in range(len(inputs)):
        value, gradients = _value_and_gradients(function, params, inputs[i : i + 1])
        solution, _ = solve(gradients)
        influences = jnp.stack(
            [influence(equation, direction) for direction in solution]
        ).reshape(len(gradients), -1)
        moved = np.stack(
            [
                np.asarray(influences @ multipliers(result.key, equation, draw).ravel())
                for draw in range(result.num_draws)
            ]
        )
        shape = (result.num_draws, *value.shape)
        points.append(np.asarray(value)[None] - moved.reshape(shape))
    return np.concatenate(points, axis=1)


@functools.partial(jax.jit, static_argnums=0)
def _value_and_gradients(
    function: ModelFunction, params: PyTree, point: Float[Array, "1 width"]
) -> tuple[Float[Array, "1 ..."], Float[Array, "numbers num_parameters"]]:
    vector, unravel = ravel_pytree(params)

    def at_point(v: jax.Array) -> jax.Array:
        return function(unravel(v), point)

    value = at_point(vector)
    return value, jax.jacrev(at_point)(vector).reshape(-1, len(vector))
