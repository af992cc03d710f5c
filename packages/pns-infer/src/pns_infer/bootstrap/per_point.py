"""The paper's algorithm, which solves anew for every point: a slow reference."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from pns_infer.bootstrap.batches import multipliers
from pns_infer.bootstrap.curvature import influence
from pns_infer.bootstrap.draws import Points, split_inputs
from pns_infer.bootstrap.multiplier import BootstrapResult
from pns_infer.bootstrap.problem import ModelFunction
from pns_infer.bootstrap.solve import make_solver


def per_point_draws(
    result: BootstrapResult, z: Points, function: ModelFunction | None = None
) -> Float[np.ndarray, "num_draws num_points ..."]:
    """Computes the draws of a bootstrap again, point by point, without its shifts.

    For every number at every point one solve gives the influence of each column of each
    cell, and each draw sums multiplied influences.

    Args:
      result: supplies the problem, the data and the key of the multipliers.
      z: points.
      function: as for `bootstrap_draws`, with one array as its result.

    Returns:
      What `BootstrapResult.draws` returns.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from pns_infer import BootstrapProblem, CountColumns, solve_bootstrap
      >>> def outputs(params, z):
      ...     return z @ params
      >>> def nll(logit, counts):
      ...     logits = jnp.concatenate([logit, -logit], axis=1)
      ...     return jnp.sum(counts * jax.nn.softplus(logits), axis=1)
      >>> columns = CountColumns(trial=(0, 0), source=(0, 0))  # outcomes of one source
      >>> problem = BootstrapProblem(outputs, nll=nll, columns=columns)
      >>> z, counts = jnp.ones((1, 1)), jnp.array([[20.0, 80.0]])
      >>> params = jnp.log(jnp.array([[4.0]]))  # the logit of 80 of 100
      >>> key = jax.random.key(0)
      >>> result = solve_bootstrap(key, problem, params, z, counts, num_draws=10)
      >>> draws = per_point_draws(result, z)
      >>> bool(draws.std() > 0.1), bool(np.allclose(draws, result.draws(z), atol=1e-4))
      (True, True)
    """
    problem, batches = result.problem, result.batches
    function = problem.function if function is None else function
    params, inputs = split_inputs(problem, result.params, jnp.asarray(z))
    solve = make_solver(problem, result.config, params, batches, transpose=True)
    points = []
    for i in range(len(inputs)):
        value, gradients = _value_and_gradients(function, params, inputs[i : i + 1])
        solution, _ = solve(gradients)
        influences = jnp.stack(
            [influence(problem, params, batches, direction) for direction in solution]
        ).reshape(len(gradients), -1)
        moved = np.stack(
            [
                np.asarray(influences @ multipliers(result.key, batches, draw).ravel())
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
