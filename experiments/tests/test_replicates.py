"""Replicates: the same data for every method, other data in another replicate."""

import re

import chex
import numpy as np
import pns_bounds as pb
import pns_dgp
import pytest
from pns_experiments.replicates import (
    count_twins,
    draw_replicate,
    is_model,
    make_model,
)


def test_a_replicate_is_named_by_its_number_and_seed():
    first, again = (draw_replicate("li:7", 50, 40, 30, 3, seed=1) for _ in range(2))
    chex.assert_trees_all_equal(first, again)
    for number, seed in ((4, 1), (3, 2)):
        other = draw_replicate("li:7", 50, 40, 30, number, seed)
        assert not np.array_equal(other.z, first.z)
        assert not np.array_equal(
            other.tables.observational.z, first.tables.observational.z
        )
    chex.assert_shape(first.z, (30, 15))
    truth = make_model("li:7").oracle(first.z)
    np.testing.assert_array_equal(first.truth.pns, truth.pns)


def test_models_have_names():
    assert make_model("li_1") == pns_dgp.li_model_1()
    assert make_model("li:12") == pns_dgp.random_li_model(12)
    member = make_model("li:12:9+3")
    assert member == pns_dgp.random_li_model(12, num_covariates=12, num_hidden=3)
    assert is_model("acic") and is_model("li:12:9+3")
    curved = make_model("curved:3").parameters()
    assert curved == pns_dgp.random_curved_model(3).parameters()
    wide = make_model("curved:3:20")
    assert wide.num_covariates == 20 and wide.num_binary == 6
    for name in ("li:x", "li:", "li:12:9", "li:12:+3"):
        assert not is_model(name)
        with pytest.raises(
            pb.InputError, match=f"model must be .* got '{re.escape(name)}'"
        ):
            make_model(name)


def test_indicators_of_a_category_tell_its_label():
    """The world says what is likely for labels; the replicate has them as indicators."""
    data = draw_replicate("world:mixed:1", 300, 200, 30, 0, seed=1)
    covariate = data.tables.covariate
    sizes = [int(np.sum(covariate == j)) for j in range(6)]
    assert sizes == [pns_dgp.World.num_labels, 1, 1, 1, 1, 1]
    labels = data.z[:, covariate == 0]
    assert np.all(labels.sum(axis=1) == 1) and len(np.unique(labels, axis=0)) > 5
    z = np.column_stack([labels.argmax(axis=1), data.z[:, covariate > 0]])
    truth = make_model("world:mixed:1").oracle(z)
    np.testing.assert_array_equal(data.truth.pns, truth.pns)
    for table in data.tables.both:
        assert table.z.shape[1] == len(covariate)
    assert draw_replicate("world:sines:1", 30, 20, 3, 0, 1).tables.covariate is None


def test_twins_are_counted_in_both_tables():
    data = draw_replicate("li:7", 300, 200, 30, 0, seed=1)
    rows = np.concatenate([np.asarray(table.z) for table in data.tables.both])
    expected = [sum(np.array_equal(row, point) for row in rows) for point in data.z]
    np.testing.assert_array_equal(count_twins(data.tables, data.z), expected)
    assert len(set(expected)) > 2
