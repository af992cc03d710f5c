"""Networks as members: they answer with free numbers, are picked and saved."""

import chex
import jax
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models._learner import RunContext

BACKBONE = pm.Backbone(4, 1, bottleneck=2)
TRAINING = pm.make_member_training(2e-2, max_steps=10, batch_size=64)


@pytest.fixture(scope="module")
def folded(small):
    rows = pm.rows_from_tables(*small.tables())
    return rows.deal(np.random.default_rng(0), 2).folded()[0]


@pytest.fixture(scope="module")
def members(folded):
    learner = pm.NetworkLearner(pm.Recipe(pm.AnchoredConfig(BACKBONE), TRAINING))
    resamples = pm.Resamples(folded, per_fold=2)
    return learner.fit(jax.random.key(0), resamples, RunContext())


def test_free_numbers_have_the_atoms_of_each_network_on_standardized_rows(
    folded, members
):
    z = np.asarray(folded.counts.z)
    raw = members.raw(z)
    chex.assert_shape(raw, (4, len(z), 6))
    anchored = members.model.network.encode(members.model.standardizer(z))
    expected = pm.atoms_from_raw(anchored, "anchored")
    found = pm.atoms_from_raw(raw, "free")
    chex.assert_trees_all_close(found, expected, atol=1e-5)
    assert np.all(pb.is_compatible(pb.Atoms(*map(np.asarray, found)), 1e-6))
    np.testing.assert_allclose(np.exp(raw[..., :4]).sum(axis=-1), 1, atol=1e-6)


@pytest.mark.parametrize("order", [[1, 3], [2], [3, 3, 0]])
def test_picked_members_keep_their_folds_and_answers(folded, members, order):
    z = np.asarray(folded.counts.z)
    some = members.take(np.array(order))
    assert members.fold.tolist() == [0, 1, 0, 1]
    assert some.fold.tolist() == [i % 2 for i in order]
    raw = members.raw(z)
    np.testing.assert_allclose(some.raw(z), raw[order], atol=1e-6)
    assert not np.allclose(raw[0], raw[2])


def test_saved_members_say_what_they_are(folded, members, tmp_path):
    pm.MEMBERS.save(members, tmp_path / "members")
    again = pm.MEMBERS.load(tmp_path / "members")
    assert isinstance(again, pm.NetworkMembers)
    assert again.model.recipe.network == pm.EnsembleConfig(BACKBONE, 4)
    assert again.fold.tolist() == [0, 1, 0, 1]
    z = np.asarray(folded.counts.z)
    np.testing.assert_array_equal(again.raw(z), members.raw(z))
