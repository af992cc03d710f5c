"""Multiplier bootstrap of an estimator that solves Psi(theta) = 0, by shared solves.

The vocabulary. The data are rows with counts: how many people with covariates z fell into
each cell (a column of `counts`). Psi is the sum over cells of count times the score, the
gradient of the cell's negative log-likelihood, each sample divided by its own size n.
A draw gives every person an independent N(0, 1) multiplier; a cell of c people thus gets
sqrt(c) N(0, 1), exactly. With G the sum of multiplied scores and J the derivative of Psi,
the draw moves the parameters by -J^{-1} G.

The solves do not depend on where the estimator is evaluated, so they are done once, and a
point costs one Jacobian-vector product per draw. (The paper solves anew for each point:
`per_point_draws`, kept as a reference.)

Curvatures. The anchored network is trained with the joint law held fixed inside the
experimental likelihood; `frozen_nll` says so. Its score differentiates the first argument
alone, so J is not symmetric:

- 'estimating_equation': J itself, both arguments live.
- 'hessian': J without the part that goes through the frozen argument. Symmetric; J itself
  for an ordinary likelihood.
- 'ggn': the generalised Gauss-Newton matrix of the same, with the expected (Fisher)
  curvature of the outputs. Symmetric and never negative.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.sparse.linalg import cg, gmres

from pns_infer._inputs import check_option

Scope = Literal["full", "last_layer"]
Curvature = Literal["hessian", "ggn", "estimating_equation"]
Outputs = Callable[[Any, jax.Array], jax.Array]


class CellLayout(NamedTuple):
    """What the columns of `counts` are.

    Attributes:
      group: columns of the same group are the outcomes of one trial; their
        probabilities sum to 1.
      source: the sample a column belongs to; each is divided by its own size.
    """

    group: tuple[int, ...]
    source: tuple[int, ...]


# Four observational cells (x, y), then two experimental cells for each arm.
TWO_TABLES = CellLayout(group=(0, 0, 0, 0, 1, 1, 2, 2), source=(0, 0, 0, 0, 1, 1, 1, 1))


class TwoStage(NamedTuple):
    """A network as features and a last layer; its params are a pair (body, head).

    Attributes:
      features: maps body parameters and z [n, d] to features [n, width].
      head: maps head parameters and features [n, width] to outputs [n, k].
    """

    features: Callable[[Any, jax.Array], jax.Array]
    head: Callable[[Any, jax.Array], jax.Array]


class NotConvergedWarning(UserWarning):
    """A linear solve ended before it reached its tolerance."""


class _Problem(NamedTuple):
    """Functions and settings; hashable, so that it can be a static argument of jit."""

    outputs: Outputs  # of the flat parameter vector
    frozen_nll: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    layout: CellLayout
    curvature: Curvature
    damping: float
    max_iterations: int
    tolerance: float


class _Rows(NamedTuple):
    """Rows in batches [num_batches, batch, ...]; the last is filled with empty rows."""

    z: jax.Array
    counts: jax.Array
    sizes: jax.Array  # [num_columns] people in the sample of each column


class MultiplierBootstrap:
    """Draws of a fitted model that stand for its sampling error.

    Attributes:
      shifts: [num_draws, num_parameters] what each draw adds to the parameters.
      residuals: [num_draws] relative residuals of the linear solves.
    """

    def __init__(
        self,
        key: jax.Array,
        outputs: Outputs | TwoStage,
        nll: Callable[[jax.Array, jax.Array], jax.Array],
        params: Any,
        z: Any,
        counts: Any,
        *,
        num_draws: int = 1000,
        frozen_nll: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
        | None = None,
        layout: CellLayout = TWO_TABLES,
        scope: Scope = "full",
        curvature: Curvature = "ggn",
        damping: float = 1e-4,
        max_iterations: int = 50,
        tolerance: float = 1e-3,
        rows_per_batch: int = 8192,
        draws_per_batch: int = 25,
    ):
        """Does the solves.

        Args:
          key: decides the multipliers.
          outputs: maps params and z [n, d] to outputs [n, k]; or a TwoStage.
          nll: maps outputs [n, k] and counts [n, c] to the negative log-likelihood of
            each row [n]; linear in the counts.
          params: the estimate, where Psi is 0.
          z: [n, d] covariates of the rows.
          counts: [n, c] people in each cell of each row.
          num_draws: of the bootstrap.
          frozen_nll: maps outputs, frozen outputs and counts to [n], if training stops
            gradients at a part of the outputs; equal to `nll` if both are the same.
          layout: what the columns of counts are.
          scope: 'full', or 'last_layer' (needs a TwoStage), which takes the features as
            fixed and solves directly.
          curvature: 'ggn', 'hessian' or 'estimating_equation'.
          damping: added to the diagonal of J, whose scale is that of a mean loss.
          max_iterations: of conjugate gradients (GMRES for 'estimating_equation').
          tolerance: relative residual at which they stop; more than that, and than 0.001,
            is warned of.
          rows_per_batch: rows whose activations are held at a time.
          draws_per_batch: draws solved at a time.
        """
        check_option("scope", scope, ("full", "last_layer"))
        check_option("curvature", curvature, ("hessian", "ggn", "estimating_equation"))
        z, counts = jnp.asarray(z, float), jnp.asarray(counts, float)
        _check_rows(z, counts, layout)
        if num_draws < 2:
            raise ValueError(f"num_draws must be at least 2, got {num_draws}.")
        if damping < 0:
            raise ValueError(f"damping must not be negative, got {damping}.")
        self._inputs: Callable[[jax.Array], jax.Array] = lambda z: z
        if scope == "last_layer":
            if not isinstance(outputs, TwoStage):
                raise ValueError(
                    "scope='last_layer' needs outputs as a TwoStage of features and head."
                )
            features, body = jax.jit(outputs.features), params[0]
            self._inputs = functools.partial(_in_batches, features, body)
            outputs, params = outputs.head, params[1]
        elif isinstance(outputs, TwoStage):
            outputs = functools.partial(_two_stage_outputs, outputs)
        vector, unravel = ravel_pytree(params)
        self._vector, self._unravel = vector, unravel
        self._outputs = outputs
        self.scope = scope
        if frozen_nll is None:
            frozen_nll = functools.partial(_unfrozen, nll)
        self._problem = _Problem(
            outputs=lambda v, z: outputs(unravel(v), z),
            frozen_nll=frozen_nll,
            layout=layout,
            curvature=curvature,
            damping=damping,
            max_iterations=max_iterations,
            tolerance=tolerance,
        )
        self._rows = _batch_rows(self._inputs(z), counts, layout, rows_per_batch)
        self._key, self.num_draws = key, num_draws
        moved = []
        residuals = []
        factors = self._dense() if scope == "last_layer" else None
        for start in range(0, num_draws, draws_per_batch):
            which = jnp.arange(start, min(start + draws_per_batch, num_draws))
            right = _multiplied_scores(self._problem, vector, self._rows, key, which)
            solution, residual = self._solve(right, factors)
            moved.append(-np.asarray(solution))
            residuals.append(np.asarray(residual))
        self.shifts = np.concatenate(moved)
        self.residuals = np.concatenate(residuals)
        self._warn()

    def draws(
        self,
        z: Any,
        function: Callable[[Any, jax.Array], Any] | None = None,
        points_per_chunk: int = 1024,
    ) -> Any:
        """Evaluates every draw at points z [m, d], to first order in the shift.

        Args:
          z: the points; no training rows are needed.
          function: maps params (of the head alone for scope='last_layer', where z are
            then features) and z to what is wanted; the outputs if None. To stay inside a
            nonlinear constraint, take the outputs and apply the link to their draws.
          points_per_chunk: points at a time.

        Returns:
          What the function returns, with a leading axis [num_draws, m, ...]: its value
          at the estimate plus its Jacobian times the shift.
        """
        function = self._outputs if function is None else function
        inputs = self._inputs(jnp.asarray(z))
        params = self._unravel(self._vector)
        return linear_draws(function, params, self.shifts, inputs, points_per_chunk)

    def multipliers(self, draw: int) -> jax.Array:
        """Returns the multipliers [num_rows, num_columns] of one draw (padded rows too)."""
        num_batches, batch = self._rows.counts.shape[:2]
        columns = self._rows.counts.shape[2]
        return jnp.concatenate(
            [_normals(self._key, draw, i, (batch, columns)) for i in range(num_batches)]
        )

    def _solve(self, right: jax.Array, factors: Any) -> tuple[jax.Array, jax.Array]:
        if factors is None:
            return _solve_iteratively(self._problem, self._vector, self._rows, right)
        matrix, solve = factors
        solution = solve(right)
        gap = solution @ matrix.T - right
        return solution, jnp.linalg.norm(gap, axis=1) / jnp.linalg.norm(right, axis=1)

    def _dense(self) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
        """Forms J of the last layer and factors it."""
        size = len(self._vector)
        columns = [
            _products(self._problem, self._vector, self._rows, part)
            for part in jnp.array_split(jnp.eye(size), -(-size // 64))
        ]
        matrix = jnp.concatenate(columns).T  # row i of the products is J e_i
        if self._problem.curvature == "estimating_equation":
            factor = jax.scipy.linalg.lu_factor(matrix)
            return matrix, lambda right: jax.scipy.linalg.lu_solve(factor, right.T).T
        factor = jax.scipy.linalg.cho_factor((matrix + matrix.T) / 2)
        if not bool(jnp.all(jnp.isfinite(factor[0]))):
            raise ValueError(
                f"the {self._problem.curvature} of the last layer with damping "
                f"{self._problem.damping:g} is not positive definite; take more damping, "
                "or curvature='ggn'."
            )
        return matrix, lambda right: jax.scipy.linalg.cho_solve(factor, right.T).T

    def _warn(self) -> None:
        worst = float(np.max(self.residuals))
        limit = max(self._problem.tolerance, 1e-3)
        if not worst <= limit:
            share = float(np.mean(~(self.residuals <= limit)))
            warnings.warn(
                f"{share:.0%} of {self.num_draws} solves did not reach the tolerance "
                f"{limit:g} (worst relative residual {worst:.2g}); take more damping or "
                "more max_iterations.",
                NotConvergedWarning,
                stacklevel=3,
            )


def per_point_draws(
    bootstrap: MultiplierBootstrap,
    z: Any,
    function: Callable[[Any, jax.Array], jax.Array] | None = None,
) -> np.ndarray:
    """Computes the same draws point by point, as the paper does: a slow reference.

    For every number at every point one solve gives the influence of each cell of each
    row, and each draw sums multiplied influences.

    Args:
      bootstrap: supplies the model, the rows and the multipliers.
      z: [m, d] points.
      function: as for `MultiplierBootstrap.draws`, with one array as its result.

    Returns:
      [num_draws, m, ...] as `MultiplierBootstrap.draws`.
    """
    self = bootstrap
    problem, vector, rows = self._problem, self._vector, self._rows
    function = self._outputs if function is None else function
    factors = self._dense() if self.scope == "last_layer" else None
    inputs = self._inputs(jnp.asarray(z))
    num_rows = rows.counts.shape[0] * rows.counts.shape[1]
    columns = rows.counts.shape[2]
    results = []
    for i in range(len(inputs)):

        def at_point(v, i=i):
            return function(self._unravel(v), inputs[i : i + 1])

        value = at_point(vector)
        gradients = jax.jacrev(at_point)(vector).reshape(-1, len(vector))
        if factors is None:
            solution, _ = _solve_iteratively(
                problem, vector, rows, gradients, transpose=True
            )
        else:
            solution = jnp.linalg.solve(factors[0].T, gradients.T).T
        influence = jnp.stack(
            [_influence(problem, vector, rows, direction) for direction in solution]
        ).reshape(len(gradients), num_rows * columns)
        moved = np.stack(
            [
                np.asarray(influence @ self.multipliers(b).ravel())
                for b in range(self.num_draws)
            ]
        )
        shape = (self.num_draws, *value.shape)
        results.append(np.asarray(value)[None] - moved.reshape(shape))
    return np.concatenate(results, axis=1)


def linear_draws(
    function: Callable[[Any, jax.Array], Any],
    params: Any,
    shifts: Any,
    z: Any,
    points_per_chunk: int = 1024,
) -> Any:
    """Evaluates a function at shifted parameters, to first order.

    With the shifts of a bootstrap on disk, this is all that new points need.

    Args:
      function: maps params and z [m, d] to what is wanted, [m, ...]; compiled once for
        each function, so pass the same one again.
      params: the estimate.
      shifts: [num_draws, num_parameters], in the order of `ravel_pytree(params)`.
      z: [m, d] points.
      points_per_chunk: points at a time.

    Returns:
      What the function returns, with a leading axis [num_draws, m, ...].
    """
    z, shifts = jnp.asarray(z), jnp.asarray(shifts)
    num_parameters = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    if shifts.shape[1:] != (num_parameters,):
        raise ValueError(
            f"shifts must have shape [num_draws, {num_parameters}], one column per "
            f"parameter, got {list(shifts.shape)}."
        )
    size = min(points_per_chunk, max(len(z), 1))
    missing = -len(z) % size
    filled = jnp.concatenate([z, jnp.repeat(z[:1], missing, axis=0)])
    parts = [
        jax.tree.map(np.asarray, _shifted(function, params, shifts, block))
        for block in jnp.split(filled, len(filled) // size)
    ]
    return jax.tree.map(
        lambda *leaves: np.concatenate(leaves, axis=1)[:, : len(z)], *parts
    )


@functools.partial(jax.jit, static_argnums=0)
def _shifted(function, params, shifts, z):
    vector, unravel = ravel_pytree(params)
    value, push = jax.linearize(lambda v: function(unravel(v), z), vector)
    moved = jax.lax.map(push, shifts, batch_size=16)
    return jax.tree.map(lambda a, b: a[None] + b, value, moved)


def _two_stage_outputs(model: TwoStage, params: Any, z: jax.Array) -> jax.Array:
    body, head = params
    return model.head(head, model.features(body, z))


def _unfrozen(nll, outputs, frozen, counts):
    del frozen
    return nll(outputs, counts)


def _in_batches(function, params, z, size: int = 8192) -> jax.Array:
    return jnp.concatenate(
        [function(params, z[i : i + size]) for i in range(0, len(z), size)]
    )


def _check_rows(z: jax.Array, counts: jax.Array, layout: CellLayout) -> None:
    columns = len(layout.group)
    if len(layout.source) != columns:
        raise ValueError("a layout needs as many sources as groups, one per column.")
    if z.ndim != 2 or counts.shape != (len(z), columns):
        raise ValueError(
            f"z and counts must have shapes [n, d] and [n, {columns}], got "
            f"{list(z.shape)} and {list(counts.shape)}."
        )
    if not bool(jnp.all(jnp.isfinite(counts) & (counts >= 0))):
        raise ValueError("counts must be finite and not negative.")
    if not bool(jnp.all(jnp.isfinite(z))):
        raise ValueError("z must be finite.")
    for source in sorted(set(layout.source)):
        of_source = np.array(layout.source) == source
        if not float(counts[:, of_source].sum()) > 0:
            raise ValueError(f"sample {source} has no people: its counts are all 0.")


def _batch_rows(z, counts, layout: CellLayout, size: int) -> _Rows:
    by_source = np.zeros(max(layout.source) + 1)
    np.add.at(by_source, list(layout.source), np.asarray(counts, float).sum(axis=0))
    size = min(size, len(z))
    missing = -len(z) % size
    z = jnp.concatenate([z, jnp.repeat(z[:1], missing, axis=0)])
    counts = jnp.concatenate([counts, jnp.zeros((missing, counts.shape[1]))])
    return _Rows(
        z=z.reshape(-1, size, *z.shape[1:]),
        counts=counts.reshape(-1, size, counts.shape[1]),
        sizes=jnp.asarray(by_source[list(layout.source)], counts.dtype),
    )


def _normals(key, draw, batch, shape) -> jax.Array:
    return jax.random.normal(
        jax.random.fold_in(jax.random.fold_in(key, draw), batch), shape
    )


def _output_gradient(problem: _Problem, outputs, frozen, weights):
    """Differentiates the weighted loss by the outputs, the frozen ones held."""
    return jax.grad(lambda o: jnp.sum(problem.frozen_nll(o, frozen, weights)))(outputs)


@functools.partial(jax.jit, static_argnums=0)
def _multiplied_scores(problem: _Problem, vector, rows: _Rows, key, which):
    """Sums multiplied scores: G [len(which), num_parameters]."""

    def add(total, batch):
        number, z, counts = batch
        outputs, pull = jax.vjp(lambda v: problem.outputs(v, z), vector)

        def one(draw):
            normals = _normals(key, draw, number, counts.shape)
            weights = jnp.sqrt(counts) * normals / rows.sizes
            return pull(_output_gradient(problem, outputs, outputs, weights))[0]

        return total + jax.vmap(one)(which), None

    start = jnp.zeros((len(which), len(vector)), vector.dtype)
    numbered = (jnp.arange(len(rows.z)), rows.z, rows.counts)
    return jax.lax.scan(add, start, numbered)[0]


def _product(problem: _Problem, vector, rows: _Rows, direction) -> jax.Array:
    """Computes (J + damping) direction, a batch of rows at a time."""

    def add(total, batch):
        z, counts = batch
        weights = counts / rows.sizes

        def outputs(v):
            return problem.outputs(v, z)

        if problem.curvature == "ggn":
            values, push = jax.linearize(outputs, vector)
            fisher = _output_fisher(problem, values, counts, rows.sizes)
            (part,) = jax.linear_transpose(push, vector)(
                jnp.einsum("nij,nj->ni", fisher, push(direction))
            )
            return total + part, None

        def score(v):
            values, pull = jax.vjp(outputs, v)
            frozen = values
            if problem.curvature == "hessian":
                frozen = jax.lax.stop_gradient(values)
            return pull(_output_gradient(problem, values, frozen, weights))[0]

        return total + jax.jvp(score, (vector,), (direction,))[1], None

    total = problem.damping * direction
    return jax.lax.scan(add, total, (rows.z, rows.counts))[0]


@functools.partial(jax.jit, static_argnums=0)
def _products(problem: _Problem, vector, rows: _Rows, directions) -> jax.Array:
    return jax.vmap(lambda d: _product(problem, vector, rows, d))(directions)


def _output_fisher(problem: _Problem, outputs, counts, sizes) -> jax.Array:
    """Computes the expected curvature [n, k, k] of the loss in the outputs.

    For each trial (group of columns) it is the number of people times the sum over
    outcomes of probability times score times its transpose.
    """
    groups = np.array(problem.layout.group)
    columns = jnp.eye(len(groups), dtype=outputs.dtype)

    def of_column(column):
        weights = jnp.broadcast_to(column, counts.shape)
        loss = problem.frozen_nll(outputs, outputs, weights)
        return loss, _output_gradient(problem, outputs, outputs, weights)

    losses, scores = jax.vmap(of_column)(columns)  # [c, n], [c, n, k]
    same = jnp.asarray(groups[:, None] == groups[None, :], counts.dtype)
    expected = jnp.exp(-losses).T * (counts @ same) / sizes  # [n, c]
    return jnp.einsum("nc,cni,cnj->nij", expected, scores, scores)


@functools.partial(jax.jit, static_argnums=0, static_argnames="transpose")
def _solve_iteratively(problem: _Problem, vector, rows: _Rows, right, transpose=False):
    """Solves for each right-hand side [d, num_parameters]; returns residuals, too."""

    def apply(direction):
        def product(direction):
            return _product(problem, vector, rows, direction)

        if transpose and problem.curvature == "estimating_equation":
            return jax.linear_transpose(product, vector)(direction)[0]
        return product(direction)

    def solve(b):
        options = {"tol": problem.tolerance, "maxiter": problem.max_iterations}
        if problem.curvature == "estimating_equation":
            restart = min(20, problem.max_iterations)
            options["maxiter"] = -(-problem.max_iterations // restart)
            solution, _ = gmres(apply, b, restart=restart, **options)
        else:
            solution, _ = cg(apply, b, **options)
        size = jnp.linalg.norm(b)
        return solution, jnp.linalg.norm(apply(solution) - b) / jnp.where(
            size > 0, size, 1
        )

    return jax.vmap(solve)(right)


@functools.partial(jax.jit, static_argnums=0)
def _influence(problem: _Problem, vector, rows: _Rows, direction) -> jax.Array:
    """Computes each cell's score along a direction, times sqrt(count) / n."""

    def of_batch(batch):
        z, counts = batch
        outputs, change = jax.jvp(
            lambda v: problem.outputs(v, z), (vector,), (direction,)
        )

        def of_column(column):
            weights = jnp.broadcast_to(column, counts.shape)
            gradient = _output_gradient(problem, outputs, outputs, weights)
            return jnp.sum(gradient * change, axis=-1)

        along = jax.vmap(of_column)(jnp.eye(counts.shape[1], dtype=outputs.dtype)).T
        return along * jnp.sqrt(counts) / rows.sizes

    return jax.lax.map(of_batch, (rows.z, rows.counts))
