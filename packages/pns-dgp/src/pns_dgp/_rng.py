"""NumPy random streams derived from JAX keys, block by block."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Key
from pns_bounds import InputError

BLOCK_ROWS = 8192

Block = TypeVar("Block")


def map_blocks(
    draw: Callable[[np.random.Generator, int], Block], key: Key[jax.Array, ""], n: int
) -> Iterator[tuple[slice, Block]]:
    """Draws n rows in blocks, each from its own stream, on all cores.

    Block b always draws BLOCK_ROWS rows from a stream made of the key and b, so rows do
    not depend on n, on the number of cores or on which rows are asked for.

    Yields:
      The rows a block fills, and the block, whose surplus rows the caller drops.
    """
    if isinstance(key, jax.core.Tracer):
        raise InputError(
            "key",
            "must be a concrete key: loop over keys instead of using vmap or jit.",
        )
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.shape != ():
        raise InputError("key", "must be one typed key, from jax.random.key.")
    words = np.asarray(jax.random.key_data(key)).ravel().tolist()

    def one(block: int) -> Block:
        seed = np.random.SeedSequence(words, spawn_key=(block,))
        return draw(np.random.Generator(np.random.Philox(seed)), BLOCK_ROWS)

    num_workers = os.cpu_count() or 1
    num_blocks = -(-n // BLOCK_ROWS)
    with ThreadPoolExecutor(num_workers) as pool:
        # A few blocks at a time: results wait in memory until they are taken.
        for first in range(0, num_blocks, 2 * num_workers):
            group = range(first, min(first + 2 * num_workers, num_blocks))
            for block, rows in zip(group, pool.map(one, group), strict=True):
                start = block * BLOCK_ROWS
                yield slice(start, min(start + BLOCK_ROWS, n)), rows
