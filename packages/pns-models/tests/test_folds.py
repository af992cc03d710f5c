"""Folds: a partition of the rows, at random, with what belongs together in one fold."""

import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest

NAMES = ["observational", "control", "treatment"]


def draw_parts(num_rows=60, seed=0):
    """Draws the part of each row: half of them in the log."""
    return np.maximum(np.random.default_rng(seed).integers(-1, 3, num_rows), 0)


def deal(part, num_folds, groups=None, seed=0):
    return pm.deal_folds(np.random.default_rng(seed), part, num_folds, groups)


def test_rows_are_dealt_by_their_source_and_arm():
    rng = np.random.default_rng(0)
    log, trial = ((rng.random((n, 1)), *rng.integers(0, 2, (2, n))) for n in (60, 40))
    rows = pm.rows_from_tables(log, trial).deal(np.random.default_rng(3), 4)
    part = np.concatenate([np.zeros(60, int), 1 + trial[1]])
    np.testing.assert_array_equal(rows.fold, deal(part, 4, seed=3))


def test_folds_are_equal_in_rows_of_each_source_and_arm():
    part = draw_parts(203, seed=1)
    fold = deal(part, 5)
    assert np.ptp(np.bincount(fold)) <= 1
    for number in range(3):
        assert np.ptp(np.bincount(fold[part == number], minlength=5)) <= 1


def test_the_fold_of_a_row_is_uniform():
    """Over 900 repetitions; counts of hits have a standard deviation of 14."""
    part = draw_parts(24, seed=4)
    hits = np.zeros((24, 3))
    for seed in range(900):
        hits[np.arange(24), deal(part, 3, seed=seed)] += 1
    assert np.abs(hits - 300).max() < 4.5 * np.sqrt(900 * 2 / 9)


@pytest.mark.parametrize("text", [False, True])
def test_groups_stay_in_one_fold_and_spread_evenly(text):
    rng = np.random.default_rng(3)
    part = draw_parts(900)
    groups = np.concatenate([np.repeat(np.arange(40), 15), 40 + np.arange(300)])
    groups = rng.permutation(groups).astype(str if text else int)
    fold = deal(part, 4, groups)
    for label in np.unique(groups):
        assert len(set(fold[groups == label])) == 1
    assert np.ptp(np.bincount(fold)) <= 4
    for number in range(3):
        sizes = np.bincount(fold[part == number])
        assert np.ptp(sizes) <= 0.15 * sizes.mean()


def test_one_rng_gives_one_answer():
    part = draw_parts()
    np.testing.assert_array_equal(deal(part, 3), deal(part, 3))
    assert not np.array_equal(deal(part, 3), deal(part, 3, seed=1))


def test_fewer_rows_than_folds_are_told():
    with pytest.raises(pm.TooFewRowsError, match="fewer folds") as raised:
        deal(np.array([0, 0, 0, 0, 1, 1, 2, 2]), 9)
    assert raised.value.part == "fold" and raised.value.observational == 0


@pytest.mark.parametrize("arm", [1, 2])
def test_a_fold_without_an_arm_is_told(arm):
    part = np.concatenate([np.repeat([0, 3 - arm], 50), [arm]])
    message = f"in the {NAMES[arm]} arm"
    with pytest.raises(pm.TooFewRowsError, match=message) as raised:
        deal(part, 2)
    assert raised.value.observational > 0 and raised.value.experimental > 0


def test_a_group_of_everybody_is_told():
    with pytest.raises(pm.TooFewRowsError, match="fold 2 of 3 .* smaller groups"):
        deal(draw_parts(), 3, np.zeros(60))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_folds": 1}, "num_folds must be at least 2, got 1"),
        ({"groups": np.zeros(7)}, "groups must hold 60 labels.*got shape \\[7\\]"),
    ],
)
def test_bad_arguments_are_told(change, message):
    with pytest.raises(pb.InputError, match=message):
        deal(**{"part": draw_parts(), "num_folds": 3, **change})


def test_a_deal_is_that_of_cards():
    """Shuffled rows, sorted by part, one fold after the other."""
    part = draw_parts(200)
    fold = deal(part, 4)
    assert fold.dtype == np.int16
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(part))
    rows = rows[np.argsort(part[rows], kind="stable")]
    order = rng.permutation(4)
    for place, row in enumerate(rows):
        assert fold[row] == order[place % 4]


def test_a_part_that_cannot_be_in_every_fold_is_an_error():
    part = np.repeat([0, 1, 2], [8, 8, 3])
    with pytest.raises(pm.TooFewRowsError, match="in the treatment arm") as caught:
        pm.deal_folds(np.random.default_rng(0), part, 4)
    assert caught.value.part == "fold"


@pytest.mark.parametrize("grouped", [False, True])
def test_rows_or_groups_are_held_out_with_the_given_probability(grouped):
    """500 coins: the standard deviation of the share is 0.018."""
    groups = np.arange(5000) % 500 if grouped else None
    size = 5000 if grouped else 500
    held = pm.deal_held_out(np.random.default_rng(1), size, 0.2, groups)
    assert set(held) == {0, 1} and abs(held.mean() - 0.2) < 0.07
    if grouped:
        assert all(len(set(held[groups == g])) == 1 for g in range(500))
