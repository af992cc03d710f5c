"""The data of a bootstrap: cells checked, cut into batches, and their multipliers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
from jaxtyping import Array, Float, PRNGKeyArray

from pns_infer.bootstrap.problem import CountColumns
from pns_infer.core.inputs import check_shape


class Batches(NamedTuple):
    """Arrays that a scan runs over; the last batch is filled with empty cells.

    Attributes:
      inputs: what the bootstrapped function takes: covariates, or features for the last
        layer.
      counts: units of each cell and column.
      sizes: units in the source of each column.
    """

    inputs: Float[Array, "num_batches batch width"]
    counts: Float[Array, "num_batches batch num_columns"]
    sizes: Float[Array, " num_columns"]


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


def make_batches(
    inputs: Float[Array, "num_cells width"],
    counts: Float[Array, "num_cells num_columns"],
    columns: CountColumns,
    batch: int,
) -> Batches:
    """Cuts cells into batches of equal size."""
    source = np.array(columns.source)
    by_source = np.bincount(source, np.asarray(counts, float).sum(axis=0))
    batch = min(batch, len(inputs))
    missing = -len(inputs) % batch
    inputs = jnp.concatenate([inputs, jnp.repeat(inputs[:1], missing, axis=0)])
    counts = jnp.concatenate([counts, jnp.zeros((missing, counts.shape[1]))])
    return Batches(
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
    key: PRNGKeyArray, batches: Batches, draw: int
) -> Float[Array, "num_cells num_columns"]:
    """Makes the multipliers of one draw for all cells, the empty ones too."""
    shape = batches.counts.shape[1:]
    return jnp.concatenate(
        [batch_multipliers(key, draw, i, shape) for i in range(len(batches.counts))]
    )
