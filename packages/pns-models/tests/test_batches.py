"""Batches: every row once in an epoch, merging that changes no sum, noise of the right law."""

import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from pns_models import _batches, _step
from pns_models._batches import Batches
from scipy import stats

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
    counts = pm.rows_from_tables(*small.tables(900, 700)).counts(merge=False)
    recipe = small.recipe(batch_size=512, max_steps=12, eval_every=6, merge=False)
    merged = pm.fit(jax.random.key(0), counts, recipe)
    seen = []

    def unmerged(*args):
        seen.append(args[-1])
        return Batches(*args[:-1], may_merge=False)

    monkeypatch.setattr(_step, "Batches", unmerged)
    plain = pm.fit(jax.random.key(0), counts, recipe)
    assert seen == [True]
    np.testing.assert_allclose(
        merged.history.training, plain.history.training, rtol=1e-5
    )
    np.testing.assert_allclose(
        merged.model.atoms(counts.z).mu, plain.model.atoms(counts.z).mu, atol=1e-4
    )


@pytest.mark.parametrize("kind", ["hypermodel", "epinet", "ensemble"])
def test_weights_of_counts_are_gamma(small, kind):
    """Kolmogorov-Smirnov over rows (ensemble) and over indices (the others)."""
    num = 3000
    network = small.network(kind, index_dim=10)
    counts = np.tile([0.0, 1, 2, 7, 40, 0.5, 0, 1], (num, 1)).astype(np.float32)
    table = _batches.make_noise_table(counts)
    if kind == "ensemble":
        indices, rows = jnp.eye(3), jnp.arange(num)
    else:
        indices, rows = network.draw_indices(jax.random.key(1), num), jnp.arange(1)
    directions = _batches.row_directions(network, jax.random.key(2), rows)
    which = table.which[: len(rows)]
    weights = np.asarray(
        _batches.noisy_weights(jnp.asarray(table.quantiles), which, directions, indices)
    )
    sample = weights[1] if kind == "ensemble" else weights[:, 0]
    for cell, count in enumerate(counts[0]):
        if count == 0:
            assert np.all(sample[:, cell] == 0)
        else:
            law = stats.gamma(count)
            assert stats.kstest(sample[:, cell], law.cdf).pvalue > 1e-4
            if count >= 1:
                error = np.sqrt(count / num)
                assert abs(sample[:, cell].mean() - count) < 4.5 * error
    # Cells and members are reweighted independently of each other.
    assert abs(np.corrcoef(sample[:, 1], sample[:, 7])[0, 1]) < (
        0.1 if kind == "ensemble" else 0.9
    )
    if kind == "ensemble":
        assert abs(np.corrcoef(weights[0, :, 3], weights[1, :, 3])[0, 1]) < 0.1


def test_many_different_weights_are_rounded_to_three_digits():
    cells = np.linspace(0.1, 50, 80_000).reshape(-1, 8).astype(np.float32)
    table = _batches.make_noise_table(cells)
    assert len(table.quantiles) <= 10_000
    middle = table.quantiles[table.which, 96]  # the median
    exact = stats.gamma.ppf(0.5, cells)
    np.testing.assert_allclose(middle, exact, rtol=0.06)


def test_padding_of_the_table_is_never_read():
    table = _batches.make_noise_table(np.arange(40.0).reshape(5, 8))
    assert table.quantiles.shape == (64, 193) and table.which.max() == 39
    np.testing.assert_array_equal(table.quantiles[40:], 0)
