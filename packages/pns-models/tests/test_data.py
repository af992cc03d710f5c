"""Counts: merging is exact, splitting keeps all units, memory stays small."""

import tracemalloc

import jax
import numpy as np
import pns_models as pm
import pytest
from pns_models import _data
from pns_models._data import split_counts


def tables(num_observational=4000, num_experimental=2500, num_columns=4, levels=2):
    rng = np.random.default_rng(0)
    result = []
    for n in (num_observational, num_experimental):
        z = rng.integers(0, levels, (n, num_columns)).astype(np.float32)
        result.append((z, rng.integers(0, 2, n), rng.integers(0, 2, n)))
    return result


def by_dictionary(observational, experimental):
    """Adds units up one by one."""
    cells = {}
    for source, (z, x, y) in enumerate((observational, experimental)):
        for row in range(len(z)):
            key = tuple(z[row].tolist())
            cells.setdefault(key, np.zeros((2, 2, 2)))[source, x[row], y[row]] += 1
    return cells


@pytest.mark.parametrize("merge", [None, True])
def test_merged_counts_are_those_of_counting_one_by_one(merge):
    observational, experimental = tables()
    counts = pm.rows_from_tables(observational, experimental).counts(merge)
    expected = by_dictionary(observational, experimental)
    assert len(counts.z) == len(expected) == 16
    # In order of first appearance.
    assert [tuple(row) for row in counts.z.tolist()] == list(expected)
    for row, key in enumerate(expected):
        np.testing.assert_array_equal(counts.observational[row], expected[key][0])
        np.testing.assert_array_equal(counts.experimental[row], expected[key][1])


def test_rows_that_share_a_hash_are_still_told_apart(monkeypatch):
    observational, experimental = tables(200, 100)
    expected = by_dictionary(observational, experimental)
    monkeypatch.setattr(_data, "_row_hashes", lambda z: np.zeros(len(z), np.uint64))
    counts = pm.rows_from_tables(observational, experimental).counts()
    assert len(counts.z) == len(expected)
    for row in range(len(counts.z)):
        want = expected[tuple(counts.z[row].tolist())]
        np.testing.assert_array_equal(counts.observational[row], want[0])


def test_the_hash_tells_rows_apart():
    z = np.random.default_rng(0).integers(0, 2, (60_000, 20)).astype(np.float32)
    assert len(np.unique(_data._row_hashes(z))) == len(np.unique(z, axis=0))


def test_merging_happens_only_when_it_pays_and_zeros_of_both_signs_are_one():
    z = np.array([[0.0], [-0.0], [1.0], [2.0]], np.float32)
    x = y = np.array([0, 1, 0, 1])
    assert (
        len(pm.rows_from_tables((z, x, y), (z[:1], x[:1], y[:1])).counts(merge=None).z)
        == 5
    )
    assert len(pm.rows_from_tables((z, x, y), (z[:1], x[:1], y[:1])).counts().z) == 3
    twice = np.concatenate([z, z]), np.tile(x, 2), np.tile(y, 2)
    assert len(pm.rows_from_tables(twice, twice).counts(merge=None).z) == 3
    assert len(pm.rows_from_tables(twice, twice).counts(merge=False).z) == 16


