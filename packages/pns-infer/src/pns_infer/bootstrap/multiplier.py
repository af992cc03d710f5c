"""The multiplier bootstrap by shared solves: shifts, and draws at new points.

The vocabulary is that of `problem`. (The paper solves anew for each point:
`per_point_draws`, kept as a slow reference.)
"""

import dataclasses
import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from pns_infer.bootstrap.problem import (
    BootstrapProblem,
    Equation,
    ModelFunction,
    SolveConfig,
    check_cells,
    influence,
    make_equation,
    multiplied_scores,
    multipliers,
)
from pns_infer.bootstrap.solve import make_solver
from pns_infer.core.inputs import check_at_least, check_shape

Points = Shaped[Array | np.ndarray, "num_points d"]

Shifts = Float[Array | np.ndarray, "num_draws num_parameters"]

_DEFAULT = SolveConfig()
_ROWS = 8192  # whose features are computed at a time


class NotConvergedWarning(UserWarning):
    """A linear solve ended before it reached its tolerance."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class BootstrapResult:
    """Draws of a fitted model that stand for its sampling error.

    `shifts` [num_draws, num_parameters] is what each draw adds to the estimate `params`
    (that of the head for scope='last_layer'), `residuals` [num_draws] are the relative
    residuals of the linear solves, and `key` made the multipliers.
    """

    shifts: Shifts = dataclasses.field(repr=False)
    residuals: Float[np.ndarray, " num_draws"] = dataclasses.field(repr=False)
    problem: BootstrapProblem
    config: SolveConfig
    params: PyTree = dataclasses.field(repr=False)
    key: PRNGKeyArray = dataclasses.field(repr=False)
    equation: Equation = dataclasses.field(repr=False)  # with the data

    @property
    def num_draws(self) -> int:
        """Number of draws."""
        return len(self.shifts)

    @property
    def limit(self) -> float:
        """The relative residual up to which a solve counts as converged."""
        return max(self.config.tolerance, 1e-3)

    @property
    def converged(self) -> bool:
        """Whether every solve reached its tolerance."""
        return bool(np.all(self.residuals <= self.limit))

    @property
    def message(self) -> str:
        """How the solves went, and what to try next if they did not converge."""
        worst = f"worst relative residual {np.max(self.residuals):.2g}"
        if self.converged:
            return f"all {self.num_draws} solves reached {self.limit:g} ({worst})."
        remedy = "take more damping"
        if not np.all(np.isfinite(self.residuals)):
            remedy += ", or curvature='ggn'; check that params and outputs are finite"
        elif self.shifts.shape[1] > self.config.direct_up_to:
            remedy += " or more max_iterations"
        failed = np.mean(~(self.residuals <= self.limit))
        return (
            f"{failed:.0%} of {self.num_draws} solves did not reach the tolerance "
            f"{self.limit:g} ({worst}); {remedy}."
        )

    def draws(
        self,
        z: Points,
        function: ModelFunction | None = None,
        points_per_chunk: int = 1024,
    ) -> PyTree[Float[np.ndarray, "num_draws num_points ..."]]:
        """Evaluates every draw at points z; see `bootstrap_draws`."""
        return bootstrap_draws(
            self.problem, self.params, self.shifts, z, function, points_per_chunk
        )


def solve_bootstrap(
    key: PRNGKeyArray,
    problem: BootstrapProblem,
    params: PyTree,
    z: Shaped[Array | np.ndarray, "num_cells d"],
    counts: Shaped[Array | np.ndarray, "num_cells num_columns"],
    num_draws: int = 1000,
    config: SolveConfig = _DEFAULT,
) -> BootstrapResult:
    """Solves for the shift of every draw.

    The estimate `params`, where Psi is 0, is a pair if outputs are. The key decides the
    multipliers; more draws leave the earlier ones unchanged. If a solve did not converge,
    the message of the result is a NotConvergedWarning, too.

    Example:
      >>> def outputs(params, z):
      ...     return z @ params
      >>> def nll(logit, counts):
      ...     logits = jnp.concatenate([logit, -logit], axis=1)
      ...     return jnp.sum(counts * jax.nn.softplus(logits), axis=1)
      >>> # Both columns are outcomes of one trial, and of one source.
      >>> problem = BootstrapProblem(outputs, nll=nll, trial=(0, 0), source=(0, 0))
      >>> z, counts = jnp.ones((1, 1)), jnp.array([[20.0, 80.0]])
      >>> params = jnp.log(jnp.array([[4.0]]))  # the logit of 80 of 100
      >>> result = solve_bootstrap(jax.random.key(0), problem, params, z, counts)
      >>> error = 1 / (100 * 0.8 * 0.2) ** 0.5  # of the logit
      >>> bool(abs(result.shifts.std() / error - 1) < 0.1), result.converged
      (True, True)
    """
    z, counts = jnp.asarray(z, float), jnp.asarray(counts, float)
    check_cells(z, counts, problem)
    check_at_least("num_draws", num_draws, 2)
    moving, inputs = split_inputs(problem, params, z)
    equation = make_equation(problem, moving, inputs, counts, config.rows_per_batch)
    solve = make_solver(equation, config)
    step = config.draws_per_batch
    scores = [
        multiplied_scores(equation, key, np.arange(i, min(i + step, num_draws)))
        for i in range(0, num_draws, step)
    ]
    solutions, residuals = solve(np.concatenate(scores))
    result = BootstrapResult(
        shifts=-solutions,
        residuals=residuals,
        problem=problem,
        config=config,
        params=params,
        key=key,
        equation=equation,
    )
    if not result.converged:
        warnings.warn(result.message, NotConvergedWarning, stacklevel=2)
    return result


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
    training data are read. The function maps params and z (for scope='last_layer' those
    of the head, and features) to what is wanted; the outputs if None. It is compiled
    once, so pass the same function again. To stay inside a nonlinear constraint, take the outputs and apply the link to their draws. Returns the
    function's value at the estimate plus its Jacobian times the shift, with a leading
    axis [num_draws, num_points, ...]. `params` is that of the whole network.

    Example:
      >>> def outputs(params, z):
      ...     return z * params**2
      >>> problem = BootstrapProblem(outputs, nll=lambda outputs, counts: None)
      >>> params, shifts = jnp.array([3.0]), jnp.array([[0.1], [-0.2]])
      >>> draws = bootstrap_draws(problem, params, shifts, z=jnp.array([[1.0], [10.0]]))
      >>> draws[:, :, 0].astype(float).round(3).tolist()  # z (9 + 6 shift)
      [[9.6, 96.0], [7.8, 78.0]]
    """
    function = problem.function if function is None else function
    params, z = split_inputs(problem, params, jnp.asarray(z))
    shifts = jnp.asarray(shifts)
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

    def join(*leaves: np.ndarray) -> np.ndarray:
        return np.concatenate(leaves, axis=1)[:, : len(z)]

    return jax.tree.map(join, *parts)


