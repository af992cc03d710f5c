"""Ranks with ties: as breaking them at random does on average."""

import numpy as np
from pns_infer.averages.ranking import rank_limits, share_between


def test_a_share_is_the_chance_under_random_breaking_of_ties():
    """4,000 orders of 10 people: a chance is known within 0.01."""
    rng = np.random.default_rng(0)
    score = np.array([1, 1, 1, 2, 2, 3, 3, 3, 3, 0.0])
    hits = np.zeros(10)
    for _ in range(4000):
        order = np.lexsort((rng.random(10), score))
        hits[order[4:7]] += 1  # ranks from 40% to 70%
    limits = rank_limits(score, np.ones(10))
    np.testing.assert_allclose(share_between(limits, 0.4, 0.7), hits / 4000, atol=0.035)


def test_parts_have_equal_weight_and_add_up_within_each_fold():
    rng = np.random.default_rng(1)
    score, weights = rng.integers(0, 7, 200).astype(float), rng.uniform(1, 3, 200)
    fold = rng.integers(0, 3, 200)
    limits = rank_limits(score, weights, fold)
    parts = np.stack([share_between(limits, i / 5, (i + 1) / 5) for i in range(5)])
    np.testing.assert_allclose(parts.sum(axis=0), 1)
    for each in range(3):
        inside = fold == each
        mass = parts[:, inside] @ weights[inside]
        np.testing.assert_allclose(mass, weights[inside].sum() / 5)


def test_rows_of_weight_zero_are_ranked_among_the_others():
    score = np.array([1.0, 2, 3, 4, 0, 2.5, 3, 9])
    weights = np.array([1.0, 1, 1, 1, 0, 0, 0, 0])
    limits = rank_limits(score, weights)
    parts = np.stack([share_between(limits, i / 4, (i + 1) / 4) for i in range(4)])
    np.testing.assert_array_equal(parts.argmax(axis=0), [0, 1, 2, 3, 0, 2, 2, 3])
    np.testing.assert_allclose(parts.sum(axis=0), 1)
