"""Members that are stuck: found without the truth, replaced by others of their fold."""

import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from pns_models import _stuck
from pns_models._checkpoints import RunCheckpoints
from pns_models._member_groups import join_groups, train_group
from pns_models._members import member_raw

RECIPE = pm.Recipe(
    pm.AnchoredConfig(pm.Backbone(4, depth=0)),
    pm.make_member_training(2e-2, max_steps=60, batch_size=128),
)


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


def test_a_member_that_is_stuck_becomes_another_of_its_fold(small):
    counts = pm.counts_from_tables(*small.tables(), merge=False)
    fold = pm.assign_folds(np.random.default_rng(0), counts, 2)
    folded, _ = pm.fold_counts(counts, fold)
    z = jnp.asarray(2 * folded.counts.z - 1)
    no_checkpoints = RunCheckpoints(None, {})
    good, other = (
        train_group(
            jax.random.key(seed), folded, z, RECIPE, 1, no_checkpoints, 60.0, False
        )
        for seed in (0, 1)
    )
    both = join_groups(good, other)
    assert not _stuck.find_stuck(both, folded, z).any()
    # The second member of fold 1 forgets what it learned.
    damaged = other._replace(
        params=jax.tree.map(lambda leaf: jnp.asarray(leaf).at[1].add(1.0), other.params)
    )
    both = join_groups(good, damaged)
    is_stuck = _stuck.find_stuck(both, folded, z)
    assert is_stuck.tolist() == [False, False, False, True]
    mended = _stuck.replace_stuck(both, is_stuck)
    raw = np.asarray(member_raw(mended.structure, mended.params, z))
    before = np.asarray(member_raw(both.structure, both.params, z))
    np.testing.assert_array_equal(raw[3], before[1])
    np.testing.assert_array_equal(raw[:3], before[:3])
    np.testing.assert_array_equal(mended.fold, both.fold)