def split_inputs(
    problem: BootstrapProblem, params: PyTree, z: Float[Array, "n d"]
) -> tuple[PyTree, Float[Array, "n width"]]:
    """Returns parameters and inputs of what is bootstrapped: head and features."""
    if problem.scope == "full" or not isinstance(problem.outputs, tuple):
        return params, z
    body, head = params
    starts = range(0, len(z), _ROWS)
    parts = [_apply(problem.outputs[0], body, z[i : i + _ROWS]) for i in starts]
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


def per_point_draws(
    result: BootstrapResult, z: Points, function: ModelFunction | None = None
) -> Float[np.ndarray, "num_draws num_points ..."]:
    """Computes the draws of a bootstrap again, point by point, without its shifts.

    For every number at every point one solve gives the influence of each column of each
    cell, and each draw sums multiplied influences. Returns what `BootstrapResult.draws`
    returns, for a function with one array as its result.
    """
    problem, equation = result.problem, result.equation
    function = problem.function if function is None else function
    params, inputs = split_inputs(problem, result.params, jnp.asarray(z))
    solve = make_solver(equation, result.config, transpose=True)
    draws = range(result.num_draws)
    normals = [multipliers(result.key, equation, draw).ravel() for draw in draws]
    points = []
    for i in range(len(inputs)):
        value, gradients = _value_and_gradients(function, params, inputs[i : i + 1])
        solution, _ = solve(gradients)
        influences = jnp.stack([influence(equation, each) for each in solution])
        influences = influences.reshape(len(gradients), -1)
        moved = np.stack([np.asarray(influences @ each) for each in normals])
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
