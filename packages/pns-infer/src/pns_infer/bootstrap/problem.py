"""What a multiplier bootstrap is about: functions and settings, equal by value.

The vocabulary of this folder:

- A cell is a covariate vector z and its counts: how many units with these covariates had
  each outcome. An outcome is a column of `counts`; each belongs to one source.
- The score of a unit is the gradient of its negative log-likelihood. The estimator solves
  Psi(theta) = 0: Psi is the sum over cells and columns of count times score, each source
  divided by its own number of units.
- A draw gives every unit an independent N(0, 1) multiplier; c units of one cell and column
  thus get sqrt(c) N(0, 1), exactly. G is the sum of multiplied scores, divided as Psi is.
- J is the derivative of Psi. A draw shifts the parameters by -J^{-1} G.

The solves do not depend on where the estimator is evaluated: they are done once, and a
point then costs one Jacobian-vector product per draw.

Curvatures. The anchored network is trained with the joint law held fixed inside the
experimental likelihood; `frozen_nll` says so. Its score differentiates the first argument
alone, so J is not symmetric:

- 'estimating_equation': J itself, both arguments live; the Hessian of an ordinary
  likelihood.
- 'ggn': the generalized Gauss-Newton matrix, without the part that goes through the frozen
  argument, and with the expected (Fisher) curvature of the outputs. Symmetric and never
  negative.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from pns_infer.core.inputs import check_at_least, check_option, check_shape

Scope = Literal["full", "last_layer"]
Curvature = Literal["ggn", "estimating_equation"]
ModelFunction = Callable[[Any, jax.Array], Any]  # of params and z


# The observational cells (x, y), then the experimental outcomes of each arm.
_CELLS = range(pb.BINARY.num_cells)
_TRIALS = (*(0 for _ in _CELLS), *(1 + i // pb.BINARY.num_levels for i in _CELLS))
_SOURCES = (*(0 for _ in _CELLS), *(1 for _ in _CELLS))


class TwoStage(NamedTuple):
    """Features and head as one function, equal to another of the same two."""

    features: ModelFunction
    head: ModelFunction

    def __call__(self, params: PyTree, z: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """Evaluates the whole network."""
        body, head = params
        return self.head(head, self.features(body, z))


@dataclasses.dataclass(frozen=True)
class BootstrapProblem:
    """Which estimator is bootstrapped. Problems of the same functions are equal.

    Nothing is compiled again for an equal problem and arrays of the same shapes. Two
    functions are equal only if they are the same object (two `functools.partial` or
    lambdas never are), so define them once.

    Attributes:
      outputs: maps params and z [n, d] to outputs [n, k]; or a pair of functions: the
        features [n, width] of params and z, and the head, which maps its params and
        features to outputs. Then params are a pair (body, head).
      nll: maps outputs [n, k] and counts [n, c] to the negative log-likelihood of each
        cell [n]; linear in the counts, and for a single count -log of its probability.
      frozen_nll: instead of `nll`, if training stops gradients at a part of the outputs:
        maps outputs, frozen outputs and counts to [n].
      trial: of each column of counts; columns of the same trial are its outcomes, whose
        probabilities sum to 1. By default those of log and arms, in the order of
        `pns_bounds.Atoms`.
      source: of each column; each source is divided by its own size.
      scope: 'full', or 'last_layer', which takes the features of a pair as fixed.
    """

    outputs: ModelFunction | tuple[ModelFunction, ModelFunction]
    _: dataclasses.KW_ONLY
    nll: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    frozen_nll: Callable[[jax.Array, jax.Array, jax.Array], jax.Array] | None = None
    trial: tuple[int, ...] = _TRIALS
    source: tuple[int, ...] = _SOURCES
    scope: Scope = "full"

    def __post_init__(self) -> None:
        check_option("scope", self.scope, ("full", "last_layer"))
        if (self.nll is None) == (self.frozen_nll is None):
            raise pb.InputError("nll", "or frozen_nll must be given, and not both.")
        if self.scope == "last_layer" and not isinstance(self.outputs, tuple):
            problem = "must be a pair of features and head for the last layer."
            raise pb.InputError("outputs", problem)
        if len(self.source) != len(self.trial):
            raise pb.InputError("trial", "and source must have one entry per column.")

    @property
    def function(self) -> ModelFunction:
        """What is bootstrapped: the head alone for scope='last_layer'."""
        if not isinstance(self.outputs, tuple):
            return self.outputs
        network = TwoStage(*self.outputs)
        return network.head if self.scope == "last_layer" else network

    def losses(
        self,
        outputs: Float[Array, "n k"],
        frozen: Float[Array, "n k"],
        counts: Float[Array, "n c"],
    ) -> Float[Array, " n"]:
        """Evaluates the negative log-likelihood of each cell."""
        if self.frozen_nll is not None:
            return self.frozen_nll(outputs, frozen, counts)
        assert self.nll is not None  # __post_init__
        return self.nll(outputs, counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolveConfig:
    """How the linear systems are solved.

    Attributes:
      curvature: 'ggn' or 'estimating_equation'.
      damping: added to the diagonal of J, whose scale is that of a mean loss.
      direct_up_to: number of parameters up to which J is formed and factored, once for
        all draws; beyond that solves are iterative. Matrix and factor take 16 bytes per
        pair of parameters (1 GB for 8,000) and the time of forming them grows with the
        number of pairs, that of factoring them faster still.
      preconditioner_rank: products with 'ggn' that are spent on finding its large
        eigenvalues before iterative solves; 0 for none. J itself has none.
      max_iterations: of conjugate gradients (GMRES for 'estimating_equation').
      tolerance: relative residual at which they stop; a result with more than that, and
        than 0.001, has not converged.
      rows_per_batch: cells whose activations are held at a time.
      draws_per_batch: draws whose activations a device holds at a time.
    """

    curvature: Curvature = "ggn"
    damping: float = 1e-4
    direct_up_to: int = 8000
    preconditioner_rank: int = 200
    max_iterations: int = 50
    tolerance: float = 1e-3
    rows_per_batch: int = 8192
    draws_per_batch: int = 25

    def __post_init__(self) -> None:
        check_option("curvature", self.curvature, ("ggn", "estimating_equation"))
        if not self.tolerance > 0:
            raise pb.InputError("tolerance", f"must be positive, got {self.tolerance}.")
        for name in ("damping", "direct_up_to", "preconditioner_rank"):
            check_at_least(name, getattr(self, name), 0)
        for name in ("max_iterations", "rows_per_batch", "draws_per_batch"):
            check_at_least(name, getattr(self, name), 1)


Vector = Float[Array, " num_parameters"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["params", "inputs", "counts", "sizes"],
    meta_fields=["problem"],
)
@dataclasses.dataclass(frozen=True)
class Equation:
    """Psi around the estimate; the last batch of cells is filled with empty ones.

    Nothing is compiled twice for equal problems and arrays of the same shapes.
    """

    problem: BootstrapProblem
    params: PyTree  # the estimate, of the bootstrapped function
    inputs: Float[Array, "num_batches batch width"]  # covariates, or features
    counts: Float[Array, "num_batches batch num_columns"]
    sizes: Float[Array, " num_columns"]  # units in the source of each column

    @property
    def vector(self) -> Vector:
        """The parameters as one vector, in the order of `ravel_pytree`."""
        return ravel_pytree(self.params)[0]

    @property
    def num_parameters(self) -> int:
        """Length of the vector."""
        return sum(np.size(leaf) for leaf in jax.tree.leaves(self.params))

    def outputs(
        self, vector: Vector, inputs: Float[Array, "n width"]
    ) -> Float[Array, "n k"]:
        """Evaluates the bootstrapped function."""
        return self.problem.function(ravel_pytree(self.params)[1](vector), inputs)


def check_cells(
    z: Float[Array, "num_cells d"],
    counts: Float[Array, "num_cells num_columns"],
    problem: BootstrapProblem,
) -> None:
    """Raises unless every source has units, with finite covariates."""
    check_shape("z", z, ("n", "d"))
    check_shape("counts", counts, (len(z), len(problem.trial)))
    if not bool(jnp.all(jnp.isfinite(counts) & (counts >= 0))):
        raise pb.InputError("counts", "must be finite and not negative.")
    if not bool(jnp.all(jnp.isfinite(z))):
        raise pb.InputError("z", "must be finite.")
    for source in sorted(set(problem.source)):
        if not float(counts[:, np.array(problem.source) == source].sum()) > 0:
            raise pb.InputError("counts", f"of source {source} are all 0: no units.")


def make_equation(
    problem: BootstrapProblem,
    params: PyTree,
    inputs: Float[Array, "num_cells width"],
    counts: Float[Array, "num_cells num_columns"],
    batch: int,
) -> Equation:
    """Cuts cells into batches of equal size."""
    source = np.array(problem.source)
    by_source = np.bincount(source, np.asarray(counts, float).sum(axis=0))
    batch = min(batch, len(inputs))
    missing = -len(inputs) % batch
    inputs = jnp.concatenate([inputs, jnp.repeat(inputs[:1], missing, axis=0)])
    counts = jnp.concatenate([counts, jnp.zeros((missing, counts.shape[1]))])
    return Equation(
        problem=problem,
        params=params,
        inputs=inputs.reshape(-1, batch, inputs.shape[1]),
        counts=counts.reshape(-1, batch, counts.shape[1]),
        sizes=jnp.asarray(by_source[source], counts.dtype),
    )


def batch_multipliers(
    key: PRNGKeyArray, draw: int | Array, number: int | Array, shape: tuple[int, ...]
) -> Float[Array, "batch num_columns"]:
    """Makes the multipliers of one draw for batch `number` of the cells."""
    key = jax.random.fold_in(jax.random.fold_in(key, draw), number)
    return jax.random.normal(key, shape)


def multipliers(
    key: PRNGKeyArray, equation: Equation, draw: int
) -> Float[Array, "num_cells num_columns"]:
    """Makes the multipliers of one draw for all cells, the empty ones too."""
    num_batches, *shape = equation.counts.shape
    return jnp.concatenate(
        [batch_multipliers(key, draw, i, tuple(shape)) for i in range(num_batches)]
    )


def output_gradient(
    problem: BootstrapProblem,
    outputs: Float[Array, "n k"],
    weights: Float[Array, "n c"],
) -> Float[Array, "n k"]:
    """Differentiates the weighted loss by the outputs, the frozen ones held."""
    return jax.grad(lambda o: jnp.sum(problem.losses(o, outputs, weights)))(outputs)


@jax.jit
def multiplied_scores(
    equation: Equation, key: PRNGKeyArray, draws: Int[Array, " d"]
) -> Float[Array, "d num_parameters"]:
    """Sums multiplied scores: G of each of these draws."""
    vector = equation.vector

    def add(total: jax.Array, batch: tuple) -> tuple[jax.Array, None]:
        number, inputs, counts = batch
        outputs, pull = jax.vjp(lambda v: equation.outputs(v, inputs), vector)

        def of_draw(draw: jax.Array) -> jax.Array:
            normals = batch_multipliers(key, draw, number, counts.shape)
            weights = jnp.sqrt(counts) * normals / equation.sizes
            return pull(output_gradient(equation.problem, outputs, weights))[0]

        return total + jax.vmap(of_draw)(draws), None

    start = jnp.zeros((len(draws), len(vector)), vector.dtype)
    numbers = jnp.arange(len(equation.inputs))
    numbered = (numbers, equation.inputs, equation.counts)
    return jax.lax.scan(add, start, numbered)[0]


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
        _, scores = column_scores(equation.problem, outputs, counts.shape)
        along = jnp.einsum("cnk,nk->nc", scores, change)
        return along * jnp.sqrt(counts) / equation.sizes

    return jax.lax.map(of_batch, (equation.inputs, equation.counts))


def column_scores(
    problem: BootstrapProblem, outputs: Float[Array, "n k"], shape: tuple[int, ...]
) -> tuple[Float[Array, "c n"], Float[Array, "c n k"]]:
    """Evaluates the loss of one unit in each column, and its gradient by the outputs."""

    def of_column(column: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights = jnp.broadcast_to(column, shape)
        loss = problem.losses(outputs, outputs, weights)
        return loss, output_gradient(problem, outputs, weights)

    return jax.vmap(of_column)(jnp.eye(shape[1], dtype=outputs.dtype))