def test_a_continuous_table_costs_little_more_than_itself():
    rng = np.random.default_rng(0)
    n = 50_000
    z = rng.normal(size=(n, 50)).astype(np.float32)
    counts = pm.Counts(z, np.ones((n, 2, 2), "f4"), np.ones((n, 2, 2), "f4"))
    tracemalloc.start()
    merged = counts.merged(only_if_halved=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert merged is counts
    assert peak < 65_536 * 50 * 8 * 4  # a few blocks of hashing; the table is 10 MB


def test_weights_are_added():
    observational, experimental = tables(300, 200)
    weights = (np.full(300, 0.5), np.full(200, 3.0))
    whole = pm.rows_from_tables(observational, experimental).counts(merge=None)
    weighted = pm.rows_from_tables(observational, experimental, weights=weights).counts(
        merge=None
    )
    np.testing.assert_allclose(weighted.observational, 0.5 * whole.observational)
    np.testing.assert_allclose(weighted.experimental, 3 * whole.experimental)


def test_a_split_keeps_all_units_and_holds_out_the_share_asked_for():
    counts = pm.rows_from_tables(*tables(40_000, 20_000)).counts(merge=None)
    train, held_out = split_counts(np.random.default_rng(1), counts, 0.2)
    for part in ("observational", "experimental"):
        total = getattr(counts, part)
        sum_of_both = np.zeros_like(total)
        for side in (train, held_out):
            for row, z in enumerate(side.z):
                where = np.all(counts.z == z, axis=1)
                sum_of_both[where] += getattr(side, part)[row]
        np.testing.assert_array_equal(sum_of_both, total)
        n = total.sum()
        share = getattr(held_out, part).sum() / n
        assert abs(share - 0.2) < 4 * np.sqrt(0.16 / n)
    single = pm.rows_from_tables(*tables(3000, 2000)).counts(merge=False)
    train, held_out = split_counts(np.random.default_rng(1), single, 0.2)
    assert len(train.z) + len(held_out.z) == 5000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda z, x, y: (z[:, 0], x, y), r"observational z must have shape"),
        (lambda z, x, y: (z[:0], x[:0], y[:0]), "with a row at least"),
        (
            lambda z, x, y: (np.where(z > 0, np.nan, z), x, y),
            r"in columns \[0, 1, 2, 3",
        ),
        (
            lambda z, x, y: (z, x * 2, y),
            "observational x must hold the numbers 0 and 1 alone, got 2",
        ),
        (lambda z, x, y: (z, x, y[:-1]), "observational y must hold 4000 values"),
        (
            lambda z, x, y: (z[:, :3], x, y),
            "covariates of observational z, got 4 and 3",
        ),
    ],
)
def test_tables_that_do_not_fit_are_told(change, message):
    observational, experimental = tables()
    with pytest.raises(ValueError, match=message):
        pm.rows_from_tables(change(*observational), experimental).counts(merge=None)


def test_weights_that_are_none_are_told():
    observational, experimental = tables(10, 10)
    with pytest.raises(ValueError, match="10 positive finite numbers"):
        pm.rows_from_tables(
            observational, experimental, weights=(np.zeros(10), np.ones(10))
        ).counts(merge=None)


def test_rows_that_exactly_halve_are_merged():
    z = np.array([[0.0], [-0.0], [1.0], [1.0]], np.float32)
    ones = np.ones((4, 2, 2), np.float32)
    merged = pm.Counts(z, ones, ones).merged(only_if_halved=True)
    assert len(merged.z) == 2
    assert merged.observational.sum() == 16


def test_fractional_units_are_held_out_as_often_as_asked():
    rng = np.random.default_rng(0)
    tables = [
        (rng.integers(0, 2, (n, 2)), rng.integers(0, 2, n), rng.integers(0, 2, n))
        for n in (4000, 2500)
    ]
    counts = pm.rows_from_tables(
        *tables, weights=(np.full(4000, 0.3), np.full(2500, 1.7))
    ).counts(merge=False)
    train, held = split_counts(np.random.default_rng(1), counts, 0.2)
    for whole, kept, out in zip(counts[1:], train[1:], held[1:], strict=True):
        assert abs(out.sum() / whole.sum() - 0.2) < 0.04
        np.testing.assert_allclose(out.sum() + kept.sum(), whole.sum(), rtol=1e-5)


def test_weights_and_outcomes_that_do_not_fit_are_told():
    table = (np.zeros((3, 1)), np.array([0, 1, 0]), np.array([0, 1, 1]))
    with pytest.raises(ValueError, match="weights must be a pair"):
        pm.rows_from_tables(table, table, weights=np.ones(3)).counts(merge=None)
    words = (table[0], np.array(["no", "yes", "no"]), table[2])
    with pytest.raises(ValueError, match="numbers 0 and 1 alone, got 'no'"):
        pm.rows_from_tables(words, table).counts(merge=None)
    short = (table[0], table[1][:2], table[2])
    with pytest.raises(ValueError, match="one per row of z"):
        pm.rows_from_tables(short, table).counts(merge=None)


def test_fractional_weights_of_merged_rows_lose_no_cell():
    """Merged cells with fractional sums must not vanish from training whole."""
    rng = np.random.default_rng(0)
    weights = (rng.uniform(0.5, 1.5, 3000), rng.uniform(0.5, 1.5, 2000))
    counts = pm.rows_from_tables(*tables(3000, 2000), weights=weights).counts()
    train, held = split_counts(np.random.default_rng(1), counts, 0.2)
    for part, whole, out in zip(train[1:], counts[1:], held[1:], strict=True):
        np.testing.assert_allclose(out.sum() / whole.sum(), 0.2, atol=0.03)
        assert np.all((part > 0) == (whole > 0))  # no cell is lost


def test_jax_reads_a_table_without_a_copy():
    table = pm.empty_table(1000, 7)
    assert table.shape == (1000, 7) and table.dtype == np.float32
    table[:] = 1
    there = jax.device_put(table, may_alias=True)
    assert there.unsafe_buffer_pointer() == table.ctypes.data
