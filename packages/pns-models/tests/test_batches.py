"""Batches: every row once in an epoch, and merging that changes no sum."""

import dataclasses

import jax
import numpy as np
import pns_models as pm
import pytest
from pns_models import _training
from pns_models._batches import Batches


def make_config(kind="anchored", backbone=None, **sizes):
    """Makes a config of any kind; sizes that it does not have are left out."""
    config_class = pm.NETWORKS[kind]
    names = [field.name for field in dataclasses.fields(config_class)]
    known = {name: size for name, size in sizes.items() if name in names}
    return config_class(backbone or pm.Backbone(), **known)


def make_rows(num_rows=500, num_kinds=16, seed=0):
    """Returns covariates of a few kinds of people, and a cell for each person."""
    rng = np.random.default_rng(seed)
    kinds = rng.standard_normal((num_kinds, 4)).astype(np.float32)
    z = kinds[rng.integers(0, num_kinds, num_rows)]
    cells = np.eye(8, dtype=np.float32)[rng.integers(0, 8, num_rows)]
    return z, cells


def test_an_epoch_visits_every_row_once():
    z, cells = make_rows()
    rows = Batches(jax.random.key(0), z, cells, 100, may_merge=False)
    whole = rows(0, 15)
    assert whole.cells is None and whole.rows.shape == (15, 100)
    for epoch in (whole.rows[:5], whole.rows[5:10], whole.rows[10:]):
        np.testing.assert_array_equal(np.sort(epoch.ravel()), np.arange(500))
    assert not np.array_equal(whole.rows[:5], whole.rows[5:10])
    np.testing.assert_array_equal(rows(7, 4).rows, whole.rows[7:11])
    # 500 rows are no multiple of 200: a batch spans two epochs.
    spanning = Batches(jax.random.key(0), z, cells, 200, may_merge=False)
    np.testing.assert_array_equal(spanning(0, 5).rows.ravel(), whole.rows[:10].ravel())


def test_a_merged_batch_holds_the_people_of_the_batch():
    z, cells = make_rows(2000)
    rows = Batches(jax.random.key(1), z, cells, 600, may_merge=False)(3, 4).rows
    batches = Batches(jax.random.key(1), z, cells, 600, may_merge=True)
    merged = batches(3, 4)  # the first of them spans two epochs
    assert merged.cells is not None and merged.rows.shape == (4, 256)
    np.testing.assert_array_equal(batches(0, 7).cells[3:], merged.cells)
    for i, people in enumerate(rows):
        filled = merged.cells[i].sum(1) > 0
        assert filled.sum() == len(np.unique(z[people], axis=0)) == 16
        for row, counts in zip(
            merged.rows[i][filled], merged.cells[i][filled], strict=True
        ):
            same = (z[people] == z[row]).all(axis=1)
            np.testing.assert_array_equal(counts, cells[people][same].sum(0))


def test_batches_that_merging_would_not_halve_stay_rows():
    for num_kinds, batch_size in ((400, 600), (16, 500)):  # 16 are padded to 256
        z, cells = make_rows(2000, num_kinds)
        batches = Batches(jax.random.key(0), z, cells, batch_size, may_merge=True)
        assert batches(0, 1).cells is None


@pytest.mark.parametrize("kind", ["anchored", "hypermodel"])
def test_merging_leaves_training_what_it_was(kind, monkeypatch):
    rng = np.random.default_rng(0)
    tables = []
    for size in (900, 700):
        z = rng.integers(0, 2, (size, 4)).astype(np.float32)
        x = rng.integers(0, 2, size)
        y = (rng.random(size) < 0.2 + 0.3 * x * z[:, 0] + 0.2 * z[:, 1]).astype(int)
        tables.append((z, x, y))
    counts = pm.counts_from_tables(*tables, merge=False)
    network = make_config(kind, pm.Backbone(16, 2), index_dim=4)
    training = pm.TrainConfig(
        batch_size=512, max_steps=12, eval_every=6, patience=None, merge=False
    )
    recipe = pm.Recipe(network, training)
    merged = pm.fit(jax.random.key(0), counts, recipe)
    seen = []

    def unmerged(*args):
        seen.append(args[-1])
        return Batches(*args[:-1], may_merge=False)

    monkeypatch.setattr(_training, "Batches", unmerged)
    plain = pm.fit(jax.random.key(0), counts, recipe)
    assert seen == [True]
    np.testing.assert_allclose(
        merged.history.training, plain.history.training, rtol=1e-5
    )
    np.testing.assert_allclose(
        merged.model.atoms(counts.z).mu, plain.model.atoms(counts.z).mu, atol=1e-4
    )
