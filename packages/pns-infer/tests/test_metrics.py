"""Metrics by hand, and their Monte Carlo intervals."""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest


def test_scores_by_hand():
    interval = pb.Interval(np.array([0.1, 0.3, 0.5]), np.array([0.4, 0.5, 0.4]))
    truth = pb.Interval(np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.4, 0.45]))
    scores = pi.score_intervals(interval, [0.2, 0.25, 0.45], truth, alpha=0.1)
    np.testing.assert_allclose(scores.point_coverage, 1 / 3)
    np.testing.assert_allclose(scores.set_coverage, 1 / 3)
    np.testing.assert_allclose(scores.width, (0.3 + 0.2 + 0) / 3)
    # Second: 0.05 below its interval. Third: crossed by 0.1, and off on both sides.
    penalties = 20 * 0.05 + 20 * (0.05 + 0.05)
    np.testing.assert_allclose(scores.score, (0.3 + 0.2 - 0.1 + penalties) / 3)
    np.testing.assert_allclose(scores.oracle_width, 0.55 / 3)
    np.testing.assert_allclose(scores.empty, 1 / 3)
    assert np.isnan(scores.valid)
    atoms = pb.Atoms(np.full((2, 2, 2), 0.25), np.array([[0.5, 0.5], [0.9, 0.5]]))
    two = pb.Interval(*(part[:2] for part in interval))
    scores = pi.score_intervals(
        two, [0.2, 0.3], pb.Interval(*(p[:2] for p in truth)), atoms=atoms
    )
    assert scores.valid == 0.5 and scores.point_coverage == 1


def test_what_cannot_be_scored_is_told():
    interval = pb.Interval(np.zeros(3), np.ones(3))
    with pytest.raises(pb.InputError, match=r"value must have shape \[3\]"):
        pi.score_intervals(interval, np.zeros(2), interval)
    with pytest.raises(pb.InputError, match="must be finite"):
        pi.score_intervals(interval, [0.1, np.nan, 0.2], interval)
