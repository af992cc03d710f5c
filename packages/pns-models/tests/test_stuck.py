"""Members that are stuck: found without the truth, replaced by others of their fold."""

import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from pns_models import _stuck
from pns_models._links import log_probabilities


def tilt(law, direction, size):
    """Moves a law along a direction of its logits."""
    moved = law * np.exp(size * direction)
    return moved / moved.sum()


@pytest.mark.parametrize(("ratio", "is_far"), [(2.4, False), (3.6, True)])
def test_the_ratio_of_two_errors_is_known_without_the_truth(ratio, is_far):
    """Errors in orthogonal directions, whose divergences are squares of their sizes."""
    law = np.full(4, 0.25)
    first, second = np.array([1.0, -1, 0, 0]), np.array([0.0, 0, 1, -1])
    best, other = tilt(law, first, 0.02), tilt(law, second, 0.02 * ratio**0.5)
    arms = np.full(4, 0.5)
    logs = np.log([[np.concatenate([p, arms])] for p in (other, best)])
    weights = 1e6 * np.concatenate([law, arms])[None]  # as the truth has them
    found = _stuck._are_far(logs, weights)
    assert found.tolist() == [is_far, False]
    error = [(law * (np.log(law) - np.log(p))).sum() for p in (other, best)]
    np.testing.assert_allclose(error[0] / error[1], ratio, rtol=0.01)


def test_a_member_that_is_stuck_becomes_another_of_its_fold():
    """Units are as the truth has them, and the members err independently about it."""
    rng, fold = np.random.default_rng(0), np.arange(50) % 2
    truth = rng.normal(size=(50, 6))
    logs = log_probabilities(jnp.asarray(truth), "anchored")
    counts = pm.Counts(np.zeros((50, 1)), *(1000 * np.exp(part) for part in logs))
    raw = truth + 0.05 * rng.normal(size=(4, 50, 6))
    by_fold = np.array([[0, 2], [1, 3]])
    assert not _stuck.find_stuck(raw, counts, fold, by_fold).any()
    raw[3] += rng.normal(size=(50, 6))  # the second member of fold 1
    is_stuck = _stuck.find_stuck(raw, counts, fold, by_fold)
    assert is_stuck.tolist() == [False, False, False, True]
    assert _stuck.replacements(is_stuck, by_fold).tolist() == [0, 1, 2, 1]
