"""The data of a bootstrap: cells checked, cut into batches, and their multipliers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from pns_infer.bootstrap.problem import CellLayout


class Cells(NamedTuple):
    """Cells in batches; the last is filled with empty cells.

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
    layout: CellLayout,
) -> None:
    """Raises unless every source has units, with finite covariates."""
    columns = len(layout.group)
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
            raise ValueError(f"source {source} has no units: its counts are all 0.")


def batch_cells(
    inputs: Float[Array, "num_cells width"],
    counts: Float[Array, "num_cells num_columns"],
    layout: CellLayout,
    batch: int,
) -> Cells:
    """Cuts cells into batches of equal size."""
    by_source = np.zeros(max(layout.source) + 1)
    np.add.at(by_source, list(layout.source), np.asarray(counts, float).sum(axis=0))
    batch = min(batch, len(inputs))
    missing = -len(inputs) % batch
    inputs = jnp.concatenate([inputs, jnp.repeat(inputs[:1], missing, axis=0)])
    counts = jnp.concatenate([counts, jnp.zeros((missing, counts.shape[1]))])
    return Cells(
        inputs=inputs.reshape(-1, batch, inputs.shape[1]),
        counts=counts.reshape(-1, batch, counts.shape[1]),
        sizes=jnp.asarray(by_source[list(layout.source)], counts.dtype),
    )


def batch_multipliers(
    key: PRNGKeyArray, draw: int | Array, number: int | Array, shape: tuple[int, ...]
) -> Float[Array, "batch num_columns"]:
    """Makes the multipliers of one draw for batch `number` of the cells."""
    key = jax.random.fold_in(jax.random.fold_in(key, draw), number)
    return jax.random.normal(key, shape)


def multipliers(
    key: PRNGKeyArray, cells: Cells, draw: int
) -> Float[Array, "num_cells num_columns"]:
    """Makes the multipliers of one draw for all cells, the empty ones too."""
    shape = cells.counts.shape[1:]
    return jnp.concatenate(
        [batch_multipliers(key, draw, i, shape) for i in range(len(cells.counts))]
    )
