"""Cells of a bootstrap: checked at the door, batches that change nothing."""

import chex
import jax.numpy as jnp
import numpy as np
import pns_infer as pi
import pytest
from bootstrap_examples import anchored_data
from pns_infer.bootstrap import cells as _cells


def test_cells_that_cannot_be_used_are_refused():
    _, z, counts = anchored_data()

    def check(z, counts):
        _cells.check_cells(jnp.asarray(z), jnp.asarray(counts), pi.TWO_TABLES)

    check(z, counts)
    with pytest.raises(ValueError, match=r"shapes \[n, d\] and \[n, 8\]"):
        check(z, counts[:, :4])
    with pytest.raises(ValueError, match="not negative"):
        check(z, -counts)
    with pytest.raises(ValueError, match="z must be finite"):
        check(z * np.nan, counts)
    with pytest.raises(ValueError, match="source 1 has no units"):
        check(z, np.where(np.arange(8) < 4, counts, 0))


def test_batches_hold_every_cell_once_and_then_empty_ones():
    _, z, counts = anchored_data()
    cells = _cells.batch_cells(
        jnp.asarray(z), jnp.asarray(counts), pi.TWO_TABLES, batch=64
    )
    chex.assert_shape([cells.inputs, cells.counts], [(3, 64, 3), (3, 64, 8)])
    np.testing.assert_array_equal(cells.inputs.reshape(-1, 3)[: len(z)], z)
    np.testing.assert_array_equal(cells.counts.reshape(-1, 8)[: len(z)], counts)
    assert not np.any(cells.counts.reshape(-1, 8)[len(z) :])
    chex.assert_tree_all_finite(cells)
    totals = counts.sum(axis=0)
    np.testing.assert_allclose(cells.sizes[:4], totals[:4].sum())
    np.testing.assert_allclose(cells.sizes[4:], totals[4:].sum())
