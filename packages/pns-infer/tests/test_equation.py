"""Cells of a bootstrap: checked at the door, batches that change nothing."""

import chex
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pytest
from bootstrap_examples import ANCHORED, anchored_data
from pns_infer.bootstrap import equation as _equation
from pns_infer.bootstrap.problem import TWO_SOURCES


def test_cells_that_cannot_be_used_are_refused():
    _, z, counts = anchored_data()

    def check(z, counts):
        _equation.check_cells(jnp.asarray(z), jnp.asarray(counts), TWO_SOURCES)

    check(z, counts)
    with pytest.raises(pb.InputError, match=r"counts must have shape \[\d+, 8\]"):
        check(z, counts[:, :4])
    with pytest.raises(pb.InputError, match="not negative"):
        check(z, -counts)
    with pytest.raises(pb.InputError, match="z must be finite"):
        check(z * np.nan, counts)
    with pytest.raises(pb.InputError, match="of source 1 are all 0"):
        check(z, np.where(np.arange(8) < 4, counts, 0))


def test_batches_hold_every_cell_once_and_then_empty_ones():
    params, z, counts = anchored_data()
    batches = _equation.make_equation(
        ANCHORED["full"], params, jnp.asarray(z), jnp.asarray(counts), batch=64
    )
    chex.assert_shape([batches.inputs, batches.counts], [(3, 64, 3), (3, 64, 8)])
    np.testing.assert_array_equal(batches.inputs.reshape(-1, 3)[: len(z)], z)
    np.testing.assert_array_equal(batches.counts.reshape(-1, 8)[: len(z)], counts)
    assert not np.any(batches.counts.reshape(-1, 8)[len(z) :])
    chex.assert_tree_all_finite((batches.inputs, batches.counts, batches.sizes))
    totals = counts.sum(axis=0)
    np.testing.assert_allclose(batches.sizes[:4], totals[:4].sum())
    np.testing.assert_allclose(batches.sizes[4:], totals[4:].sum())
