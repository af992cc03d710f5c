"""Scores and the derivative J of the estimating equation, a batch of cells at a time.

Symbols are those of `problem`.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from pns_infer.bootstrap.equation import Equation, Vector, batch_multipliers
from pns_infer.bootstrap.problem import BootstrapProblem, Curvature


def output_gradient(
    problem: BootstrapProblem,
    outputs: Float[Array, "n k"],
    frozen: Float[Array, "n k"],
    weights: Float[Array, "n c"],
) -> Float[Array, "n k"]:
    """Differentiates the weighted loss by the outputs, the frozen ones held."""
    return jax.grad(lambda o: jnp.sum(problem.losses(o, frozen, weights)))(outputs)


@jax.jit
def multiplied_scores(
    equation: Equation, key: PRNGKeyArray, draws: Int[Array, " d"]
) -> Float[Array, "d num_parameters"]:
    """Sums multiplied scores: G of each of these draws."""
    problem, vector = equation.problem, equation.vector

    def add(total: jax.Array, batch: tuple) -> tuple[jax.Array, None]:
        number, inputs, counts = batch
        outputs, pull = jax.vjp(lambda v: equation.outputs(v, inputs), vector)

        def of_draw(draw: jax.Array) -> jax.Array:
            normals = batch_multipliers(key, draw, number, counts.shape)
            weights = jnp.sqrt(counts) * normals / equation.sizes
            return pull(output_gradient(problem, outputs, outputs, weights))[0]

        return total + jax.vmap(of_draw)(draws), None

    start = jnp.zeros((len(draws), len(vector)), vector.dtype)
    numbers = jnp.arange(len(equation.inputs))
    numbered = (numbers, equation.inputs, equation.counts)
    return jax.lax.scan(add, start, numbered)[0]


def product(
    equation: Equation,
    curvature: Curvature,
    damping: float | Float[Array, ""],
    direction: Vector,
) -> Vector:
    """Computes (J + damping) direction."""
    of_batch = {
        "ggn": _ggn_product,
        "hessian": functools.partial(_score_derivative, hold=True),
        "estimating_equation": functools.partial(_score_derivative, hold=False),
    }[curvature]

    def add(total: jax.Array, batch: tuple) -> tuple[jax.Array, None]:
        part = of_batch(equation, *batch, direction)
        return total + part, None

    batches = (equation.inputs, equation.counts)
    return jax.lax.scan(add, damping * direction, batches)[0]


@functools.partial(jax.jit, static_argnums=1)
def dense_matrix(
    equation: Equation, curvature: Curvature
) -> Float[Array, "num_parameters num_parameters"]:
    """Forms J, 64 columns at a time."""
    vector = equation.vector
    columns = jax.lax.map(
        functools.partial(product, equation, curvature, 0.0),
        jnp.eye(len(vector), dtype=vector.dtype),
        batch_size=min(64, len(vector)),
    )
    return columns.T  # row i of the products is J e_i


@jax.jit
def influence(
    equation: Equation, direction: Vector
) -> Float[Array, "num_batches batch num_columns"]:
    """Computes each cell's and column's score along a direction, times sqrt(count) / n."""

    def of_batch(batch: tuple) -> jax.Array:
        inputs, counts = batch
        outputs, change = jax.jvp(
            lambda v: equation.outputs(v, inputs), (equation.vector,), (direction,)
        )
        _, scores = _column_scores(equation.problem, outputs, counts.shape)
        along = jnp.einsum("cnk,nk->nc", scores, change)
        return along * jnp.sqrt(counts) / equation.sizes

    return jax.lax.map(of_batch, (equation.inputs, equation.counts))


def _score_derivative(
    equation: Equation,
    inputs: Float[Array, "n width"],
    counts: Float[Array, "n c"],
    direction: Vector,
    hold: bool,
) -> Vector:
    """Differentiates a batch's part of Psi, the frozen argument held or live."""

    def psi(v: jax.Array) -> jax.Array:
        outputs, pull = jax.vjp(lambda v: equation.outputs(v, inputs), v)
        frozen = jax.lax.stop_gradient(outputs) if hold else outputs
        weights = counts / equation.sizes
        return pull(output_gradient(equation.problem, outputs, frozen, weights))[0]

    return jax.jvp(psi, (equation.vector,), (direction,))[1]


def _ggn_product(
    equation: Equation,
    inputs: Float[Array, "n width"],
    counts: Float[Array, "n c"],
    direction: Vector,
) -> Vector:
    """Multiplies by Jacobian transposed, Fisher matrix of the outputs, and Jacobian."""
    outputs, push = jax.linearize(
        lambda v: equation.outputs(v, inputs), equation.vector
    )
    fisher = output_fisher(equation, outputs, counts)
    change = jnp.einsum("nij,nj->ni", fisher, push(direction))
    return jax.linear_transpose(push, equation.vector)(change)[0]


def output_fisher(
    equation: Equation, outputs: Float[Array, "n k"], counts: Float[Array, "n c"]
) -> Float[Array, "n k k"]:
    """Computes the expected curvature of the loss in the outputs.

    For each trial (group of columns) it is the number of units times the sum over
    outcomes of probability times score times its transpose.
    """
    losses, scores = _column_scores(equation.problem, outputs, counts.shape)
    trial = np.array(equation.problem.columns.trial)
    same = jnp.asarray(trial[:, None] == trial[None, :], counts.dtype)
    expected = jnp.exp(-losses).T * (counts @ same) / equation.sizes  # [n, c]
    return jnp.einsum("nc,cni,cnj->nij", expected, scores, scores)


def _column_scores(
    problem: BootstrapProblem, outputs: Float[Array, "n k"], shape: tuple[int, ...]
) -> tuple[Float[Array, "c n"], Float[Array, "c n k"]]:
    """Evaluates the loss of one unit in each column, and its gradient by the outputs."""

    def of_column(column: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights = jnp.broadcast_to(column, shape)
        loss = problem.losses(outputs, outputs, weights)
        return loss, output_gradient(problem, outputs, outputs, weights)

    return jax.vmap(of_column)(jnp.eye(shape[1], dtype=outputs.dtype))
