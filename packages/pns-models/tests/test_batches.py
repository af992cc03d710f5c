"""Batches: every row once in an epoch, and merging that changes no sum."""

import jax
import numpy as np
import pns_models as pm
import pytest
from pns_models import _prepare
from pns_models._batches import Batches

pytestmark = pytest.mark.usefixtures("quick_compilation")


def make_rows(num_rows=500, num_cells=16, seed=0):
    """Returns units of a few covariate vectors, and a weight of 1 for each."""
    rng = np.random.default_rng(seed)
    cells = rng.standard_normal((num_cells, 4)).astype(np.float32)
    z = cells[rng.integers(0, num_cells, num_rows)]
    weights = np.eye(8, dtype=np.float32)[rng.integers(0, 8, num_rows)]
    return z, weights


def test_an_epoch_visits_every_row_once():
    z, weights = make_rows()
    rows = Batches(jax.random.key(0), z, weights, 100, may_merge=False)
    whole = rows(0, 15)
    assert whole.weights is None and whole.rows.shape == (15, 100)
    for epoch in (whole.rows[:5], whole.rows[5:10], whole.rows[10:]):
        np.testing.assert_array_equal(np.sort(epoch.ravel()), np.arange(500))
    assert not np.array_equal(whole.rows[:5], whole.rows[5:10])
    np.testing.assert_array_equal(rows(7, 4).rows, whole.rows[7:11])
    # 500 rows are no multiple of 200: a batch spans two epochs.
    spanning = Batches(jax.random.key(0), z, weights, 200, may_merge=False)
    np.testing.assert_array_equal(spanning(0, 5).rows.ravel(), whole.rows[:10].ravel())


def test_a_merged_batch_holds_the_units_of_the_batch():
    z, weights = make_rows(2000)
    rows = Batches(jax.random.key(1), z, weights, 600, may_merge=False)(3, 4).rows
    batches = Batches(jax.random.key(1), z, weights, 600, may_merge=True)
    merged = batches(3, 4)  # the first of them spans two epochs
    assert merged.weights is not None and merged.rows.shape == (4, 256)
    np.testing.assert_array_equal(batches(0, 7).weights[3:], merged.weights)
    for i, units in enumerate(rows):
        filled = merged.weights[i].sum(1) > 0
        assert filled.sum() == len(np.unique(z[units], axis=0)) == 16
        for row, counts in zip(
            merged.rows[i][filled], merged.weights[i][filled], strict=True
        ):
            same = (z[units] == z[row]).all(axis=1)
            np.testing.assert_array_equal(counts, weights[units][same].sum(0))


def test_batches_that_merging_would_not_halve_stay_rows():
    for num_cells, batch_size in ((400, 600), (16, 500)):  # 16 are padded to 256
        z, weights = make_rows(2000, num_cells)
        batches = Batches(jax.random.key(0), z, weights, batch_size, may_merge=True)
        assert batches(0, 1).weights is None


def test_merging_leaves_training_what_it_was(small, monkeypatch):
    counts = pm.counts_from_tables(*small.tables(900, 700), merge=False)
    recipe = small.recipe(batch_size=512, max_steps=12, eval_every=6, merge=False)
    merged = pm.fit(jax.random.key(0), counts, recipe)
    seen = []

    def unmerged(*args):
        seen.append(args[-1])
        return Batches(*args[:-1], may_merge=False)

    monkeypatch.setattr(_prepare, "Batches", unmerged)
    plain = pm.fit(jax.random.key(0), counts, recipe)
    assert seen == [True]
    np.testing.assert_allclose(
        merged.history.training, plain.history.training, rtol=1e-5
    )
    np.testing.assert_allclose(
        merged.model.atoms(counts.z).mu, plain.model.atoms(counts.z).mu, atol=1e-4
    )
