"""The estimating equation about an estimate, with its cells in batches."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from pns_infer.bootstrap.problem import BootstrapProblem, CountColumns
from pns_infer.core.inputs import check_shape

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
    columns: CountColumns,
) -> None:
    """Raises unless every source has units, with finite covariates."""
    check_shape("z", z, ("n", "d"))
    check_shape("counts", counts, (len(z), len(columns.trial)))
    if not bool(jnp.all(jnp.isfinite(counts) & (counts >= 0))):
        raise pb.InputError("counts", "must be finite and not negative.")
    if not bool(jnp.all(jnp.isfinite(z))):
        raise pb.InputError("z", "must be finite.")
    for source in sorted(set(columns.source)):
        if not float(counts[:, np.array(columns.source) == source].sum()) > 0:
            raise pb.InputError("counts", f"of source {source} are all 0: no units.")


def make_equation(
    problem: BootstrapProblem,
    params: PyTree,
    inputs: Float[Array, "num_cells width"],
    counts: Float[Array, "num_cells num_columns"],
    batch: int,
) -> Equation:
    """Cuts cells into batches of equal size."""
    source = np.array(problem.columns.source)
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
